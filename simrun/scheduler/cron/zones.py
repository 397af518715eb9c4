"""Time zones as stretches of constant offset.

`zoneinfo` answers for one instant at a time and does not tell when a zone next changes. A search for the next fire needs that:
within a stretch, local time is UTC plus a constant, and all the arithmetic is on whole numbers. Stretches are found by asking at
instants two days apart and halving where the answers differ. No zone has ever changed its offset and changed it back within two
days (the shortest such time in the zone data is four days, Freetown in 1939; a test reads the data and watches this).

Instants are minutes since 1970-01-01T00:00Z. An offset with seconds (local mean time, up to 1972) is cut to whole minutes: wall
clocks show the minute that has begun.
"""

from __future__ import annotations

import functools
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = 1440
# Two days short of what datetime can say, so that no local time falls outside of it
FIRST: Final = (datetime(1, 1, 3, tzinfo=UTC) - EPOCH) // timedelta(minutes=1)
LAST: Final = (datetime(9999, 12, 30, tzinfo=UTC) - EPOCH) // timedelta(minutes=1)

BLOCK_BITS = 17
"""Stretches are found and kept in blocks of 2**17 minutes, 91 days: some 15 microseconds for a block that was never asked about."""
_PROBE = 2 * DAY
_TWO_DAYS = timedelta(days=2)
_MINUTE = timedelta(minutes=1)
_LAST_WALL = EPOCH + timedelta(minutes=LAST - _PROBE)  # the one after it must still be a date
# Names that zoneinfo opens though they mean the machine's own zone, or count leap seconds
_NOT_ZONES = ("right/", "posix/", "posixrules", "localtime", "Factory")


def load_zone(name: str) -> ZoneInfo:
    """Give the zone of an IANA name, e.g. `Europe/Berlin`; raise ValueError, whose text says what is wrong.

    This reads the zone's file unless Python has it already: the only place of the package that does.
    """
    if not name:
        raise ValueError("the time zone is empty")
    if name.startswith(_NOT_ZONES):
        raise ValueError(f"{name!r} is no time zone of its own")
    try:
        return ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # a directory of zones, a path, a file that is no zone: zoneinfo has another error for each
        raise ValueError(f"there is no time zone {name!r}") from None


@functools.lru_cache(maxsize=8192)
def block_stretches(zone: ZoneInfo, block: int) -> tuple[tuple[int, int, int], ...]:
    """Give the stretches (begin, end, offset in minutes) of a block in order; ends are exclusive."""
    begin, end = block << BLOCK_BITS, (block + 1) << BLOCK_BITS
    fixed = zone.utcoffset(None)
    if fixed is not None:
        return ((begin, end, fixed // _MINUTE),)
    stretches = []
    here, offset_here = begin, _offset(zone, begin)
    for probe in _suspects(zone, begin, end):
        further = min(probe + _PROBE, end)
        for change, offset in _changes(
            zone, (probe, _offset(zone, probe)), (further, _offset(zone, further))
        ):
            if change < end:
                stretches.append((here, change, offset_here))
                here, offset_here = change, offset
    return (*stretches, (here, end, offset_here))


def stretch(zone: ZoneInfo, minute: int) -> tuple[int, int, int]:
    """Give the stretch (begin, end, offset) that holds `minute`. It may be cut where the offset goes on, never where it changes."""
    for found in block_stretches(zone, minute >> BLOCK_BITS):
        if minute < found[1]:
            return found
    raise AssertionError("a block covers all of its minutes")


def changes_between(zone: ZoneInfo, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give (minute, offset before, offset after) of every change of the offset in [begin, end), in order."""
    minute = begin
    before = _offset(zone, begin - 1)
    while minute < end:
        start, minute_after, offset = stretch(zone, minute)
        if offset != before:
            yield start, before, offset
        minute, before = minute_after, offset


def _suspects(zone: ZoneInfo, begin: int, end: int) -> list[int]:
    """Give the probes in [begin, end) after which the offset may change.

    A zone answers for wall-clock times three times as fast as for instants, and where its answer stays the same it has not
    changed. Where two answers differ the change is less than a day away, so in that probe or in a neighbour of it.
    """
    number = -(-(end - begin) // _PROBE)
    earliest = max(FIRST, min(begin - _PROBE, LAST - _PROBE))
    wall = (EPOCH + timedelta(minutes=earliest)).replace(tzinfo=zone)
    last_wall = _LAST_WALL.replace(tzinfo=zone)
    before = zone.utcoffset(wall)
    suspects: set[int] = set()
    for probe in range(-1, number + 1):
        wall = min(wall + _TWO_DAYS, last_wall)
        after = zone.utcoffset(wall)
        if after != before:
            suspects.update((probe - 1, probe, probe + 1))
            before = after
    return [begin + probe * _PROBE for probe in sorted(suspects) if 0 <= probe < number]


def _changes(
    zone: ZoneInfo, low: tuple[int, int], high: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Give (minute, offset from there on) of the changes after `low` up to `high`, both (minute, offset), by halving."""
    if low[1] == high[1]:
        return
    if high[0] - low[0] == 1:
        yield high
        return
    minute = (low[0] + high[0]) // 2
    middle = (minute, _offset(zone, minute))
    yield from _changes(zone, low, middle)
    yield from _changes(zone, middle, high)


def _offset(zone: ZoneInfo, minute: int) -> int:
    instant = EPOCH + timedelta(minutes=max(FIRST, min(minute, LAST)))
    offset = instant.astimezone(zone).utcoffset()
    if offset is None:
        raise AssertionError("an aware datetime has an offset")
    return offset // _MINUTE
