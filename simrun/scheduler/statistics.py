"""What the scheduler has done and is doing, for metrics, probes and people. Plain numbers; nobody waits for anything to read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from simrun.base.histogram import Histogram

LATENESS_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of lateness."""


@dataclass(slots=True)
class SchedulerStatistics:
    """Counters since the start of this process, unless said otherwise."""

    created: int = 0
    exists: int = 0
    """Instants that had their run already."""
    failed: int = 0
    """Instants that were given up."""
    failed_tries: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    """Instants that were not fired, by reason (history.Why)."""
    lateness: Histogram = field(default_factory=lambda: Histogram(LATENESS_BOUNDS_S))
    """Seconds from an instant to its run, of those that were not missed."""
    last_tick: float = 0.0
    """Wall time of the last tick that came to its end, in seconds since 1970; 0 before the first."""
    last_tick_monotonic: float = 0.0
    tick_s: float = 0.0
    """How long that tick took."""
    ticks: int = 0
    started: bool = False
    """Whether the active plans were read."""
    live: bool = False
    """Whether the catch-up of the start has ended and live timers run."""
    schedules: int = 0
    """Active schedules now."""
    paused: int = 0
    unfit: int = 0
    """Active schedules that fire nothing since something is wrong with them."""
    catching_up: int = 0
    retrying: int = 0
    """Instants that wait to be tried again."""
    backlog: int = 0
    """Instants that are due and have not come to their end."""
    snapshots: int = 0
    last_snapshot: float = 0.0

    def add_lost(self, why: str, count: int) -> None:
        """Count instants that were not fired."""
        self.lost[why] = self.lost.get(why, 0) + count
