"""One schedule as people see it: what comes next, and what became of the instants before.

The past is told by the runs, which are the truth about it; what the scheduler remembers explains the instants that have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from pydantic import BaseModel

from simrun.base.errors import DamagedRecord, NotFound
from simrun.model.launchplan import Schedule, instant_of, instant_text
from simrun.scheduler.cron import Cron
from simrun.scheduler.history import Counts, Failure, History, Loss
from simrun.scheduler.launch_plans import next_in_window
from simrun.scheduler.ports import ActiveSchedule
from simrun.scheduler.states import LaneState
from simrun.service.scheduled_runs import is_of
from simrun.store.runs import RunStore

SKIPPED_SHOWN: Final = 10
_INSTANT: Final = timedelta.resolution


class PastFire(BaseModel):
    """What became of an instant.

    state: that of its run; or deleted, retrying, waiting (for an earlier run), due, given_up; or why it was not fired: policy, overlap, paused, unfit;
    or missing. lateness_s: from the instant to the run.
    """

    instant: str
    run: str
    state: str
    lateness_s: float | None = None
    note: str = ""


class WaitingFire(BaseModel):
    """An instant that waits for another try, or for the end of an earlier run."""

    instant: str
    run: str
    tries: int
    next_try_in_s: float
    error: str


class ScheduleView(BaseModel):
    """A schedule of an active version, or of one that is not.

    trouble: why it fires nothing though it is active. next: what is to come if nothing is changed, of a schedule that is paused too.
    """

    group: str
    name: str
    version: str | None
    active: bool
    since: str | None = None
    schedule: Schedule | None = None
    description: str = ""
    paused: str = ""
    trouble: str = ""
    catching_up: bool = False
    backlog: int = 0
    next: list[str] = []
    skipped: list[str] = []
    """Times on the clocks of the zone that match but don't exist, between the instants that are told here: nothing is fired for them."""
    last: list[PastFire] = []
    waiting: list[WaitingFire] = []
    counts: Counts = Counts()
    failures: list[Failure] = []
    """Instants that were given up and have no run yet."""
    losses: list[Loss] = []


def upcoming(plan: ActiveSchedule, now: datetime, number: int) -> list[str]:
    """Give the next instants of a schedule."""
    found: list[str] = []
    at: datetime | None = now
    while plan.timetable is not None and len(found) < number and at is not None:
        at = next_in_window(plan.timetable, plan.schedule, at)
        if at is not None:
            found.append(instant_text(at))
    return found


def skipped_times(plan: ActiveSchedule, begin: datetime, end: datetime) -> list[str]:
    """Give the local times in a span that match a schedule and are skipped when clocks go forward: 2026-03-08T02:30."""
    if not isinstance(plan.timetable, Cron) or begin >= end:
        return []
    missing = islice(plan.timetable.missing_times(begin, end), SKIPPED_SHOWN)
    return [item.local.isoformat(timespec="minutes") for item in missing]


def past(
    store: RunStore, plan: ActiveSchedule, state: LaneState | None, now: datetime, number: int
) -> list[PastFire]:
    """Give what became of the last instants since the activation, newest first (blocking)."""
    return [
        fire_of(store, plan, state, instant)
        for instant, _ in zip(_before(plan, now), range(number), strict=False)
    ]


def fire_of(
    store: RunStore, plan: ActiveSchedule, state: LaneState | None, instant: datetime
) -> PastFire:
    """Say what became of an instant (blocking)."""
    run_id, text = plan.run_id(instant), instant_text(instant)
    if os.path.lexists(store.layout.tombstone(run_id)):
        return PastFire(instant=text, run=run_id, state="deleted")
    try:
        record = store.read(run_id)
    except NotFound:
        word, note = _without_run(state, instant)
        return PastFire(instant=text, run=run_id, state=word, note=note)
    except DamagedRecord as error:
        return PastFire(instant=text, run=run_id, state="damaged", note=str(error))
    if not is_of(record, plan, instant):
        note = "its id stands for a run that is none of this schedule"
        return PastFire(instant=text, run=run_id, state="given_up", note=note)
    late = max(0.0, (instant_of(record.times.created) - instant).total_seconds())
    return PastFire(instant=text, run=run_id, state=record.state, lateness_s=round(late, 3))


def _before(plan: ActiveSchedule, now: datetime) -> Iterator[datetime]:
    """Yield the instants from now back to the activation."""
    schedule, timetable = plan.schedule, plan.timetable
    if timetable is None:
        return
    at: datetime | None = now + _INSTANT
    if schedule.not_after is not None:
        at = min(now, schedule.not_after) + _INSTANT
    while at is not None:
        at = timetable.previous_before(at)
        if at is None or at <= plan.activated:
            return
        if schedule.not_before is not None and at < schedule.not_before:
            return
        yield at


def _without_run(state: LaneState | None, instant: datetime) -> tuple[str, str]:
    """Say why an instant has no run."""
    if state is None:
        return "missing", ""
    for fire in state.waiting:
        if fire.instant == instant:
            return ("retrying" if fire.retrying else "waiting"), fire.error
    for failure in reversed(state.history.failures):
        if failure.instant == instant:
            return "given_up", f"after {failure.tries} tries: {failure.error}"
    for loss in reversed(state.history.losses):
        if loss.first <= instant <= loss.last:
            return loss.why, loss.note
    return ("due", "") if state.backlog or instant > state.considered else ("missing", "")


def waiting_of(plan: ActiveSchedule, state: LaneState, monotonic: float) -> list[WaitingFire]:
    """Give the instants that wait, oldest first."""
    return [
        WaitingFire(
            instant=instant_text(fire.instant),
            run=plan.run_id(fire.instant),
            tries=fire.tries,
            next_try_in_s=round(max(0.0, fire.next_try - monotonic), 1),
            error=fire.error,
        )
        for fire in sorted(state.waiting, key=lambda fire: fire.instant)
    ]


def open_failures(store: RunStore, history: History) -> list[Failure]:
    """Give the instants that were given up and have no run yet, as after a backfill (blocking)."""
    return [
        failure.model_copy(update={"instant": failure.instant.astimezone(UTC)})
        for failure in history.failures
        if not os.path.lexists(store.layout.run(failure.run).record)
    ]
