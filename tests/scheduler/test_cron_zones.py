"""Stretches of constant offset, against the zone files themselves."""

from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from simrun.scheduler.cron.zones import (
    EPOCH,
    FIRST,
    LAST,
    block_stretches,
    changes_between,
    stretch,
)


def changes_in(data):
    """Read (second, offset before, offset after), in seconds, of every change of the offset from the 64-bit part of a zone file."""

    def counts(at):
        return struct.unpack(">6l", data[at + 20 : at + 44])

    utc, standard, leaps, times, types, letters = counts(0)
    at = 44 + times * 5 + types * 6 + letters + leaps * 8 + standard + utc
    times, types = counts(at)[3:5]
    at += 44
    seconds = struct.unpack(f">{times}q", data[at : at + 8 * times])
    kinds = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(types)]
    before, changes = offsets[0], []
    for second, kind in zip(seconds, kinds, strict=True):
        if offsets[kind] != before:
            changes.append((second, before, offsets[kind]))
            before = offsets[kind]
    return changes


def zone_file(name):
    """Give the very file that zoneinfo reads: the system's, else that of the package tzdata."""
    for directory in zoneinfo.TZPATH:
        path = Path(directory, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def test_no_zone_changes_its_offset_so_quickly_that_it_would_be_overlooked():
    # stretches are found by probes two days apart, and a wall clock tells a change up to a day early or late
    names = zoneinfo.available_timezones()
    assert len(names) > 400
    shortest = min(
        later - sooner
        for name in names
        for (sooner, _, _), (later, _, _) in pairwise(changes_in(zone_file(name)))
    )
    assert shortest > timedelta(days=3).total_seconds()


@pytest.mark.parametrize(
    "name",
    [
        "Africa/Casablanca",
        "Africa/Freetown",
        "Africa/Monrovia",
        "America/Boa_Vista",
        "America/Juneau",
        "America/New_York",
        "Asia/Gaza",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Europe/Amsterdam",
        "Europe/Dublin",
        "Pacific/Apia",
    ],
)
def test_every_change_of_the_zone_file_is_found(name):
    changes = changes_in(zone_file(name))
    first = (datetime(1850, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(minutes=1)
    # files list the changes up to 2037, or only up to where a rule goes on for ever
    last = changes[-1][0] // 60 + 2
    # a change within a minute holds from the next whole one; offsets are cut to minutes
    expected = [
        (-(-second // 60), before // 60, after // 60)
        for second, before, after in changes
        if first * 60 < second and before // 60 != after // 60
    ]
    assert expected
    assert list(changes_between(ZoneInfo(name), first, last)) == expected


@pytest.mark.parametrize("name", ["UTC", "Asia/Kolkata", "Europe/Berlin", "Etc/GMT+12"])
def test_blocks_cover_all_minutes_without_holes(name):
    zone = ZoneInfo(name)
    for block in (-500, -1, 0, 225, 226):
        stretches = block_stretches(zone, block)
        assert stretches[0][0] == block << 17
        assert stretches[-1][1] == (block + 1) << 17
        assert all(one[1] == other[0] and one[0] < one[1] for one, other in pairwise(stretches))


@pytest.mark.parametrize("minute", [FIRST - 5000, FIRST, 0, LAST, LAST + 5000])
def test_beyond_the_calendar_the_offset_stays_what_it_was(minute):
    begin, end, offset = stretch(ZoneInfo("Asia/Tokyo"), minute)
    assert begin <= minute < end
    assert offset in (9 * 60, 9 * 60 + 18)
