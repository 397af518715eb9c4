"""One active schedule in the scheduler: what it has still to fire, and up to where everything is dealt with.

    considered   every instant up to here has been given to one of the following, or was dropped
    windows      spans of instants to be fired, gone through one at a time: a year of minutes costs no more than one
    in flight    instants whose fire was begun and has not come to its end
    mark         what a snapshot says: everything up to here needs no second look

Pure state: no clock, no waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from simrun.model.launchplan import CatchUp
from simrun.scheduler.cron import Cron, MissingTime, Timetable
from simrun.scheduler.history import History, Why
from simrun.scheduler.launch_plans import next_in_window
from simrun.scheduler.plan import Dropped, Policy, due
from simrun.scheduler.plan import considered as considered_of
from simrun.scheduler.ports import ActiveSchedule
from simrun.scheduler.snapshots import LaneRecord

_INSTANT: Final = timedelta.resolution


@dataclass(slots=True)
class Window:
    """The instants in (after, until]; `after` moves on as they are taken. `left` is how many there are."""

    after: datetime
    until: datetime
    left: int


class Lane:
    """See above. `generation` tells entries of timers from those of an earlier state."""

    __slots__ = (
        "considered",
        "dirty",
        "generation",
        "held",
        "history",
        "in_flight",
        "missed_until",
        "next",
        "plan",
        "queued",
        "removed",
        "retrying",
        "windows",
    )

    def __init__(
        self,
        plan: ActiveSchedule,
        history: History,
        considered: datetime,
        dirty: set[str] | None = None,
    ) -> None:
        self.plan = plan
        self.dirty = set() if dirty is None else dirty
        """Keys of lanes whose record is another than it was; this adds its own."""
        self.history = history
        self.considered = considered
        self.missed_until = considered
        """Instants up to here were missed, those after it are on time."""
        self.windows: deque[Window] = deque()
        self.in_flight: set[datetime] = set()
        self.retrying = 0
        self.next: datetime | None = None
        self.generation = 0
        self.queued = False
        """In the queue of the workers, or served by one."""
        self.held = False
        """An instant waits for the end of an earlier run, and those behind it do too."""
        self.removed = False
        self.touch()

    def touch(self) -> None:
        """Note that the record has changed."""
        self.dirty.add(self.plan.key)

    @property
    def timetable(self) -> Timetable:
        """The timetable; only of a schedule that has one."""
        if self.plan.timetable is None:
            raise AssertionError(f"{self.plan.key} has no timetable")
        return self.plan.timetable

    @property
    def fires(self) -> bool:
        """Whether it fires anything now."""
        return not (self.removed or self.plan.paused or self.plan.trouble)

    @property
    def backlog(self) -> int:
        """How many instants are due and have not come to their end."""
        return sum(window.left for window in self.windows) + len(self.in_flight)

    @property
    def mark(self) -> datetime:
        """The instant up to which nothing needs a second look after a crash."""
        mark = self.considered
        if self.windows:
            mark = min(mark, self.windows[0].after)
        if self.in_flight:
            mark = min(mark, min(self.in_flight) - _INSTANT)
        return mark

    # --- what becomes due ----------------------------------------------------------------------------------------------

    def come_due(self, now: datetime, on_time: timedelta) -> Dropped | None:
        """Take up everything up to now as the policy has it; what it drops is noted. Sets `next`.

        Instants at most `on_time` old are not missed, but due.
        """
        schedule = self.plan.schedule
        first = self.next if self.next is not None else self._next_after_considered(now)
        if first is None or first > now:
            self.considered, self.next = now, first
            return None
        following = next_in_window(self.timetable, schedule, first)
        only = following is None or following > now
        if only and (schedule.catch_up is not CatchUp.NONE or now - first <= on_time):
            self._add(Window(first - _INSTANT, first, 1))
            dropped = None
        else:
            dropped = self._several(now, on_time)
            following = next_in_window(self.timetable, schedule, now)
        self.considered, self.next = now, following
        self.touch()
        return dropped

    def wait(self, now: datetime) -> None:
        """Set `next` for the first time, or anew after the plan has changed."""
        self.next = self._next_after_considered(now)

    def _next_after_considered(self, now: datetime) -> datetime | None:
        begin = considered_of(self.considered, self.plan.since, now)
        return next_in_window(self.timetable, self.plan.schedule, begin)

    def _several(self, now: datetime, on_time: timedelta) -> Dropped | None:
        schedule = self.plan.schedule
        until = now if schedule.not_after is None else min(now, schedule.not_after)
        since = self.plan.since
        if schedule.not_before is not None:
            since = max(since, schedule.not_before - _INSTANT)
        found = due(
            self.timetable,
            mark=self.considered,
            since=since,
            now=until,
            policy=Policy(
                catch_up=schedule.catch_up,
                cap=schedule.catch_up_cap,
                on_time=max(timedelta(0), on_time - (now - until)),
            ),
        )
        if found.count:
            self._add(Window(found.after, found.until, found.count))
        return found.dropped

    def _add(self, window: Window) -> None:
        """Put a window behind the others; one window may grow by another, so what waits for long stays small."""
        last = self.windows[-1] if self.windows else None
        if last is not None and self.timetable.next_after(last.until) == self.timetable.next_after(
            window.after
        ):
            last.until, last.left = window.until, last.left + window.left
        else:
            self.windows.append(window)

    def skipped_by_clocks(self, now: datetime) -> Iterator[MissingTime]:
        """Give the times on the wall that would have been instants up to now, had clocks not gone forward over them."""
        if isinstance(self.timetable, Cron) and self.considered < now:
            yield from self.timetable.missing_times(self.considered, now)

    def step_back(self, now: datetime) -> None:
        """Forget what lies after now, because the clock was ahead: it comes again, and what has its run by then stays as it is."""
        self.considered = min(self.considered, now)
        while self.windows and self.windows[-1].after >= now:
            self.windows.pop()
        if self.windows and self.windows[-1].until > now:
            last = self.windows[-1]
            last.until, last.left = now, self.timetable.count(last.after, now)
        self.next = self._next_after_considered(now)
        self.touch()

    # --- what is fired -------------------------------------------------------------------------------------------------

    def take(self) -> datetime | None:
        """Give the next instant to fire, in flight from now on; None when there is none."""
        while self.windows:
            window = self.windows[0]
            instant = self.timetable.next_after(window.after)
            if instant is None or instant > window.until:
                self.windows.popleft()
                continue
            window.after = instant
            window.left = max(0, window.left - 1)
            if not window.left:
                self.windows.popleft()
            self.in_flight.add(instant)
            self.touch()
            return instant
        return None

    def landed(self, instant: datetime) -> None:
        """Note that the fire of an instant has come to its end, whichever."""
        self.in_flight.discard(instant)
        self.touch()

    def turn_unfit(self, plan: ActiveSchedule, trouble: str) -> int:
        """Fire nothing more until the plan is activated again; how many instants that gives up."""
        if self.plan.same_activation(plan):
            self.plan = replace(self.plan, trouble=trouble)
        return self.drop_windows(Why.UNFIT, trouble)

    def drop_windows(self, why: Why, note: str = "") -> int:
        """Give up what was not begun, and note it; how many instants that is."""
        count = 0
        for window in self.windows:
            first = self.timetable.next_after(window.after)
            last = self.timetable.previous_before(window.until + _INSTANT)
            if first is not None and last is not None and first <= last:
                number = self.timetable.count(window.after, last)
                self.history.lost(why, number, first, last, note)
                count += number
        self.windows.clear()
        self.touch()
        return count

    # --- what is kept --------------------------------------------------------------------------------------------------

    def record(self) -> str:
        """Give the record of this lane for a snapshot, as JSON."""
        record = LaneRecord(
            version=self.plan.version,
            activated=self.plan.activated,
            considered=self.mark if self.windows or self.in_flight else None,
            counts=self.history.totals,
            last=self.history.last,
            failures=list(self.history.failures),
            losses=list(self.history.losses),
        )
        return record.model_dump_json(exclude_defaults=True, by_alias=True)
