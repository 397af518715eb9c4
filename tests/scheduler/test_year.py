"""A simulated year: the set of runs is that of a walk through all quarters of an hour. `python -m benchmarks year` takes the year in full size."""

from __future__ import annotations

import pytest

from tests.scheduler.year import Shape, live


@pytest.mark.parametrize("seed", [1, 2])
async def test_through_crashes_and_clocks_that_are_set_each_instant_has_its_run_once(
    seed: int,
) -> None:
    result = await live(seed, Shape(schedules=12, zones=6, crashes=40, steps=16))
    assert sorted(result.expected - result.made)[:5] == []
    assert sorted(result.made - result.expected)[:5] == []
    assert result.runs == len(result.expected) > 2000
    assert result.starts > 20
    assert result.tries > result.runs  # some were asked for again, and were there
