"""Time as an argument, so that tests own it.

`wall()` is for what people read and records keep; every wait and every grace uses `monotonic()`, which no step of the
system clock can move.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What reads the time."""

    def wall(self) -> float:
        """Give the seconds since 1970-01-01 UTC."""
        ...

    def monotonic(self) -> float:
        """Give seconds from an arbitrary origin, which never go back."""
        ...


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    def wall(self) -> float:
        """Give the seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Give the seconds of CLOCK_MONOTONIC."""
        return time.monotonic()
