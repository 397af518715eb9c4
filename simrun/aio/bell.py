"""One ringer, many who wait: whoever is woken looks at the present state, so nobody needs a queue of what he missed.

A queue per reader must be bounded, and then drop and tell; here there is nothing to drop. The price is that readers compare: a wait may
end without news. Rings in quick succession are drawn together, so that 500 readers are not woken 200 times a second each.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BellStatistics:
    """How many wait now, and how often they were woken."""

    waiting: int
    rings: int


class Bell:
    """Belongs to one event loop.

    every_s: rings are at least so many seconds apart; the first after a pause comes at once. beat_s: who waits is woken after so long at
    the latest, rung or not, by one timer for all: then a reader tells its peer that it lives.
    """

    def __init__(self, *, every_s: float = 0.0, beat_s: float = 10.0) -> None:
        self.every_s, self.beat_s = every_s, beat_s
        self._waiting: set[asyncio.Future[None]] = set()
        self._last = float("-inf")
        self._rings = 0
        self._later: asyncio.TimerHandle | None = None
        self._beat: asyncio.TimerHandle | None = None

    @property
    def statistics(self) -> BellStatistics:
        """What the bell is doing now."""
        return BellStatistics(waiting=len(self._waiting), rings=self._rings)

    def ring(self) -> None:
        """Wake all who wait, now or when `every_s` has passed since the last time. Never waits."""
        if self._later is not None or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._last + self.every_s - loop.time()
        if wait_s <= 0:
            self._ring()
        else:
            self._later = loop.call_later(wait_s, self._ring)

    async def wait(self) -> None:
        """Wait for a ring or a beat. What is compared before and what is rung for meet only without an await between them."""
        loop = asyncio.get_running_loop()
        if self._beat is None:
            self._beat = loop.call_later(self.beat_s, self._ring)
        turn = loop.create_future()
        self._waiting.add(turn)
        try:
            await turn
        finally:
            self._waiting.discard(turn)
            if not self._waiting:
                self._silence()

    def _ring(self) -> None:
        self._last = asyncio.get_running_loop().time()
        self._rings += 1
        self._silence()
        woken, self._waiting = self._waiting, set()
        for turn in woken:
            if not turn.done():
                turn.set_result(None)

    def _silence(self) -> None:
        """Drop the timers: nobody waits, or all are woken."""
        for timer in (self._later, self._beat):
            if timer is not None:
                timer.cancel()
        self._later = self._beat = None
