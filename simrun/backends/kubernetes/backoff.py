"""How long a watch waits for what, and between failures."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a reflector waits for what, in seconds."""

    silence_s: float = 66.0
    """Without a byte for as long, the connection counts as dead. Bookmarks come every 60 s."""
    server_s: tuple[float, float] = (300.0, 600.0)
    """The server is asked to end a watch after a time drawn from here, so that not all watches of a fleet end at once."""
    short_s: float = 1.0
    """A watch that ended sooner and told nothing counts as failed, or a server that ends all at once would be asked without a pause."""
    first_s: float = 0.8
    longest_s: float = 30.0
    quiet_s: float = 120.0
    """Failures that lie further back are forgotten."""
    audit_s: tuple[float, float] = (1440.0, 2160.0)
    """A list is made at the first clean end of a watch after a time drawn from here."""
    tries: int = 5
    """Watches from one version that may fail in a row; then it is listed."""
    page: int = 500


@dataclass(slots=True)
class Backoff:
    """Waits between failures: none after the first, then doubling, drawn from [d, 2d) so that clients part."""

    timing: Timing
    random: random.Random = field(default_factory=random.Random)
    _failures: int = 0
    _last: float = -1e9

    def next(self, now: float) -> float:
        """Note a failure at the monotonic time `now` and give the seconds to wait."""
        if now - self._last > self.timing.quiet_s:
            self._failures = 0
        self._last = now
        self._failures += 1
        if self._failures == 1:
            return 0.0
        # The exponent is capped: 2.0 ** 2000 overflows after a day without a server
        delay = self.timing.first_s * 2.0 ** min(self._failures - 2, 30)
        return min(delay * self.random.uniform(1, 2), self.timing.longest_s)
