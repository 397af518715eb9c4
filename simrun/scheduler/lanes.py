"""All lanes of a scheduler: made, changed and removed as plans are, and taken up when they come due.

Pure state like a lane itself, but for the log: times come as arguments, and what is to be fired goes to `enqueue`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from simrun.model.launchplan import instant_text
from simrun.scheduler.history import History, Why
from simrun.scheduler.lane import Lane
from simrun.scheduler.plan import Dropped
from simrun.scheduler.plan import considered as considered_of
from simrun.scheduler.ports import ActiveSchedule
from simrun.scheduler.snapshots import LaneRecord, Snapshot, record_of
from simrun.scheduler.statistics import SchedulerStatistics
from simrun.scheduler.timeline import Timeline

log = logging.getLogger(__name__)

ON_TIME: Final = timedelta(seconds=60)
"""An instant that a tick finds this late is due and not missed: one step of the finest schedule."""
_AT_ONCE: Final = timedelta(0)


class Lanes:
    """See above. `catching` are the keys of those whose catch-up of the start goes on."""

    def __init__(self, enqueue: Callable[[Lane], None], statistics: SchedulerStatistics) -> None:
        self._enqueue, self._statistics = enqueue, statistics
        self._timeline = Timeline()
        self._live = False
        self.by_key: dict[str, Lane] = {}
        self.histories: dict[str, History] = {}
        """Of plans that are active, or were."""
        self.catching: set[str] = set()
        self._dirty: set[str] = set()
        self.records: dict[str, str] = {}
        """The records of all schedules as JSON, as of the last `render`."""
        self.unsaved = False
        """Whether they are other than those of the last snapshot; where there are no schedules there is nothing to write."""

    # --- the start -------------------------------------------------------------------------------------------------------

    def remember(self, snapshot: Snapshot) -> None:
        """Take over what a snapshot says of the past."""
        self.histories = {key: record.history for key, record in snapshot.schedules.items()}
        self._dirty.update(self.histories)

    def catch_up(
        self,
        plan: ActiveSchedule,
        boot: datetime,
        *,
        snapshot: Snapshot,
        progress: LaneRecord | None,
    ) -> None:
        """Make the lane of a plan, with what it missed up to the start."""
        kept = snapshot.schedules.get(plan.key)
        mark = kept.mark_for(plan.version, plan.activated, snapshot.at) if kept else None
        if progress is not None:
            farther = progress.mark_for(plan.version, plan.activated, boot)
            # One that lies behind the snapshot is of an earlier catch-up
            if farther is not None and (mark is None or farther > mark):
                mark = farther
                self.histories[plan.key] = progress.history
        lane = self._make(plan, considered_of(mark, plan.since, boot))
        lane.missed_until = boot
        if plan.timetable is None:
            log.error("schedule %s fires nothing: %s", plan.key, plan.trouble)
            return
        self._come_due(lane, boot, _AT_ONCE)
        if lane.windows:
            self.catching.add(plan.key)
            self._enqueue(lane)

    def enter_live(self) -> None:
        """Wait for the next instants of all lanes from now on."""
        self._live = True
        self._timeline.rebuild(self.by_key.values())

    # --- time ------------------------------------------------------------------------------------------------------------

    def next(self) -> datetime | None:
        """Give the first instant that is waited for."""
        return self._timeline.next()

    def tick(self, now: datetime, on_time: timedelta = ON_TIME) -> Iterator[None]:
        """Take up what has become due, a lane at each step."""
        while (lane := self._timeline.take(now)) is not None:
            self._come_due(lane, now, on_time)
            self._timeline.put(lane)
            self._enqueue(lane)
            yield

    def step_back(self, now: datetime) -> Iterator[None]:
        """Take everything after now for not yet considered, a lane at each step: the clock was ahead, and has been set."""
        for lane in list(self.by_key.values()):
            if lane.plan.timetable is not None:
                lane.step_back(now)
                yield
        self._timeline.rebuild(self.by_key.values())

    def _come_due(self, lane: Lane, now: datetime, on_time: timedelta) -> None:
        missing = next(iter(lane.skipped_by_clocks(now)), None)
        dropped = lane.come_due(now, on_time)
        if missing is not None and lane.fires:
            text = "schedule %s: clocks went forward over %s, which fires nothing"
            log.warning(text, lane.plan.key, missing.local.isoformat(timespec="minutes"))
        if dropped is not None:
            self._note_dropped(lane, dropped)
        if lane.windows and not lane.fires:
            self._drop(lane)

    def _note_dropped(self, lane: Lane, dropped: Dropped) -> None:
        note = f"catch_up: {lane.plan.schedule.catch_up}"
        lane.history.lost(Why.POLICY, dropped.count, dropped.first, dropped.last, note)
        self._statistics.add_lost(Why.POLICY, dropped.count)
        log.warning(
            "schedule %s: %d missed instants from %s to %s are not fired (%s); a backfill can",
            lane.plan.key,
            dropped.count,
            instant_text(dropped.first),
            instant_text(dropped.last),
            note,
        )

    def _drop(self, lane: Lane) -> None:
        """Give up what a lane has not begun and may not fire now."""
        why = Why.PAUSED if lane.plan.paused else Why.UNFIT
        count = lane.drop_windows(why, lane.plan.paused or lane.plan.trouble)
        self._statistics.add_lost(why, count)

    # --- plans that change -------------------------------------------------------------------------------------------------

    def apply(self, key: str, plan: ActiveSchedule | None, now: datetime) -> None:
        """Take over what is active now of one plan."""
        lane = self.by_key.get(key)
        if plan is None:
            self._remove(key)
        elif lane is None or not lane.plan.same_activation(plan):
            self._remove(key)
            self._wait(self._make(plan, considered_of(None, plan.since, now)), now)
        elif lane.plan != plan:
            self._change(lane, plan, now)

    def _make(self, plan: ActiveSchedule, considered: datetime) -> Lane:
        history = self.histories.setdefault(plan.key, History())
        lane = self.by_key[plan.key] = Lane(plan, history, considered, self._dirty)
        return lane

    def _change(self, lane: Lane, plan: ActiveSchedule, now: datetime) -> None:
        """Take over a pause, its end, or trouble and its end. What fell due meanwhile is noted, not fired."""
        before = lane.plan
        if not lane.fires and plan.timetable is not None:
            # It may have had no timetable, so by what is known now
            lane.plan = replace(
                plan, since=before.since, paused=before.paused, trouble=before.trouble
            )
            lane.next = None
            self._come_due(lane, now, _AT_ONCE)
        lane.plan = plan
        lane.considered = max(lane.considered, considered_of(None, plan.since, now))
        if lane.windows and not lane.fires:
            self._drop(lane)
            self.catching.discard(plan.key)
        lane.touch()
        self._wait(lane, now)

    def _wait(self, lane: Lane, now: datetime) -> None:
        if lane.plan.timetable is not None:
            lane.wait(now)
            if self._live:
                self._timeline.put(lane)

    def _remove(self, key: str) -> None:
        """Fire nothing more that was not begun; what was begun goes on."""
        lane = self.by_key.pop(key, None)
        if lane is not None:
            lane.removed = True
            lane.windows.clear()
            lane.touch()
        self.catching.discard(key)

    def forget(self, key: str) -> None:
        """Forget what became of the instants of a plan that was deleted."""
        if key not in self.by_key:
            self.histories.pop(key, None)
            self._dirty.add(key)

    # --- what is kept ----------------------------------------------------------------------------------------------------

    def render(self) -> Iterator[None]:
        """Bring `records` up to date, a schedule at each step."""
        changed = list(self._dirty)
        self._dirty.clear()  # emptied, not replaced: every lane has it
        for key in changed:
            lane, history = self.by_key.get(key), self.histories.get(key)
            if lane is not None:
                self.records[key] = lane.record()
            elif history is not None and not history.empty:
                self.records[key] = record_of(history)
            else:
                self.records.pop(key, None)
            self.unsaved = True
            yield
