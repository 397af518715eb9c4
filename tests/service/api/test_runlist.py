"""The list of runs: pages by cursor, filters, and refusals that say what is allowed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from simrun.service.api.paging import cursor_of
from simrun.service.runrow import RunRow
from tests.service.api.serving import Served
from tests.service.api.test_api import ONE


@pytest.fixture(autouse=True)
async def _settled(served: Served) -> None:
    """Wait until the start has looked through the store: it forgets rows of runs that nobody made."""
    for task in asyncio.all_tasks():
        if task.get_name() == "housekeeping":
            await task


def put(served: Served, number: int, **values: Any) -> None:
    """List a run that nobody made: pages come from the index alone."""
    given = {"group": "default", "name": "nightly", "state": "succeeded", "labels": {}} | values
    row = RunRow(
        f"r{number:03}", owner="", live=False, created=1e9 + number, ended=None, revision=1, **given
    )
    served.session.store.index.put([row])  # type: ignore[union-attr] # a served store has one


async def listed(served: Served, query: str = "") -> tuple[list[str], str | None]:
    """Give the ids of a page, and its cursor."""
    status, body, _ = await served.ask("GET", f"/api/v1/runs?{query}")
    assert status == 200, body
    return [row["id"] for row in body["runs"]], body["cursor"]


async def test_each_run_comes_once_newest_first_while_new_ones_arrive(served: Served) -> None:
    for number in range(25):
        put(served, number)
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        ids, cursor = await listed(served, f"limit=10&cursor={cursor}" if cursor else "limit=10")
        seen += ids
        for number in range(5):
            put(served, 100 + len(seen) + number)

    assert seen == [f"r{number:03}" for number in reversed(range(25))]


async def test_a_page_that_is_just_full_has_no_next_one(served: Served) -> None:
    for number in range(3):
        put(served, number)

    assert await listed(served, "limit=3") == (["r002", "r001", "r000"], None)
    assert await listed(served, "state=failed") == ([], None)


FILTERS = [
    ("state=failed,running", [3, 1]),
    ("state=failed&state=running", [3, 1]),
    ("group=other", [2]),
    ("name=weekly", [3]),
    ("label=env=prod", [4, 2]),
    ("label=env=prod&label=part=1", [4]),
    ("label=env=prod,part=1", [4]),
    ("label=env%3Dprod&group=other", [2]),
    ("created_after=1000000003", [4, 3]),
    ("created_before=1000000001", [0]),
    ("created_after=2001-09-09T01:46:41Z&created_before=2001-09-09T01:46:43Z", [2, 1]),
    ("created_after=2001-09-09T03:46:44%2B02:00", [4]),
    ("prefix=r00", [4, 3, 2, 1, 0]),
    ("prefix=r004", [4]),
]


async def test_filters(served: Served) -> None:
    put(served, 0)
    put(served, 1, state="failed")
    put(served, 2, group="other", labels={"env": "prod"})
    put(served, 3, name="weekly", state="running")
    put(served, 4, labels={"env": "prod", "part": "1"})

    found = {query: (await listed(served, query))[0] for query, _ in FILTERS}

    assert found == {query: [f"r{number:03}" for number in numbers] for query, numbers in FILTERS}


REFUSED = [
    ("limit=0", "limit", "greater than or equal to 1"),
    ("limit=-1", "limit", "greater than or equal to 1"),
    ("limit=1000000000", "limit", "less than or equal to 500"),
    ("limit=abc", "limit", "integer"),
    ("limit=1&limit=2", "limit", "more than once"),
    ("state=odd", "state.0", "'succeeded'"),
    ("label=env", "label", "key=value"),
    ("label==x", "label", "key=value"),
    ("label=a=1,a=2", "label", "more than once"),
    ("created_after=2026-11-30T18:00:00", "created_after", "add Z"),
    ("created_after=yesterday", "created_after", "ISO 8601"),
    ("created_after=1796061600000", "created_after", "seconds since 1970"),
    ("created_after=nan", "created_after", "seconds since 1970"),
    ("since=1", "since", "not permitted"),
    ("cursor=abc", "cursor", "leave it out"),
    ("cursor=%FF", "cursor", "leave it out"),
    (f"cursor={'A' * 2000}", "cursor", "leave it out"),
    (f"cursor={quote(cursor_of({}, [1.0, 'r1']))}", "cursor", "same filters"),
    (f"cursor={quote(cursor_of({}, ['r1', 1.0]))}", "cursor", "leave it out"),
]


async def test_what_is_wrong_is_named_with_what_is_allowed(served: Served) -> None:
    for query, field, says in REFUSED:
        status, body, _ = await served.ask("GET", f"/api/v1/runs?{query}")

        assert (status, body["errors"][0]["field"]) == (400, field), query
        assert says in str(body["errors"])


async def test_a_cursor_is_good_for_its_filters_alone(served: Served) -> None:
    for number in range(4):
        put(served, number)
    _, cursor = await listed(served, "limit=1&state=succeeded,failed")
    assert cursor is not None

    assert await listed(served, f"limit=3&state=failed,succeeded&cursor={cursor}") == (
        ["r002", "r001", "r000"],
        None,
    )
    for other in ("", "state=failed&", "state=failed,succeeded&group=default&"):
        status, body, _ = await served.ask("GET", f"/api/v1/runs?{other}cursor={cursor}")
        assert (status, body["errors"][0]["field"]) == (400, "cursor")


async def test_a_row_says_what_the_record_says(served: Served) -> None:
    what = ONE.model_copy(update={"request": ONE.request.model_copy(update={"labels": {"a": "b"}})})
    record = await served.client.submit(what, run_id="mine")
    await served.running("mine")

    _, page, _ = await served.ask("GET", "/api/v1/runs")
    (row,) = page["runs"]

    assert (row["id"], row["group"], row["state"], row["live"]) == (
        "mine",
        "default",
        "running",
        True,
    )
    assert (row["labels"], row["tasks"], row["round"]) == ({"a": "b"}, {"waiting": 1}, 0)
    assert row["created"] == pytest.approx(record.times.created)
    assert datetime.fromtimestamp(row["created"], UTC).year >= 2024
