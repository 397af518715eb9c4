"""Pages of the index: for any filter they are what a look at every row finds, newest first, each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simrun.service.runindex import RunIndex
from simrun.service.runquery import WALKS, Position, RunFilter, page_query
from simrun.service.runrow import RunRow

GROUPS = ("astro", "bio", "chem")
STATES = ("running", "succeeded", "failed", "cancelled")
NAMES = ("nightly", "sweep")


def row(number: int, created: float, **values: Any) -> RunRow:
    given_values = {"group": "astro", "name": "nightly", "state": "running"} | values
    return RunRow(
        id=f"r{number:03}",
        owner="",
        live=given_values["state"] == "running",
        created=created,
        ended=None,
        revision=1,
        **given_values,
    )


ROWS = [
    row(
        number,
        1000.0 + (number * 7 % 50) // 2,  # several of one time
        group=GROUPS[number % 3],
        name=NAMES[number % 2],
        state=STATES[number // 3 % 4],
        labels={"env": "prod" if number % 5 else "dev", "part": str(number % 4)},
    )
    for number in range(60)
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunIndex]:
    made = RunIndex(tmp_path_factory.mktemp("index") / "runs.sqlite")
    made.put(ROWS)
    yield made
    made.close()


def fits(item: RunRow, wanted: RunFilter) -> bool:
    return (
        (not wanted.states or item.state in wanted.states)
        and (wanted.group is None or item.group == wanted.group)
        and (wanted.groups is None or item.group in wanted.groups)
        and (wanted.name is None or item.name == wanted.name)
        and all(item.labels.get(key) == value for key, value in wanted.labels.items())
        and (wanted.created_after is None or item.created >= wanted.created_after)
        and (wanted.created_before is None or item.created < wanted.created_before)
        and (wanted.prefix is None or item.id.startswith(wanted.prefix))
    )


def pages(index: RunIndex, wanted: RunFilter, limit: int) -> Iterator[list[RunRow]]:
    after = None
    while found := index.rows(wanted, limit=limit, after=after):
        yield found
        after = Position(found[-1].created, found[-1].id)


times = st.none() | st.integers(999, 1027).map(float)
filters = st.builds(
    RunFilter,
    states=st.lists(st.sampled_from(STATES), max_size=3).map(tuple),
    group=st.none() | st.sampled_from(GROUPS),
    groups=st.none() | st.sets(st.sampled_from(GROUPS)),
    name=st.none() | st.sampled_from(NAMES),
    labels=st.dictionaries(st.sampled_from(["env", "part"]), st.sampled_from(["prod", "dev", "1"])),
    created_after=times,
    created_before=times,
    prefix=st.none() | st.sampled_from(["r", "r0", "r03", "x"]),
)


@given(wanted=filters, limit=st.integers(1, 70))
@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pages_of_any_filter_are_all_that_fit_newest_first(
    index: RunIndex, wanted: RunFilter, limit: int
) -> None:
    expected = sorted(
        (item for item in ROWS if fits(item, wanted)), key=lambda item: (item.created, item.id)
    )

    found = list(itertools.chain.from_iterable(pages(index, wanted, limit)))

    assert found == expected[::-1]


def test_a_caller_of_many_groups_costs_a_bounded_query(index: RunIndex) -> None:
    many = [f"g{number}" for number in range(WALKS + 1)]
    wanted = RunFilter(groups=[*many, "bio"])

    sql, _ = page_query(wanted, None, 10)

    assert sql.count("UNION") < WALKS
    assert {item.group for item in index.rows(wanted, limit=60)} == {"bio"}


@pytest.mark.parametrize(
    ("wanted", "walked"),
    [
        (RunFilter(), "runs_created"),
        (RunFilter(states=("failed",)), "runs_state"),
        (RunFilter(states=("failed", "running")), "runs_state"),
        (RunFilter(groups=["astro", "bio"]), "runs_group"),
        (RunFilter(group="astro", states=("failed",)), "runs_group_state"),
        (RunFilter(name="sweep"), "runs_name"),
    ],
)
def test_a_page_is_walked_along_an_index_and_nothing_is_sorted_but_the_page(
    index: RunIndex, wanted: RunFilter, walked: str
) -> None:
    sql, values = page_query(wanted, Position(1010.0, "r001"), 10)

    plan = [line[3] for line in index._db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]

    assert any(f"INDEX {walked} " in line for line in plan), plan
    assert not any("SCAN runs" in line and "USING" not in line for line in plan), plan


def test_a_run_that_arrives_between_two_pages_moves_none_of_them(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "runs.sqlite")
    index.put(ROWS)
    seen = []
    for number, page in enumerate(pages(index, RunFilter(), 7)):
        seen += [item.id for item in page]
        index.put([row(100 + number, 2000.0 + number)])

    assert sorted(seen) == [item.id for item in ROWS]
    index.close()


def test_what_was_removed_is_found_by_no_label(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "runs.sqlite")
    index.put(ROWS[:3])
    index.remove(["r001"])

    assert [item.id for item in index.rows(RunFilter(labels={"env": "prod"}), limit=9)] == ["r002"]
    index.close()
