"""How late the event loop is: the one figure that tells whether something blocks it.

A task sleeps a little and notes by how much it overslept. When it is a whole second late, a watchdog thread logs the stack of the loop's
thread: that is where the blocking call stands at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections import deque
from dataclasses import dataclass

from simrun.base.histogram import Histogram

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LagStatistics:
    """Seconds by which the loop was late, over the last samples."""

    p50_s: float
    p99_s: float
    max_s: float
    samples: int


class LagProbe:
    """Measures between entering and leaving. `every_s`: time between samples; `alarm_s`: lateness that is logged."""

    def __init__(self, every_s: float = 0.02, alarm_s: float = 1.0, keep: int = 5000) -> None:
        self._every, self._alarm = every_s, alarm_s
        self._samples: deque[float] = deque(maxlen=keep)
        self.lateness = Histogram()
        """Seconds by which the loop was late, of all samples."""
        self._beat = time.monotonic()
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LagProbe:
        """Start to measure."""
        self._beat = time.monotonic()
        # Ended by __aexit__, which waits for it
        self._task = asyncio.get_running_loop().create_task(self._measure(), name="loop lag")
        thread = threading.get_ident()
        threading.Thread(
            target=self._watch, args=(thread,), name="loop watchdog", daemon=True
        ).start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop."""
        self._ended.set()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def statistics(self) -> LagStatistics:
        """Give the lateness so far."""
        ordered = sorted(self._samples) or [0.0]
        return LagStatistics(
            ordered[len(ordered) // 2],
            ordered[int(len(ordered) * 0.99)],
            ordered[-1],
            len(self._samples),
        )

    async def _measure(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(self._every)
            self._beat = time.monotonic()
            late = max(0.0, self._beat - before - self._every)
            self._samples.append(late)
            self.lateness.observe(late)

    def _watch(self, thread: int) -> None:
        told = 0.0
        while not self._ended.wait(self._alarm / 2):
            late = time.monotonic() - self._beat - self._every
            if late > self._alarm and self._beat != told:
                told = self._beat
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to see another thread
                stack = "".join(traceback.format_stack(frame)) if frame else "(no stack)\n"
                log.warning("the event loop has not turned for %.1f s; it is in:\n%s", late, stack)
