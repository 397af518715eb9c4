"""Backfills over runs in memory."""

from __future__ import annotations

from typing import Any

import pytest

from simrun.base.errors import InvalidInput
from simrun.service import backfill as module
from simrun.service.backfill import BackfillPage, BackfillRequest, backfill
from tests.scheduler.world import Runs, Time, at, plan

HOURLY = plan(cron="0 * * * *", activated=at("06:30"))


async def fill(runs: Runs, first: str, last: str | None, **how: Any) -> BackfillPage:
    given = {"first": at(first), "last": None if last is None else at(last), **how}
    return await backfill(runs, HOURLY, BackfillRequest(**given), at("12:30"))


@pytest.fixture
def runs() -> Runs:
    return Runs(Time("12:30"))


async def test_both_ends_count_and_instants_before_the_activation_too(runs: Runs) -> None:
    page = await fill(runs, "05:00", "08:00")
    assert [(item.instant[11:16], item.state) for item in page.items] == [
        ("05:00", "created"),
        ("06:00", "created"),
        ("07:00", "created"),
        ("08:00", "created"),
    ]
    assert (page.next, page.left) == (None, 0)


async def test_without_an_end_it_goes_up_to_now(runs: Runs) -> None:
    page = await fill(runs, "11:00", None)
    assert [item.instant[11:16] for item in page.items] == ["11:00", "12:00"]


async def test_a_dry_run_makes_nothing(runs: Runs) -> None:
    await fill(runs, "07:00", "07:00")
    page = await fill(runs, "07:00", "08:00", dry_run=True)
    assert [item.state for item in page.items] == ["exists", "missing"]
    assert len(runs.made) == 1


async def test_only_what_is_missing_counts_against_the_limit(runs: Runs) -> None:
    await fill(runs, "07:00", "09:00")
    page = await fill(runs, "07:00", "12:00", only_missing=True, limit=2)
    assert [(item.instant[11:16], item.state) for item in page.items] == [
        ("10:00", "created"),
        ("11:00", "created"),
    ]
    assert (page.next, page.left) == ("2026-03-02T12:00:00Z", 1)


async def test_a_call_looks_at_so_many_instants_and_no_more(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCANNED_AT_ONCE", 3)
    await fill(runs, "05:00", "07:00")
    page = await fill(runs, "05:00", "12:00", only_missing=True)
    assert (page.items, page.next, page.left) == ([], "2026-03-02T08:00:00Z", 5)


async def test_an_instant_that_fails_is_told_and_stops_nothing(runs: Runs) -> None:
    runs.failing[at("08:00")] = OSError("the store does not answer")
    page = await fill(runs, "07:00", "09:00")
    assert [item.state for item in page.items] == ["created", "failed", "created"]
    assert "does not answer" in page.items[1].error


@pytest.mark.parametrize(
    ("first", "last", "field"),
    [("09:00", "08:00", "first"), ("09:00", "12:31", "last"), ("12:31", None, "first")],
)
async def test_a_span_that_can_not_be_is_refused(
    runs: Runs, first: str, last: str | None, field: str
) -> None:
    with pytest.raises(InvalidInput) as found:
        await fill(runs, first, last)
    assert found.value.problems[0].field == field


async def test_the_validity_of_the_schedule_bounds_it(runs: Runs) -> None:
    valid = plan(
        cron="0 * * * *",
        activated=at("06:30"),
        not_before=at("08:00"),
        not_after=at("09:00"),
    )
    wanted = BackfillRequest(first=at("05:00"), last=at("12:00"))
    page = await backfill(runs, valid, wanted, at("12:30"))
    assert [item.instant[11:16] for item in page.items] == ["08:00", "09:00"]
