"""Which schedule comes due next: a heap, so that a tick costs what is due and not what there is."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from datetime import datetime

from simrun.scheduler.lane import Lane


class Timeline:
    """Lanes by their next instant. A lane that was put in again, or taken out, leaves an entry behind that counts for nothing."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, int, Lane]] = []
        self._order = itertools.count()

    def put(self, lane: Lane) -> None:
        """Wait for the next instant of a lane instead of what was waited for before."""
        lane.generation += 1
        if lane.next is not None and not lane.removed:
            heapq.heappush(self._heap, (lane.next, next(self._order), lane.generation, lane))

    def take(self, now: datetime) -> Lane | None:
        """Give a lane whose instant has come; None when none has."""
        while self._heap and self._heap[0][0] <= now:
            _, _, generation, lane = heapq.heappop(self._heap)
            if generation == lane.generation and not lane.removed:
                return lane
        return None

    def next(self) -> datetime | None:
        """Give the first instant that is waited for."""
        while self._heap:
            instant, _, generation, lane = self._heap[0]
            if generation == lane.generation and not lane.removed:
                return instant
            heapq.heappop(self._heap)
        return None

    def rebuild(self, lanes: Iterable[Lane]) -> None:
        """Wait for the instants of exactly these lanes."""
        self._heap.clear()
        for lane in lanes:
            lane.generation += 1
            if lane.next is not None and not lane.removed:
                self._heap.append((lane.next, next(self._order), lane.generation, lane))
        heapq.heapify(self._heap)
