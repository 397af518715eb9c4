"""Runs for instants of the past, because a person asks for them: what was dropped, skipped, given up, or lies before the activation.

The ids are those that the schedule would have given, so what has its run stays as it is and a backfill may be asked for twice. It is done a page at a
time by whoever asks: nothing is kept of it, so nothing is lost of it either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pydantic import BaseModel, Field

from simrun.base.errors import InvalidInput, SimrunError
from simrun.model.launchplan import Instant, Schedule, instant_text
from simrun.scheduler.cron import Timetable
from simrun.scheduler.plan import between
from simrun.scheduler.ports import ActiveSchedule, Outcome, Runs

PAGE: Final = 100
SCANNED_AT_ONCE: Final = 2_000
"""Instants that one call looks at, most of which may have their runs already."""
_INSTANT: Final = timedelta.resolution

State = Literal["exists", "missing", "created", "failed"]


class BackfillRequest(BaseModel):
    """Which instants: those in [first, last], both ends included; without `last` those up to now.

    only_missing: leave out those that have their run. dry_run: say what would be done. limit: instants that are told in this answer.
    """

    model_config = {"extra": "forbid"}

    first: Instant
    last: Instant | None = None
    only_missing: bool = False
    dry_run: bool = False
    limit: int = Field(default=PAGE, ge=1, le=PAGE)


class BackfillItem(BaseModel):
    """One instant: it has its run (exists), has none (missing, in a dry run), was given one (created), or could not be (failed)."""

    instant: str
    run: str
    state: State
    error: str = ""


class BackfillPage(BaseModel):
    """What was done, and where to go on: `next` is the `first` of the next call, None when all of the span was gone through."""

    items: list[BackfillItem]
    next: str | None
    left: int
    """Instants of the span that were not looked at yet."""


@dataclass(frozen=True, slots=True)
class _Span:
    timetable: Timetable
    first: datetime
    last: datetime


async def backfill(
    runs: Runs, plan: ActiveSchedule, wanted: BackfillRequest, now: datetime
) -> BackfillPage:
    """Go through a span of instants, a page of it. Raises InvalidInput."""
    span = _span(plan, wanted, now)
    items: list[BackfillItem] = []
    instants = between(span.timetable, span.first, span.last)
    for scanned, instant in enumerate(instants):
        if len(items) >= wanted.limit or scanned >= SCANNED_AT_ONCE:
            left = span.timetable.count(instant - _INSTANT, span.last)
            return BackfillPage(items=items, next=instant_text(instant), left=left)
        item = await _one(runs, plan, instant, dry_run=wanted.dry_run)
        if item.state != "exists" or not wanted.only_missing:
            items.append(item)
    return BackfillPage(items=items, next=None, left=0)


def _span(plan: ActiveSchedule, wanted: BackfillRequest, now: datetime) -> _Span:
    if plan.timetable is None:
        raise InvalidInput.one(
            "schedule", plan.trouble or "fires nothing", remedy="activate a good one"
        )
    last = now if wanted.last is None else wanted.last
    if wanted.first > last:
        text = "lies after `last`" if wanted.last else "lies in the future"
        raise InvalidInput.one("first", text, value=instant_text(wanted.first))
    if last > now:
        raise InvalidInput.one(
            "last",
            "lies in the future",
            value=instant_text(last),
            remedy="what is to come is the schedule's own",
        )
    first, last = within(plan.schedule, wanted.first, last)
    return _Span(plan.timetable, first, last)


def within(schedule: Schedule, first: datetime, last: datetime) -> tuple[datetime, datetime]:
    """Give the part of a span in which a schedule is valid; it may be empty, with the first behind the last."""
    if schedule.not_before is not None:
        first = max(first, schedule.not_before)
    if schedule.not_after is not None:
        last = min(last, schedule.not_after)
    return first, last


async def _one(
    runs: Runs, plan: ActiveSchedule, instant: datetime, *, dry_run: bool
) -> BackfillItem:
    state: State
    error = ""
    try:
        if dry_run:
            state = "exists" if await runs.exists(plan, instant) else "missing"
        else:
            made = await runs.fire(plan, instant)
            state = "created" if made is Outcome.CREATED else "exists"
    except (SimrunError, OSError) as problem:
        state, error = "failed", str(problem)
    return BackfillItem(
        instant=instant_text(instant), run=plan.run_id(instant), state=state, error=error
    )
