"""The tables of docs/reference/schedules.md, row by row against the engine."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from simrun.scheduler.cron import CronError, parse

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "schedules.md").read_text()


def rows(heading):
    """Give the cells of the first table below a line of the page."""
    below = PAGE[PAGE.index(heading) :].splitlines()[1:]
    table = []
    for line in below:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            break
    return table[2:]


CHANGES = rows("## When clocks change")


@pytest.mark.parametrize(
    ("expression", "zone", "day", "fires", "why"), CHANGES, ids=[row[0] for row in CHANGES]
)
def test_the_table_of_clock_changes(expression, zone, day, fires, why):
    timetable = parse(expression.strip("`"), zone)
    around = datetime.combine(date.fromisoformat(day), time(), UTC)
    found = [
        instant
        for instant in timetable.instants(around - timedelta(days=2), around + timedelta(days=2))
        if instant.astimezone(ZoneInfo(zone)).date().isoformat() == day
    ]
    if counted := re.fullmatch(r"(\d+) fires, an hour apart", fires):
        assert len(found) == int(counted[1])
        assert {after - before for before, after in pairwise(found)} == {timedelta(hours=1)}
    else:
        expected = [] if fires == "–" else fires.split(", ")  # noqa: RUF001 - the page's dash
        assert [instant.strftime("%H:%M") for instant in found] == expected
    assert why


def test_the_table_of_clock_changes_is_long():
    assert len(CHANGES) > 10


def test_the_table_of_short_forms():
    after = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    table = rows("Short forms")
    for names, expression in table:
        for name in re.findall(r"`(@\w+)`", names):
            one, other = parse(name), parse(expression.strip("`"))
            assert one.next_after(after) == other.next_after(after)
    assert len(table) == 5


@pytest.mark.parametrize("expression", ["1,,2", ",", "*-5"])
def test_what_the_page_says_is_refused(expression):
    assert f"`{expression}`" in PAGE
    with pytest.raises(CronError):
        parse(f"{expression} * * * *")


@pytest.mark.parametrize("expression", ["@every -30s", "@every 0s", "TZ=UTC"])
def test_what_else_the_page_says_is_refused(expression):
    assert f"`{expression}`" in PAGE
    with pytest.raises(CronError):
        parse(expression)
