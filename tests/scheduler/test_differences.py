"""How two versions differ."""

from __future__ import annotations

from simrun.model.launchplan import Schedule
from simrun.scheduler.differences import Difference, differences
from tests.store.plans import version


def test_versions_of_one_content_do_not_differ() -> None:
    assert differences(version("1", created_at=1.0), version("2", created_at=9.0)) == []


def test_each_place_is_told_with_both_values() -> None:
    before = version("1", defaults={"only": {"depth": [1, 2]}}, description="old")
    after = version(
        "2",
        defaults={"only": {"depth": [1, 3], "x": 1}},
        schedule=Schedule(cron="@hourly"),
    )
    assert differences(before, after) == [
        Difference("defaults.only.depth[1]", 2, 3),
        Difference("defaults.only.x", None, 1, "after"),
        Difference("description", "old", None, "before"),
        Difference("schedule.cron", "@daily", "@hourly"),
    ]


def test_a_truth_is_no_number() -> None:
    before = version("1", defaults={"only": {"depth": 1}})
    after = version("2", defaults={"only": {"depth": True}})
    assert [item.path for item in differences(before, after)] == ["defaults.only.depth"]
