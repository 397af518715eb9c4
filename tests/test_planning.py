"""Plans of tasks: how many pods, how much memory, how much after a kill."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.model.report import Observation, Reason
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run, plan_task, retry_memory

MIB = 2**20
GIB = 2**30


def seen(
    peak: float | None,
    *,
    given_memory: float = 1024,
    oom: bool = False,
    reason: Reason = "completed",
) -> Observation:
    """An observation; sizes in MiB."""
    return Observation(
        type="t",
        run="r",
        task="t",
        worker="t",
        attempt=0,
        given_memory=int(given_memory * MIB),
        peak_memory=None if peak is None else int(peak * MIB),
        oom=oom,
        reason=reason,
        at=0,
    )


def task_type(**update: Any) -> TaskType:
    return TaskType(**{"command": ["x"], "resources": {"memory": "512Mi", "cpu": 2}, **update})


def split_type(workers: int) -> TaskType:
    return task_type(split={"workers": workers, "units": {"list": [1]}})


# --- pods


@pytest.mark.parametrize(
    ("workers", "units", "pods"),
    [(4, 20, 4), (4, 4, 4), (4, 3, 3), (4, 1, 1), (4, 0, 1), (4, None, 4), (1, 20, 1)],
)
def test_a_split_task_has_no_more_pods_than_units_and_at_least_one(
    workers: int, units: int | None, pods: int
) -> None:
    plan = plan_task(split_type(workers), units=units, image=None)
    assert (plan.pods, plan.split, plan.coordinator_merges) == (pods, True, True)


def test_an_unsplit_task_has_one_pod() -> None:
    plan = plan_task(task_type(), units=None, image="x:1")
    assert (plan.pods, plan.split, plan.coordinator_merges) == (1, False, False)
    assert (plan.cpus, plan.image) == (2, "x:1")


# --- memory


@pytest.mark.parametrize(
    ("peaks", "memory"),
    [
        ([], 512),
        ([100, 100], 512),
        ([100, 100, None], 512),
        ([100, 100, 100], 240),
        ([100, 300, 200], 432),
        ([2000, 100, 100], 2128),
        ([10_000, 1, 1], 10_208),
    ],
    ids=str,
)
def test_three_peaks_replace_the_declared_memory(peaks: list[float | None], memory: int) -> None:
    plan = plan_task(task_type(), [seen(peak) for peak in peaks], units=None, image=None)
    assert plan.memory == memory * MIB


def test_the_peak_of_a_killed_attempt_counts_as_no_peak_but_raises_the_memory() -> None:
    killed = seen(700, given_memory=700, oom=True)
    two = [seen(100), seen(100), killed]
    assert plan_task(task_type(), two, units=None, image=None).memory == 512 * MIB
    three = [seen(100), *two]
    assert plan_task(task_type(), three, units=None, image=None).memory == 848 * MIB


@pytest.mark.parametrize(
    "reason", ["evicted", "preempted", "lost", "cancelled", "deadline", "error", "start_error"]
)
def test_the_peak_of_an_attempt_that_did_not_complete_counts_as_none_but_raises_the_memory(
    reason: Reason,
) -> None:
    low = [seen(20, reason=reason)] * 5
    assert plan_task(task_type(), low, units=None, image=None).memory == 512 * MIB
    three = [seen(100)] * 3
    assert plan_task(task_type(), [*three, *low], units=None, image=None).memory == 240 * MIB
    high = [*three, seen(300, reason=reason)]
    assert plan_task(task_type(), high, units=None, image=None).memory == 432 * MIB


def test_observed_peaks_may_go_beyond_the_declaration() -> None:
    plan = plan_task(task_type(), [seen(900)] * 3, units=None, image=None)
    assert plan.memory == 1040 * MIB


@pytest.mark.parametrize(
    ("declared", "observations", "retry"),
    [
        (None, [], 1024),
        ("3Gi", [], 3072),
        ("600Mi", [], 1024),
        (None, [seen(2000)], 2128),
        (None, [seen(None, given_memory=1024, oom=True)], 1232),
        (None, [seen(100)] * 3, 512),
    ],
    ids=str,
)
def test_the_retry_memory_is_twice_the_first_or_what_is_known_to_be_needed(
    declared: str | None, observations: list[Observation], retry: int
) -> None:
    resources = {"memory": "512Mi", "retry_memory": declared}
    plan = plan_task(task_type(resources=resources), observations, units=None, image=None)
    assert plan.retry_memory == retry * MIB


def test_a_round_after_a_kill_starts_above_the_limit_that_killed() -> None:
    plan = plan_task(task_type(), units=None, image=None, kills=[512 * MIB, 1024 * MIB])
    assert plan.memory == 1232 * MIB
    assert plan.retry_memory == 2464 * MIB


sizes = st.floats(min_value=1, max_value=100_000)


@given(
    st.lists(st.builds(seen, sizes, given_memory=sizes, oom=st.booleans()), max_size=6),
    st.lists(st.integers(MIB, 100 * GIB), max_size=3),
)
def test_a_plan_never_gives_less_than_was_seen_to_be_too_little(
    observations: list[Observation], kills: list[int]
) -> None:
    plan = plan_task(task_type(), observations, units=None, image=None, kills=kills)
    assert all(plan.memory > limit for limit in kills)
    assert plan.retry_memory is not None
    assert plan.retry_memory >= 2 * plan.memory
    assert all(
        plan.retry_memory > (item.given_memory if item.oom else item.peak_memory or 0)
        for item in observations
    )
    assert plan.retry_memory % (16 * MIB) == 0


def test_odd_sizes_are_rounded_up_to_steps() -> None:
    assert retry_memory(task_type(), [seen(5000.3)], 512 * MIB) == 5136 * MIB


# --- a whole run


def test_each_task_of_a_run_is_planned_by_its_type_and_its_own_units_and_kills() -> None:
    types = {"one": task_type(image="named:1"), "wide": split_type(8)}
    workflow = Workflow(
        tasks={"a": Task(type="one"), "b": Task(type="wide"), "c": Task(type="one")}
    )
    plans = plan_run(
        workflow,
        types,
        {"one": [seen(100)] * 3},
        {"b": 5},
        images={"wide": "built:2"},
        kills={"c": [GIB]},
    )
    assert list(plans) == ["a", "b", "c"]
    assert [plans[task].pods for task in "abc"] == [1, 5, 1]
    assert [plans[task].memory // MIB for task in "abc"] == [240, 512, 1232]
    assert [plans[task].image for task in "abc"] == [None, "built:2", None]
