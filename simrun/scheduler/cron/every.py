"""`@every`: a fixed rate, absolute time whatever the wall clocks do.

A rate alone counts from whatever instant it is asked about, as Go's library does, so a process that starts again and again never
fires. A schedule gives it an anchor, and then it is a grid that no restart moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from simrun.scheduler.cron.errors import CronError, CronFault
from simrun.scheduler.cron.zones import EPOCH

_PART = re.compile(r"(?P<whole>[0-9]*)(?P<fraction>\.[0-9]*)?(?P<unit>[a-zA-Zµμ]*)")
_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_LONGEST = (1 << 63) - 1
"""Nanoseconds that a Go duration can hold, 292 years."""
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed rate of whole seconds. With `anchor` the fires are anchor + n * rate, n of either sign, else they follow the instant asked about."""

    text: str
    seconds: int
    anchor: datetime | None = None

    never = False

    def anchored(self, instant: datetime) -> Every:
        """Give this rate as a grid through `instant`, whose fraction of a second is dropped."""
        return replace(self, anchor=instant.astimezone(UTC).replace(microsecond=0))

    def describe(self) -> str:
        """Say in words when it fires."""
        parts = []
        left = self.seconds
        for size, name in ((3600, "hour"), (60, "minute"), (1, "second")):
            number, left = divmod(left, size)
            if number:
                parts.append(f"{number} {name}s" if number > 1 else f"1 {name}")
        if len(parts) == 1 and parts[0].startswith("1 "):
            return f"every {parts[0][2:]}, counted in real time"
        return f"every {' '.join(parts)}, counted in real time"

    def next_after(self, instant: datetime) -> datetime | None:
        """Give the first fire strictly after `instant`; None beyond the year 9999."""
        second = (instant - EPOCH) // _SECOND
        return _datetime(second + self.seconds - (second - self._phase(second)) % self.seconds)

    def previous_before(self, instant: datetime) -> datetime | None:
        """Give the last fire strictly before `instant`; None before the year 1."""
        second = -((EPOCH - instant) // _SECOND)
        return _datetime(second - ((second - self._phase(second)) % self.seconds or self.seconds))

    def instants(self, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """Give the fires in (after, until], or all after `after`, in order and one at a time."""
        instant = self.next_after(after)
        while instant is not None and (until is None or instant <= until):
            yield instant
            instant = self.next_after(instant)

    def count(self, after: datetime, until: datetime) -> int:
        """Count the fires in (after, until]."""
        first, last = (after - EPOCH) // _SECOND, (until - EPOCH) // _SECOND
        phase = self._phase(first)
        return max(0, (last - phase) // self.seconds - (first - phase) // self.seconds)

    def _phase(self, second: int) -> int:
        return second if self.anchor is None else (self.anchor - EPOCH) // _SECOND


def parse_every(expression: str, duration: str, offset: int) -> Every:
    """Parse a Go duration such as `1h30m`, which begins at character `offset` of the expression; raise CronError.

    Fractions of a second are cut, and what is left is one second at least.
    """

    def refused(reason: str, at: int, remedy: str | None = None) -> CronError:
        fault = CronFault(reason, column=offset + at + 1, text=duration, remedy=remedy)
        return CronError(expression, fault)

    if not duration:
        raise refused("the duration is missing", 0, "write one, as in @every 1h30m")
    if duration[0] in "+-":
        raise refused("a duration has no sign", 0)
    total, position = 0, 0
    while position < len(duration):
        part = _PART.match(duration, position)
        if part is None or not part["whole"] + (part["fraction"] or "")[1:]:
            raise refused("here a number is expected", position, "as in @every 1h30m")
        if part["unit"] not in _UNITS:
            wrong = f"{part['unit']!r} is no unit" if part["unit"] else "the unit is missing"
            remedy = "units are h, m, s, ms, us and ns; a day is 24h"
            raise refused(wrong, part.start("unit"), remedy)
        unit = _UNITS[part["unit"]]
        digits = (part["fraction"] or ".")[1:]
        if len(part["whole"]) + len(digits) > _MOST_DIGITS:
            raise refused("the number is too long", position)
        total += int(part["whole"] or 0) * unit + int(digits or 0) * unit // 10 ** len(digits)
        position = part.end()
    if total == 0:
        raise refused("a duration of zero has no next time", 0)
    if total > _LONGEST:
        raise refused("the duration is longer than 292 years", 0)
    return Every(expression, max(1, total // _UNITS["s"]))


_MOST_DIGITS = 40


def _datetime(second: int) -> datetime | None:
    try:
        return EPOCH + timedelta(seconds=second)
    except OverflowError:
        return None
