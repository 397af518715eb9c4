"""A histogram that costs next to nothing to feed: counts by upper bound, and a sum. Whoever exports metrics reads it."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left
from collections.abc import Sequence

MOMENTS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds, in seconds, for what somebody waits for."""


class Histogram:
    """Counts of observations up to each bound. Fed from any thread."""

    __slots__ = ("_counts", "_lock", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float] = MOMENTS_S) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count a value."""
        place = bisect_left(self.bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    def snapshot(self) -> tuple[list[int], float]:
        """Give how many values were at most each bound, and after them how many there were at all; and their sum."""
        with self._lock:
            return list(itertools.accumulate(self._counts)), self._sum
