"""Launch plans through the client, as docs/reference/launch-plans.md does it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from simrun.base.errors import Conflict, InvalidInput, NotFound
from simrun.model.launchplan import Schedule
from simrun.service.attachments import attachments_of
from tests.service.api.serving import Served, serving
from tests.service.world import submission

MINE = submission(
    {"only": {"type": "mine"}},
    {"mine": {"plugin": "work.py:main", "params": {"depth": 1}}},
    group="lab",
)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as found:
        yield found


async def test_a_plan_with_its_files_from_creation_to_backfill(
    served: Served, tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text("def main(): pass\n")
    client = served.client
    plan = await client.create_plan(
        "nightly",
        MINE,
        attachments_of(MINE, tmp_path),
        schedule=Schedule(cron="30 2 1 1 *", timezone="Europe/Berlin"),
        defaults={"only": {"depth": 2}},
    )
    assert (plan.group, plan.version, list(plan.files)) == ("lab", "1", ["code/work.py"])
    again = await client.create_plan(
        "nightly",
        MINE,
        attachments_of(MINE, tmp_path),
        schedule=plan.schedule,
        defaults=plan.defaults,
    )
    assert again == plan
    assert (await client.plan_version("nightly", "1", group="lab")) == plan
    await client.activate_plan("nightly", "1", group="lab")
    assert [item.name async for item in client.all_plans()] == ["nightly"]
    view = await client.schedule("nightly", following=1, group="lab")
    assert view.next[0].endswith("-01-01T01:30:00Z")
    run = await client.launch_plan("nightly", settings={"only": {"depth": 8}}, group="lab")
    assert run.labels["simrun/launch-plan-version"] == "1"
    first = datetime(2024, 1, 1, tzinfo=UTC)
    page = await client.backfill("nightly", first, only_missing=True, limit=1, group="lab")
    assert [item.state for item in page.items] == ["created"]
    assert page.next == "2025-01-01T01:30:00Z"
    state = await client.schedules()
    assert (state.running, state.schedules) == (True, 1)
    assert (await client.pause_schedule("nightly", group="lab")).paused
    assert not (await client.resume_schedule("nightly", group="lab")).paused
    assert (await client.pause_all_schedules()).paused
    assert not (await client.resume_all_schedules()).paused
    with pytest.raises(Conflict, match="is active"):
        await client.delete_plan("nightly", "1", group="lab")
    await client.deactivate_plan("nightly", group="lab")
    await client.delete_plan("nightly", "1", group="lab")
    with pytest.raises(NotFound):
        await client.plan("nightly", group="lab")


async def test_what_is_wrong_comes_back_as_the_same_errors(served: Served, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def main(): pass\n")
    files = attachments_of(MINE, tmp_path)
    with pytest.raises(InvalidInput, match="never fires"):
        await served.client.create_plan("never", MINE, files, schedule=Schedule(cron="0 0 31 2 *"))
    with pytest.raises(InvalidInput, match="was not uploaded"):
        await served.client.create_plan("bare", MINE)
    with pytest.raises(InvalidInput):
        await served.client.preview_schedule("61 * * * *")
    shown = await served.client.preview_schedule(
        "*/5 * * * *", after=datetime(2026, 3, 2, 10, tzinfo=UTC), count=1
    )
    assert shown.instants == ["2026-03-02T10:05:00Z"]


async def test_two_versions_are_compared(served: Served, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("def main(): pass\n")
    for text in ("one", "two"):
        files = attachments_of(MINE, tmp_path)
        await served.client.create_plan("nightly", MINE, files, description=text)
    diff = await served.client.diff_plan("nightly", group="lab")
    assert [(item.path, item.before, item.after) for item in diff.differences] == [
        ("description", "one", "two")
    ]
