"""What a launch plan must satisfy, and the submissions that are made of it."""

from __future__ import annotations

from typing import Any

import pytest

from simrun.base.errors import InvalidInput
from simrun.model.launchplan import LaunchPlan, Schedule
from simrun.scheduler.launch_plans import (
    check_activation_of,
    check_plan,
    launch_submission,
    next_in_window,
    schedule_timetable,
    scheduled_submission,
)
from tests.scheduler.world import at
from tests.service.world import submission

TYPE = {"command": ["run", "{params.a}"], "params": {"a": 0, "b": 0, "c": 0, "when": "", "d": 0}}


def plan(**values: Any) -> LaunchPlan:
    made = submission(
        {"only": {"type": "t", "params": {"a": 1, "b": 1, "c": 1}}},
        {"t": {**TYPE, "image": "image"}},
        group="lab",
        labels={"team": "tides"},
    )
    return LaunchPlan(
        group="lab", name="nightly", version="1", submission=made, created_at=1.0, **values
    )


def test_settings_come_in_their_order_and_what_is_fixed_comes_last() -> None:
    made = plan(
        defaults={"only": {"b": 2, "c": 2}},
        fixed={"only": {"d": 9}},
        schedule=Schedule(cron="@daily", time_param="only.when"),
    )
    check_plan(made)
    by_hand = launch_submission(made, {"only": {"c": 3}}, owner="ana")
    assert by_hand.workflow.tasks["only"].params == {"a": 1, "b": 2, "c": 3, "d": 9}
    assert by_hand.request.owner == "ana"
    by_time = scheduled_submission(made, at("10:05"))
    assert by_time.workflow.tasks["only"].params == {
        "a": 1,
        "b": 2,
        "c": 2,
        "d": 9,
        "when": "2026-03-02T10:05:00Z",
    }


def test_a_scheduled_submission_depends_on_version_and_instant_alone() -> None:
    made = plan(schedule=Schedule(cron="@daily"))
    assert scheduled_submission(made, at("10:05")) == scheduled_submission(made, at("10:05"))
    labels = scheduled_submission(made, at("10:05")).request.labels
    assert labels == {
        "team": "tides",
        "simrun/launch-plan": "nightly",
        "simrun/launch-plan-version": "1",
        "simrun/scheduled-at": "2026-03-02T10:05:00Z",
    }


def test_a_launch_may_not_take_the_labels_of_the_plan_nor_what_is_fixed() -> None:
    made = plan(fixed={"only": {"d": 9}})
    given = launch_submission(made, {}, labels={"simrun/launch-plan": "other", "mine": "x"})
    assert given.request.labels["simrun/launch-plan"] == "nightly"
    assert given.request.labels["mine"] == "x"
    with pytest.raises(InvalidInput, match="is fixed by version 1"):
        launch_submission(made, {"only": {"d": 1}})
    with pytest.raises(InvalidInput, match="is no task"):
        launch_submission(made, {"onyl": {"d": 1}})


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"defaults": {"only": {"d": 1}}, "fixed": {"only": {"d": 2}}}, "defaults.only.d"),
        ({"fixed": {"only": {"e": 2}}}, "fixed.only.e"),
        ({"schedule": Schedule(cron="0 0 30 2 *")}, "schedule.cron"),
        ({"schedule": Schedule(cron="@every 59s")}, "schedule.cron"),
        ({"schedule": Schedule(every="59s")}, "schedule.every"),
        ({"schedule": Schedule(cron="@every 1h", timezone="Asia/Tokyo")}, "schedule.timezone"),
        ({"schedule": Schedule(cron="@daily", time_param="nobody.when")}, "schedule.time_param"),
        (
            {
                "schedule": Schedule(cron="@daily", time_param="only.when"),
                "fixed": {"only": {"when": "now"}},
            },
            "schedule.time_param",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as found:
        check_plan(plan(**values))
    assert [problem.field for problem in found.value.problems] == [field]


def test_a_schedule_that_is_over_can_not_be_activated() -> None:
    made = plan(schedule=Schedule(cron="0 12 * * *", not_after=at("10:00")))
    check_plan(made)
    check_activation_of(made, at("2026-02-28T00:00:00Z"))
    with pytest.raises(InvalidInput, match="no instant to come up to 2026-03-02T10:00:00Z"):
        check_activation_of(made, at("09:00"))


def test_the_first_instant_of_a_validity_counts_and_the_one_after_its_end_does_not() -> None:
    made = Schedule(cron="*/5 * * * *", not_before=at("10:05"), not_after=at("10:10"))
    timetable = schedule_timetable(made, at("09:00"))
    assert next_in_window(timetable, made, at("09:00")) == at("10:05")
    assert next_in_window(timetable, made, at("10:05")) == at("10:10")
    assert next_in_window(timetable, made, at("10:10")) is None
