"""The words of launch plans: what a schedule may say, and settings over a workflow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from simrun.model.launchplan import (
    Schedule,
    instant_of,
    instant_text,
    version_problem,
    with_settings,
)
from tests.store.plans import version


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "exactly one of cron and every"),
        ({"cron": "@daily", "every": "1h"}, "exactly one of cron and every"),
        ({"every": "1h", "timezone": "Europe/Berlin"}, "no notice of clocks"),
        ({"cron": "@daily", "anchor": "2026-01-01T00:00:00Z"}, "for a fixed rate"),
        ({"cron": "@daily", "time_param": "task"}, "TASK.PARAM"),
        ({"cron": "@daily", "time_param": ".param"}, "TASK.PARAM"),
        ({"cron": "@daily", "catch_up_cap": 0}, "greater than or equal to 1"),
        ({"cron": "@daily", "overlap": "maybe"}, "'allow', 'skip', 'queue' or 'cancel'"),
        ({"cron": "@daily", "not_before": "2026-01-01T00:00:00"}, "timezone"),
        ({"cron": "@daily", "not_after": "9999-12-31T23:00:00-12:00"}, "between 1970 and 9000"),
        (
            {"cron": "@daily", "not_before": "2026-02-01T00:00Z", "not_after": "2026-01-01T00:00Z"},
            "before not_before",
        ),
        ({"cron": "@daily", "zone": "UTC"}, "Extra inputs"),
    ],
)
def test_what_a_schedule_may_not_say(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Schedule.model_validate(given)


def test_a_fixed_rate_is_an_expression_too() -> None:
    assert Schedule(every="1h30m").expression == "@every 1h30m"
    assert Schedule(cron="@every 90s").expression == "@every 90s"


def test_instants_are_kept_in_utc() -> None:
    made = Schedule.model_validate({"cron": "@daily", "not_before": "2026-03-08T02:30:00-05:00"})
    assert made.not_before == datetime(2026, 3, 8, 7, 30, tzinfo=UTC)
    assert made.not_before.tzinfo is UTC
    assert instant_text(made.not_before) == "2026-03-08T07:30:00Z"
    assert instant_text(instant_of(0.5)) == "1970-01-01T00:00:00.500000Z"


def test_a_version_may_not_be_called_as_the_word_on_which_is_active() -> None:
    assert version_problem("active") is not None
    assert version_problem("activeX") is None
    assert version_problem("..") is not None


def test_the_group_of_a_plan_is_that_of_its_request() -> None:
    with pytest.raises(ValidationError, match="differ"):
        version("1").model_copy(update={"group": "other"}).model_validate(
            {**version("1").model_dump(by_alias=True), "group": "other"}
        )


def test_settings_go_over_those_of_the_tasks_and_leave_the_workflow_alone() -> None:
    workflow = version("1").submission.workflow
    made = with_settings(workflow, {"only": {"depth": 9, "new": True}, "nobody": {"x": 1}})
    assert made.tasks["only"].params == {"depth": 9, "new": True}
    assert workflow.tasks["only"].params == {"depth": 1}
