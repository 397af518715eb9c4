"""How many runs schedules may begin in a second: after a long outage a cluster must not meet thousands at once."""

from __future__ import annotations

import asyncio
import math

from simrun.base.clock import Clock


class Limiter:
    """A bucket that fills with `rate` tokens a second up to `burst`; a fire takes one. An infinite rate limits nothing."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        if rate <= 0 or burst < 1:
            raise ValueError(
                f"the rate must be above 0 and the burst at least 1, not {rate}, {burst}"
            )
        self._rate, self._burst, self._clock = rate, burst, clock
        self._tokens = float(burst)
        self._filled = clock.monotonic()

    async def take(self) -> None:
        """Take a token, waiting for it when there is none; who asks first has it first."""
        if math.isinf(self._rate):
            return
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)
