from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from simrun.base.ids import run_id_problem
from simrun.scheduler.cron import parse
from simrun.scheduler.execution import execution_id, scheduled_run_id


@pytest.mark.parametrize(
    ("version", "instant", "expected"),
    [
        ("v1", "2026-03-08T07:30:00Z", "f3dcd9f88c88431b7000"),
        ("v2", "2026-03-08T07:30:00Z", "fd08ea5504b90be00000"),
        ("v1", "2026-11-01T05:30:00Z", "fdaa65c33da5e9d5a000"),
        ("v1", "2026-11-01T06:30:00Z", "f0ff61125dad12141000"),
    ],
)
def test_ids_are_those_of_flyte(version, instant, expected):
    assert (
        execution_id("sim", "prod", "nightly", version, datetime.fromisoformat(instant)) == expected
    )


def test_a_scheduled_run_has_its_group_as_project():
    instant = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)
    assert scheduled_run_id("Grüppe 1", "nightly", "v1", instant) == execution_id(
        "Grüppe 1", "simrun", "nightly", "v1", instant
    )
    assert run_id_problem(scheduled_run_id("Grüppe 1", "nightly", "v1", instant)) is None


def test_an_instant_has_one_id_in_every_zone_and_to_the_second():
    instant = datetime(2026, 3, 8, 7, 30, tzinfo=UTC)
    east = datetime.fromisoformat("2026-03-08T16:30:00.9+09:00")
    assert scheduled_run_id("g", "n", "v", instant) == scheduled_run_id("g", "n", "v", east)


def test_c03_the_repeated_hour_has_two_ids():
    nightly = parse("0 1 * * *", "America/New_York")
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    one, other = islice(nightly.instants(begin), 2)
    assert other - one == timedelta(hours=1)
    assert scheduled_run_id("g", "n", "v", one) != scheduled_run_id("g", "n", "v", other)


def test_ids_of_a_decade_of_minutes_differ():
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    instants = [begin + timedelta(minutes=61 * number) for number in range(5000)]
    assert len({scheduled_run_id("g", "n", "v", instant) for instant in instants}) == 5000
