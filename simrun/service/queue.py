"""The queue of runs to reconcile.

The rules of client-go's and controller-runtime's queues: a key is never handed out twice at once; a key that is added while it is
processed is handed out once more afterwards; many adds are one pass; of two timers of one key the earlier wins; a failed key comes
back after a delay of its own that doubles. Live events overtake what a resync or a cold start puts in at low priority.

Synchronous but for `get`, so that each change is atomic for everybody on the loop. Timers are alarm clocks, never state: whoever set one
recomputes it from the record.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import IntEnum

from simrun.base.clock import Clock, SystemClock
from simrun.base.histogram import Histogram


class Priority(IntEnum):
    """What is handed out first."""

    LIVE = 0
    """An event, or a person who waits."""
    RESYNC = 1
    """Looked at to be sure."""


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """A snapshot of the queue."""

    ready: int
    delayed: int
    processing: int
    adds: int
    retries: int
    oldest_s: float
    """How long the oldest ready key has waited."""


class WorkQueue:
    """Keys (run ids) that are to be processed."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        first_backoff_s: float = 0.1,
        longest_backoff_s: float = 60.0,
    ) -> None:
        self._clock = clock or SystemClock()
        self._first, self._longest = first_backoff_s, longest_backoff_s
        self._ready: tuple[OrderedDict[str, None], OrderedDict[str, None]] = (
            OrderedDict(),
            OrderedDict(),
        )
        self._dirty: dict[str, Priority] = {}
        self._since: dict[str, float] = {}
        self._processing: set[str] = set()
        self._timers: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._failures: dict[str, int] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._closed = False
        self._adds = self._retries = 0
        self.waits = Histogram()
        """Seconds that keys waited from the moment they could be handed out."""

    def add(self, key: str, priority: Priority = Priority.LIVE) -> None:
        """Ask for a pass over `key` that starts after now; without effect once the queue is closed."""
        if self._closed:
            return
        self._adds += 1
        known = self._dirty.get(key)
        if known is not None and known <= priority:
            return
        self._dirty[key] = priority
        self._since.setdefault(key, self._clock.monotonic())
        if key not in self._processing:
            if known is not None:
                del self._ready[known][key]
            self._line_up(key, priority)

    def add_after(self, key: str, delay_s: float) -> None:
        """Ask for a pass after `delay_s` seconds; an earlier wish for the key stands."""
        if delay_s <= 0:
            self.add(key)
            return
        if self._closed:
            return
        at = self._clock.monotonic() + delay_s
        if at < self._timers.get(key, float("inf")):
            self._timers[key] = at
            heapq.heappush(self._heap, (at, next(self._order), key))
            self._set_alarm()

    def retry(self, key: str) -> float:
        """Ask for a pass after the backoff of a key that failed; the delay in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries += 1
        delay = min(self._longest, self._first * 2.0 ** min(failures, 30))
        self.add_after(key, delay)
        return delay

    def forget(self, key: str) -> None:
        """Let the next failure of a key start from the shortest delay again."""
        self._failures.pop(key, None)

    async def get(self) -> str | None:
        """Wait for a key and take it; None once the queue is closed and empty of ready keys."""
        while True:
            self._ring()
            if (key := self._take()) is not None:
                return key
            if self._closed:
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._set_alarm()
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self._wake_one()  # the key that this one was woken for is another's now
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise

    def done(self, key: str) -> None:
        """Say that the pass over a key has ended; if it was asked for meanwhile it is handed out again."""
        self._processing.discard(key)
        if (priority := self._dirty.get(key)) is not None:
            self._line_up(key, priority)

    def close(self) -> None:
        """Hand out what is ready, then None; nothing is added any more, and timers ring no more."""
        self._closed = True
        self._timers.clear()
        self._heap.clear()
        self._set_alarm()
        while self._waiters:
            self._wake_one()

    def statistics(self) -> QueueStatistics:
        """Give a snapshot."""
        now = self._clock.monotonic()
        waiting = [at for key, at in self._since.items() if key not in self._processing]
        return QueueStatistics(
            ready=sum(key not in self._processing for key in self._dirty),
            delayed=len(self._timers),
            processing=len(self._processing),
            adds=self._adds,
            retries=self._retries,
            oldest_s=now - min(waiting) if waiting else 0.0,
        )

    def _line_up(self, key: str, priority: Priority) -> None:
        self._ready[priority][key] = None
        self._wake_one()

    def _wake_one(self) -> None:
        """Wake who has waited longest: one key is one getter's, and waking all would hold up that one."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # else cancelled
                waiter.set_result(None)
                return

    def _take(self) -> str | None:
        for line in self._ready:
            if line:
                key, _ = line.popitem(last=False)
                del self._dirty[key]
                since = self._since.pop(key, None)
                if since is not None:
                    self.waits.observe(self._clock.monotonic() - since)
                self._processing.add(key)
                return key
        return None

    def _ring(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._timers.get(key) == at:  # else superseded by an earlier one
                del self._timers[key]
                self.add(key)

    def _set_alarm(self) -> None:
        """Ring when the earliest timer is due, if somebody waits then; who comes later looks at the timers first."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap and self._waiters:
            wait = max(0.0, self._heap[0][0] - self._clock.monotonic())
            self._alarm = self._waiters[0].get_loop().call_later(wait, self._rings)

    def _rings(self) -> None:
        self._alarm = None
        if self._waiters:
            self._ring()
        self._set_alarm()
