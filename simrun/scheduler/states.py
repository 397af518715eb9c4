"""The scheduler as others see it: one schedule, the numbers of all, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from simrun.scheduler.firing import Fire, Firing
from simrun.scheduler.history import History
from simrun.scheduler.lanes import Lanes
from simrun.scheduler.ports import ActiveSchedule
from simrun.scheduler.statistics import SchedulerStatistics

STUCK_S: Final = 60.0
"""How long the ticker may be silent; it ticks each second."""
BUSY_S: Final = 180.0
"""How long one fire may take before it counts as hanging: longer than any call of a backend that answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneState:
    """One schedule as people see it, at one moment."""

    plan: ActiveSchedule
    next: datetime | None
    """The instant it waits for; None when nothing is to come, or nothing is fired."""
    considered: datetime
    backlog: int
    catching_up: bool
    waiting: list[Fire] = field(default_factory=list)
    """Instants that wait for another try, or for the end of an earlier run."""
    history: History


def state_of(lanes: Lanes, firing: Firing, key: str) -> LaneState | None:
    """Give one schedule as it is now; None when it is not active."""
    lane = lanes.by_key.get(key)
    if lane is None:
        return None
    return LaneState(
        plan=lane.plan,
        next=lane.next if lane.fires else None,
        considered=lane.considered,
        backlog=lane.backlog,
        catching_up=key in lanes.catching,
        waiting=list(firing.waiting.get(lane, ())),
        history=lane.history.copy(),
    )


def counted(numbers: SchedulerStatistics, lanes: Lanes, firing: Firing) -> SchedulerStatistics:
    """Give the numbers with those that are counted now."""
    there = lanes.by_key.values()
    numbers.schedules = len(there)
    numbers.paused = sum(bool(lane.plan.paused) for lane in there)
    numbers.unfit = sum(bool(lane.plan.trouble) for lane in there)
    numbers.catching_up = len(lanes.catching)
    numbers.retrying = sum(map(len, firing.waiting.values()))
    numbers.backlog = sum(lane.backlog for lane in there)
    return numbers


def trouble_of(numbers: SchedulerStatistics, firing: Firing, now: float) -> list[str]:
    """Say what keeps schedules from being fired; `now` on the monotonic clock. Empty when nothing does."""
    found = []
    late = now - (numbers.last_tick_monotonic or now)
    if late > STUCK_S:
        found.append(f"the scheduler has not ticked for {late:.0f} s")
    busy = firing.busy_since()
    if busy is not None and now - busy > BUSY_S:
        found.append(f"a fire of a schedule has not come to its end for {now - busy:.0f} s")
    return found
