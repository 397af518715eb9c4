"""The policy of a run: the controller's reference sentence by sentence, and the order of facts that must not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.service.decide import decide
from simrun.service.decision import GONE, Decision, KeepAttempt, Observe, Settle, View
from simrun.service.states import MERGE_MARKER_GRACE_S
from simrun.service.verdicts import task_of
from tests.service.facts import (
    FIRST,
    GIB,
    LEGACY,
    MIB,
    NOW,
    RETRY,
    SPLIT,
    WHOLE,
    attempt,
    crashed,
    done,
    evicted,
    failed,
    killed,
    live,
    node,
    report,
    running,
    status,
    succeeded,
    view,
    waiting,
)

WAITING, QUEUED, RUNNING = TaskState.WAITING, TaskState.QUEUED, TaskState.RUNNING
RETRYING, PREEMPTED = TaskState.RETRYING, TaskState.PREEMPTED
DONE, FAILED, SKIPPED = TaskState.DONE, TaskState.FAILED, TaskState.SKIPPED

ONE = {"a": SPLIT}
MERGED = {"a"}


def observed(decision: Decision) -> set[str]:
    return {effect.task for effect in decision.effects if isinstance(effect, Observe)}


def settles(decision: Decision) -> bool:
    return decision.effects[-1:] == (Settle(),)


# --- when a run ends -----------------------------------------------------------------------------------------------------


def test_a_run_succeeded_when_every_task_is_done_and_its_workflow_is_to_be_stopped() -> None:
    what = status(a_w0=succeeded(), a_w1=live(running()), b=succeeded())
    found = decide(view({"a": SPLIT, "b": WHOLE}, what, markers=MERGED), NOW)

    assert found.record.state is RunState.SUCCEEDED
    assert found.record.message is None
    assert found.record.tasks == {"a": DONE, "b": DONE}
    assert found.record.pending_cancel
    assert found.record.pending_logs
    assert found.record.times.ended == NOW
    assert settles(found)


def test_a_run_failed_when_a_task_failed_though_others_run_and_these_are_skipped() -> None:
    what = status(a_w0=live(running()), b=failed())
    found = decide(view({"a": SPLIT, "b": WHOLE, "c": WHOLE}, what), NOW)

    assert found.record.state is RunState.FAILED
    assert found.record.tasks == {"a": SKIPPED, "b": FAILED, "c": SKIPPED}
    assert found.record.message == "task b: main: Error (exit code 3)"
    assert found.record.pending_cancel
    assert settles(found)


def test_the_reserved_node_is_to_be_released_in_both_cases() -> None:
    for what in (status(b=succeeded()), status(b=failed())):
        found = decide(view({"b": WHOLE}, what, record_node="node-1"), NOW)
        assert found.record.pending_release


def test_a_failed_task_is_told_by_its_harness_where_there_is_a_report() -> None:
    said = report("b", exit_code=3, reason="error", message="3 of 10 units failed, 0 allowed")
    found = decide(view({"b": WHOLE}, status(b=failed()), reports=[said]), NOW)
    assert found.record.message == "task b: 3 of 10 units failed, 0 allowed"


def test_many_failed_tasks_are_named_up_to_three_with_the_number_of_the_others() -> None:
    plans = dict.fromkeys("abcde", WHOLE)
    what = status(**{name: failed() for name in "abcde"})
    message = decide(view(plans, what), NOW).record.message or ""
    assert message.count("task ") == 3
    assert message.endswith("and 2 more tasks failed")


@pytest.mark.parametrize("extra", [failed(), node(Phase.ERROR, evicted()), failed(killed())])
def test_an_extra_worker_never_fails_a_task_nor_the_run(extra: Node) -> None:
    going = decide(view(ONE, status(a_w0=live(running()), a_w1=extra)), NOW)
    assert (going.record.state, going.record.tasks["a"]) == (RunState.RUNNING, RUNNING)

    ended = decide(view(ONE, status(a_w0=succeeded(), a_w1=extra), markers=MERGED), NOW)
    assert ended.record.state is RunState.SUCCEEDED


def test_a_run_whose_workflow_ended_while_a_task_had_not_is_failed_for_its_phase() -> None:
    what = status(Phase.FAILED, "stopped by somebody", a=succeeded())
    found = decide(view({"a": WHOLE, "b": WHOLE}, what), NOW)
    assert found.record.state is RunState.FAILED
    assert found.record.tasks == {"a": DONE, "b": SKIPPED}
    assert found.record.message == (
        "the workflow ended as Failed while b had not: stopped by somebody"
    )


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.ERROR])
def test_a_run_whose_workflow_ended_is_not_failed_for_its_phase_while_a_marker_is_awaited(
    phase: Phase,
) -> None:
    found = decide(view({"a": SPLIT, "b": WHOLE}, status(phase, a_w0=succeeded())), NOW)
    assert found.record.state is RunState.RUNNING
    assert found.record.tasks == {"a": RUNNING, "b": WAITING}
    assert found.look_again_at == NOW + MERGE_MARKER_GRACE_S


def test_the_merge_of_a_plan_from_before_coordinators_merged_ends_its_task() -> None:
    plans = {"a": LEGACY}
    waits = decide(view(plans, status(a_w0=succeeded(), a_merge=live(waiting()))), NOW)
    assert waits.record.tasks == {"a": RUNNING}
    assert waits.record.merge_pending == {}
    assert waits.look_again_at is None
    ends = decide(view(plans, status(a_w0=succeeded(), a_merge=succeeded())), NOW)
    assert ends.record.state is RunState.SUCCEEDED
    fails = decide(view(plans, status(a_w0=succeeded(), a_merge=failed())), NOW)
    assert fails.record.message == "task a (a-merge): main: Error (exit code 3)"


# --- the marker of a merge -----------------------------------------------------------------------------------------------

SUCCEEDED = status(a_w0=succeeded())


def test_without_the_marker_a_task_waits_running_from_the_first_look_that_saw_it() -> None:
    first = decide(view(ONE, SUCCEEDED), NOW)
    assert first.record.tasks == {"a": RUNNING}
    assert first.record.merge_pending == {"a": NOW}
    assert first.look_again_at == NOW + MERGE_MARKER_GRACE_S

    again = decide(replace(view(ONE, SUCCEEDED), record=first.record), NOW + 50)
    assert again.record == first.record
    assert again.look_again_at == NOW + MERGE_MARKER_GRACE_S


def test_with_the_marker_the_task_is_done_and_waits_no_more() -> None:
    waits = view(ONE, SUCCEEDED, markers=MERGED, record_merge_pending={"a": NOW - 5})
    found = decide(waits, NOW)
    assert found.record.tasks == {"a": DONE}
    assert found.record.merge_pending == {}
    assert found.look_again_at is None


def test_the_marker_counts_also_after_the_grace() -> None:
    late = view(ONE, SUCCEEDED, markers=MERGED, record_merge_pending={"a": NOW - 9999})
    assert decide(late, NOW).record.state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("waited", "expected"), [(MERGE_MARKER_GRACE_S - 0.5, RUNNING), (MERGE_MARKER_GRACE_S, FAILED)]
)
def test_a_coordinator_without_marker_fails_its_task_after_the_grace(
    waited: float, expected: TaskState
) -> None:
    waits = view(ONE, SUCCEEDED, record_merge_pending={"a": NOW - waited})
    found = decide(waits, NOW)
    assert found.record.tasks == {"a": expected}
    if expected is FAILED:
        assert found.record.state is RunState.FAILED
        assert "the harness of its image does not merge" in (found.record.message or "")


def test_the_grace_is_longer_than_any_cache_of_nfs_hides_a_file() -> None:
    assert MERGE_MARKER_GRACE_S == 120


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_neither_prolongs_nor_shortens_the_wait(step: float) -> None:
    waits = view(ONE, SUCCEEDED, record_merge_pending={"a": NOW}, waited={"a": 100.0})
    early = decide(waits, NOW + 100 + step)
    assert early.record.tasks == {"a": RUNNING}
    assert early.look_again_at == NOW + 100 + step + 20

    late = decide(replace(waits, waited={"a": 120.0}), NOW + 120 + step)
    assert late.record.tasks == {"a": FAILED}


def test_a_wait_that_began_in_the_future_of_a_clock_set_back_begins_now() -> None:
    waits = view(ONE, SUCCEEDED, record_merge_pending={"a": NOW + 3600})
    found = decide(waits, NOW)
    assert found.record.merge_pending == {"a": NOW}
    assert found.look_again_at == NOW + MERGE_MARKER_GRACE_S


def test_a_task_that_is_done_waits_for_no_marker_again() -> None:
    """Markers of tasks that have ended are not read any more."""
    plans = {"a": SPLIT, "b": WHOLE}
    what = status(a_w0=succeeded(), b=live(running()))
    found = decide(view(plans, what, record_tasks={"a": DONE, "b": RUNNING}), NOW)
    assert found.record.tasks == {"a": DONE, "b": RUNNING}
    assert found.record.merge_pending == {}
    assert found.look_again_at is None


def test_an_ended_workflow_fails_the_run_though_a_merged_task_is_among_its_tasks() -> None:
    plans = {"a": SPLIT, "b": WHOLE}
    what = status(Phase.FAILED, a_w0=succeeded())
    found = decide(view(plans, what, record_tasks={"a": DONE, "b": QUEUED}), NOW)
    assert found.record.state is RunState.FAILED


def test_a_look_older_than_the_one_that_began_the_wait_does_not_begin_it_anew() -> None:
    old = view(ONE, status(a_w0=live(running())), record_merge_pending={"a": NOW - 100})
    found = decide(old, NOW)
    assert found.record.merge_pending == {"a": NOW - 100}
    assert found.look_again_at is None


def test_two_tasks_wait_each_from_its_own_time_and_the_first_end_is_looked_at() -> None:
    what = status(a_w0=succeeded(), b_w0=succeeded())
    waits = view({"a": SPLIT, "b": SPLIT}, what, record_merge_pending={"a": NOW - 100})
    found = decide(waits, NOW)
    assert found.record.merge_pending == {"a": NOW - 100, "b": NOW}
    assert found.look_again_at == NOW + 20


# --- kills for memory ----------------------------------------------------------------------------------------------------


def test_a_first_kill_for_memory_is_stored_and_the_task_retries() -> None:
    found = decide(view(ONE, status(a_w0=live(killed(), waiting(1)))), NOW)
    assert found.record.oom_kills == {"a-w0": [0]}
    assert found.record.tasks == {"a": RETRYING}
    assert found.record.state is RunState.RUNNING


@pytest.mark.parametrize("worker", ["a-w0", "a-w2", "b", "c-merge"])
def test_a_second_kill_with_the_retry_memory_fails_the_run_whatever_worker_it_was(
    worker: str,
) -> None:
    plans = {"a": SPLIT, "b": WHOLE, "c": LEGACY}
    task = task_of(worker, plans)
    assert task is not None
    what = BackendStatus(
        phase=Phase.RUNNING, nodes={worker: live(killed(0), killed(1, memory=RETRY))}
    )
    found = decide(view(plans, what), NOW)

    assert found.record.state is RunState.FAILED
    assert found.record.tasks[task] is FAILED
    assert {state for name, state in found.record.tasks.items() if name != task} == {SKIPPED}
    assert observed(found) == {task}
    assert "with the retry memory of 1 GiB" in (found.record.message or "")
    assert "256 MiB" in (found.record.message or "")
    assert "resources.retry_memory" in (found.record.message or "")


def test_a_second_kill_at_the_first_memory_does_not_fail_the_run() -> None:
    what = status(a_w0=live(killed(0), evicted(1), killed(2, memory=FIRST), waiting(3)))
    found = decide(view(ONE, what), NOW)
    assert found.record.state is RunState.RUNNING
    assert found.record.oom_kills == {"a-w0": [0, 2]}


def test_a_kill_with_the_retry_memory_needs_an_earlier_kill_to_fail_the_run() -> None:
    found = decide(view(ONE, status(a_w0=live(killed(0, memory=RETRY)))), NOW)
    assert found.record.state is RunState.RUNNING


def test_kills_of_two_workers_are_not_added_up() -> None:
    what = status(a_w0=live(killed(0)), a_w1=live(killed(0, memory=RETRY)))
    assert decide(view(ONE, what), NOW).record.state is RunState.RUNNING


def test_a_kill_without_a_word_on_its_memory_counts_as_with_the_retry_memory() -> None:
    what = status(a_w0=live(killed(0, memory=None), killed(1, memory=None)))
    assert decide(view(ONE, what), NOW).record.state is RunState.FAILED


def test_the_report_says_what_memory_an_attempt_had_when_the_backend_does_not() -> None:
    what = status(a_w0=live(killed(0), killed(1, memory=None)))
    said = report("a-w0", 1, exit_code=137, reason="oom", oom_kills=1, limit=FIRST)
    assert decide(view(ONE, what, reports=[said]), NOW).record.state is RunState.RUNNING


def test_a_cgroup_that_keeps_whole_pages_still_had_the_retry_memory() -> None:
    what = status(a_w0=live(killed(0), killed(1, memory=None)))
    said = report("a-w0", 1, exit_code=137, reason="oom", oom_kills=1, limit=RETRY - 4095)
    assert decide(view(ONE, what, reports=[said]), NOW).record.state is RunState.FAILED


def test_kills_of_an_earlier_round_are_another_rounds() -> None:
    what = status(a_w0=live(killed(2)))
    earlier = view(
        ONE, what, record_attempt_base={"a": 2}, record_oom_kills={"a-w0": [0, 1]}, record_round=1
    )
    found = decide(earlier, NOW)
    assert found.record.state is RunState.RUNNING
    assert found.record.oom_kills == {"a-w0": [0, 1, 2]}


def test_without_a_retry_memory_the_first_kill_fails_the_run_and_says_what_to_set() -> None:
    plans = {"a": SPLIT.model_copy(update={"retry_memory": None})}
    found = decide(view(plans, status(a_w0=live(killed()))), NOW)
    assert found.record.state is RunState.FAILED
    assert "set resources.retry_memory" in (found.record.message or "")


@pytest.mark.parametrize(
    ("seen", "said", "expected"),
    [
        pytest.param(killed(), None, True, id="the backend says OOMKilled"),
        pytest.param(killed(exit_code=0), None, False, id="OOMKilled with 0 is a success"),
        pytest.param(killed(exit_code=143), None, False, id="OOMKilled with 143, no rise"),
        pytest.param(
            killed(exit_code=143),
            report("a-w0", exit_code=143, reason="evicted", oom_kills=1),
            True,
            id="OOMKilled with 143 and a rise",
        ),
        pytest.param(crashed(exit_code=137), None, False, id="137 alone may follow the grace"),
        pytest.param(
            crashed(exit_code=137),
            report("a-w0", exit_code=137, reason="oom", oom_kills=2),
            True,
            id="a report that exited 137 and counts kills",
        ),
        pytest.param(
            evicted(exit_code=137),
            report("a-w0", exit_code=137, reason="oom", oom_kills=1),
            True,
            id="the report's evidence outlives an eviction",
        ),
        pytest.param(
            evicted(),
            report("a-w0", exit_code=143, reason="evicted", oom_kills=1),
            False,
            id="a rise alone, ended by SIGTERM",
        ),
        pytest.param(
            killed(), report("a-w0", exit_code=137, reason="asked"), False, id="it only asked"
        ),
        pytest.param(attempt(0, Phase.RUNNING, oom=True), None, False, id="it has not ended"),
    ],
)
def test_a_kill_for_memory_needs_the_evidence_of_the_out_of_memory_killer(
    seen: Attempt, said: Any, expected: bool
) -> None:
    found = decide(view(ONE, status(a_w0=live(seen)), reports=[said] if said else []), NOW)
    assert found.record.oom_kills == ({"a-w0": [0]} if expected else {})
    kept = [item for item in found.effects if isinstance(item, KeepAttempt)]
    assert [item.kill for item in kept] == [expected]


def test_a_kill_stays_known_when_the_backend_has_forgotten_the_attempt() -> None:
    later = view(ONE, status(a_w0=live(running(1))), record_oom_kills={"a-w0": [0]})
    assert decide(later, NOW).record.oom_kills == {"a-w0": [0]}


def test_a_report_that_was_kept_aside_since_another_pod_had_its_number_counts_too() -> None:
    other = report("a-w0", pod_uid="another")
    said = report("a-w0", exit_code=137, reason="oom", oom_kills=1)
    both = {"a-w0-0": other, "a-w0-0.01234567": said}
    found = decide(replace(view(ONE, status(a_w0=live(crashed()))), reports=both), NOW)
    assert found.record.oom_kills == {"a-w0": [0]}


# --- evictions -----------------------------------------------------------------------------------------------------------


def ends(number: int) -> list[Attempt]:
    return [evicted(n) for n in range(number)]


def test_evictions_up_to_the_budget_go_on() -> None:
    found = decide(view(ONE, status(a_w0=live(*ends(5), waiting(5)))), NOW)
    assert found.record.state is RunState.RUNNING
    assert found.record.evictions == {"a-w0": 5}
    assert found.record.tasks == {"a": PREEMPTED}


@pytest.mark.parametrize("worker", ["a-w0", "b", "c-merge"])
def test_evictions_beyond_the_budget_fail_the_run_with_that_text(worker: str) -> None:
    plans = {"a": SPLIT, "b": WHOLE, "c": LEGACY}
    what = BackendStatus(phase=Phase.RUNNING, nodes={worker: live(*ends(6))})
    found = decide(view(plans, what), NOW)
    task = task_of(worker, plans)
    assert task is not None
    assert found.record.state is RunState.FAILED
    assert found.record.tasks[task] is FAILED
    assert "evicted 6 times, more than max_evictions (5) allows" in (found.record.message or "")


def test_the_budget_is_the_records_own() -> None:
    found = decide(view(ONE, status(a_w0=live(evicted())), record_max_evictions=0), NOW)
    assert found.record.state is RunState.FAILED


def test_an_extra_worker_evicted_beyond_the_budget_only_gives_up() -> None:
    what = status(a_w0=live(running()), a_w1=failed(*ends(12)))
    assert decide(view(ONE, what), NOW).record.state is RunState.RUNNING


def test_oom_killed_with_143_counts_as_an_eviction() -> None:
    found = decide(view(ONE, status(a_w0=live(killed(exit_code=143), waiting(1)))), NOW)
    assert found.record.evictions == {"a-w0": 1}
    assert found.record.oom_kills == {}


def test_kills_and_ordinary_failures_are_no_evictions() -> None:
    asked = attempt(2, Phase.FAILED, reason="asked", exit_code=137)
    found = decide(view(ONE, status(a_w0=live(killed(), crashed(1), asked))), NOW)
    assert found.record.evictions == {}


def test_a_count_of_evictions_never_falls() -> None:
    later = view(ONE, status(a_w0=live(running(3))), record_evictions={"a-w0": 3})
    assert decide(later, NOW).record.evictions == {"a-w0": 3}


# --- a workflow that is gone ---------------------------------------------------------------------------------------------


def test_of_a_gone_workflow_done_tasks_stay_done_and_the_undetermined_ones_fail() -> None:
    plans = {"a": WHOLE, "b": SPLIT, "c": WHOLE}
    states = {"a": DONE, "b": RUNNING, "c": WAITING}
    found = decide(view(plans, GONE, record_tasks=states), NOW)
    assert found.record.state is RunState.FAILED
    assert found.record.tasks == {"a": DONE, "b": FAILED, "c": FAILED}
    assert found.record.message == "the workflow is gone, and b, c had not ended"
    assert settles(found)


@pytest.mark.parametrize("plan", [SPLIT, LEGACY])
def test_of_a_gone_workflow_a_task_with_the_marker_is_done(plan: TaskPlan) -> None:
    plans = {"a": plan, "b": WHOLE}
    states = {"a": RUNNING, "b": DONE}
    found = decide(view(plans, GONE, markers=MERGED, record_tasks=states), NOW)
    assert found.record.state is RunState.SUCCEEDED
    assert observed(found) == {"a"}


def test_a_marker_says_nothing_of_an_unsplit_task() -> None:
    found = decide(view({"a": WHOLE}, GONE, markers=MERGED, record_tasks={"a": RUNNING}), NOW)
    assert found.record.state is RunState.FAILED


def test_of_a_gone_workflow_a_task_that_waits_for_its_marker_keeps_the_run_open() -> None:
    plans = {"a": SPLIT, "b": WHOLE, "c": SPLIT}
    states = {"a": RUNNING, "b": RUNNING, "c": RUNNING}
    waits = view(
        plans, GONE, markers={"c"}, record_tasks=states, record_merge_pending={"a": NOW - 100}
    )
    found = decide(waits, NOW)
    assert found.record.state is RunState.RUNNING
    assert found.record.tasks == {"a": RUNNING, "b": RUNNING, "c": DONE}
    assert found.record.merge_pending == {"a": NOW - 100}
    assert found.look_again_at == NOW + 20
    assert observed(found) == {"c"}

    over = decide(replace(waits, record=found.record), NOW + 20)
    assert over.record.tasks == {"a": FAILED, "b": FAILED, "c": DONE}

    there = decide(replace(waits, record=found.record, markers=frozenset({"a"})), NOW + 10)
    assert there.record.tasks == {"a": DONE, "b": FAILED, "c": DONE}


def test_a_gone_workflow_is_no_success_for_want_of_states() -> None:
    found = decide(view({"a": WHOLE}, GONE, record_tasks={}), NOW)
    assert found.record.state is RunState.FAILED
    assert found.record.tasks == {"a": FAILED}


def test_of_a_gone_workflow_kills_that_the_reports_tell_are_stored_and_named() -> None:
    said = [
        report("a-w0", n, exit_code=137, reason="oom", oom_kills=1, limit=limit)
        for n, limit in ((0, FIRST), (1, RETRY))
    ]
    found = decide(view(ONE, GONE, reports=said, record_tasks={"a": RUNNING}), NOW)
    assert found.record.oom_kills == {"a-w0": [0, 1]}
    assert "the workflow is gone" in (found.record.message or "")
    assert "retry memory of 1 GiB" in (found.record.message or "")


# --- what is left alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED])
@pytest.mark.parametrize("pending", [True, False])
def test_for_a_terminal_record_nothing_is_done_but_to_settle_what_is_pending(
    state: RunState, pending: bool
) -> None:
    what = status(a_w0=failed(killed(0), killed(1, memory=RETRY)))
    ended = view(ONE, what, markers=MERGED, record_state=state, record_pending_cancel=pending)
    found = decide(ended, NOW)
    assert found.record is ended.record
    assert found.effects == ((Settle(),) if pending else ())
    assert found.look_again_at is None


def test_a_run_that_is_being_submitted_is_never_failed() -> None:
    for values in (
        {"record_state": RunState.SUBMITTING, "what": GONE},
        {"record_state": RunState.SUBMITTING, "what": status(a_w0=failed())},
        {"in_flight": True, "what": GONE},
    ):
        seen = view(ONE, **values)  # type: ignore[arg-type] - a table of keyword arguments
        assert decide(seen, NOW) == Decision(seen.record)


def test_a_backend_that_was_not_asked_changes_nothing() -> None:
    seen = view(ONE, None)
    assert decide(seen, NOW) == Decision(seen.record)


def test_done_never_goes_back() -> None:
    plans = {"a": SPLIT, "b": WHOLE}
    what = status(a_w0=live(running()), b=failed())
    found = decide(view(plans, what, record_tasks={"a": DONE, "b": DONE}), NOW)
    assert found.record.tasks == {"a": DONE, "b": DONE}
    assert found.record.state is RunState.SUCCEEDED


def test_a_second_look_at_the_same_facts_changes_nothing() -> None:
    what = status(a_w0=live(killed(), evicted(1), running(2)), a_w1=live(waiting()))
    first = decide(view(ONE, what), NOW)
    again = decide(replace(view(ONE, what), record=first.record), NOW + 7)
    assert again.record == first.record


def test_states_kills_evictions_start_and_workflow_are_stored_at_every_look() -> None:
    what = status(a_w0=live(killed(), evicted(1), running(2)), a_w1=live(running()))
    found = decide(view(ONE, what), NOW).record
    assert found.tasks == {"a": RUNNING}
    assert found.oom_kills == {"a-w0": [0]}
    assert found.evictions == {"a-w0": 1}
    assert found.workflow_uid == "workflow-uid"
    assert found.times.started == NOW - 60


def test_the_start_of_a_run_is_the_earliest_start_of_an_attempt_whenever_it_is_seen() -> None:
    later = decide(view(ONE, status(a_w1=live(running(5)))), NOW).record
    assert later.times.started == NOW - 55
    what = status(a_w0=live(running(0)), a_w1=live(running(5)))
    assert decide(replace(view(ONE, what), record=later), NOW).record.times.started == NOW - 60


# --- effects -------------------------------------------------------------------------------------------------------------


def test_every_attempt_of_a_task_that_has_not_ended_is_kept_as_evidence() -> None:
    plans = {"a": SPLIT, "b": WHOLE}
    what = status(
        a_w0=live(killed(0), running(1)), a_w1=live(waiting()), b=succeeded(), other_w0=failed()
    )
    found = decide(view(plans, what, record_tasks={"a": QUEUED, "b": DONE}), NOW)
    kept = [item for item in found.effects if isinstance(item, KeepAttempt)]
    assert [(item.task, item.worker, item.attempt.n, item.kill) for item in kept] == [
        ("a", "a-w0", 0, True),
        ("a", "a-w0", 1, False),
    ]


def test_the_reports_of_a_task_become_observations_once_its_state_is_final() -> None:
    plans = {"a": SPLIT, "b": WHOLE, "c": WHOLE}
    what = status(a_w0=succeeded(), b=live(running()))
    first = decide(view(plans, what, markers=MERGED), NOW)
    assert observed(first) == {"a"}
    again = decide(replace(view(plans, what, markers=MERGED), record=first.record), NOW)
    assert observed(again) == set()


def test_a_task_that_ran_when_the_run_failed_is_observed_and_one_without_pods_is_not() -> None:
    plans = {"a": SPLIT, "b": WHOLE, "c": WHOLE}
    what = status(a_w0=live(running()), b=failed())
    states = {"a": RUNNING, "b": RUNNING, "c": WAITING}
    found = decide(view(plans, what, record_tasks=states), NOW)
    assert found.record.tasks == {"a": SKIPPED, "b": FAILED, "c": SKIPPED}
    assert observed(found) == {"a", "b"}


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ("a", "a"),
        ("a-w0", "a"),
        ("a-w12", "a"),
        ("a-merge", "a"),
        ("a-b-w0", "a-b"),
        ("a-warm", None),
        ("a-w", None),
        ("a-extra", None),
        ("c-w0", None),
        ("w0", None),
    ],
)
def test_the_task_of_a_worker_is_told_by_its_name(worker: str, expected: str | None) -> None:
    assert task_of(worker, {"a": SPLIT, "a-b": SPLIT}) == expected


# --- order ---------------------------------------------------------------------------------------------------------------

# A story is what one worker's node goes through, as a watcher would see it step by step
STORIES: dict[str, list[Node]] = {
    "succeeds": [live(waiting()), live(running()), live(done()), succeeded()],
    "is killed, then succeeds": [
        live(waiting()),
        live(running()),
        live(killed()),
        live(killed(), waiting(1)),
        live(killed(), running(1)),
        succeeded(killed(), done(1)),
    ],
    "is evicted twice, then succeeds": [
        live(running()),
        live(evicted(), waiting(1)),
        live(evicted(), evicted(1), running(2)),
        succeeded(evicted(), evicted(1), done(2)),
    ],
    "still runs": [live(waiting()), live(running())],
    "still waits": [live(waiting())],
    "fails": [live(running()), failed()],
    "is killed twice": [
        live(running()),
        live(killed()),
        live(killed(), running(1)),
        live(killed(), killed(1, memory=RETRY)),
    ],
    "is evicted too often": [live(running()), live(*ends(3), running(3)), live(*ends(6))],
}
HARMLESS = ["succeeds", "is killed, then succeeds", "is evicted twice, then succeeds", "still runs"]
PLANS = {"a": SPLIT, "b": WHOLE, "c": LEGACY}
EXTRA_WORKERS = ("a-w1", "a-w2", "c-w1")
WORKERS = ["a-w0", "a-w1", "a-w2", "b", "c-w0", "c-w1", "c-merge"]
REPORTS = {
    "a-w1-0": report("a-w1", 0, exit_code=137, reason="oom", oom_kills=1, limit=FIRST),
    "c-w0-0": report("c-w0", 0, exit_code=0),
}


@st.composite
def tellings(draw: st.DrawFn) -> tuple[View, list[View]]:
    """The whole truth in one view; and looks before it that saw only parts, again and again, in any order."""
    stories = {
        worker: STORIES[
            draw(st.sampled_from(HARMLESS if worker in EXTRA_WORKERS else list(STORIES)))
        ]
        for worker in WORKERS
    }
    # Effects never stand without their cause: a merge starts after its coordinator, which also writes the marker
    if stories["c-w0"][-1].phase is not Phase.SUCCEEDED:
        del stories["c-merge"]
    merged = stories["a-w0"][-1].phase is Phase.SUCCEEDED and draw(st.booleans())
    truth = look_at({worker: story[-1] for worker, story in stories.items()}, merged, REPORTS)
    looks = []
    for _ in range(draw(st.integers(0, 6))):
        seen = {
            worker: story[draw(st.integers(0, len(story) - 1))]
            for worker, story in stories.items()
            if draw(st.booleans())
        }
        if "c-merge" in seen:
            seen["c-w0"] = stories["c-w0"][-1]
        reports = {name: item for name, item in REPORTS.items() if draw(st.booleans())}
        looks.append(look_at(seen, merged and draw(st.booleans()), reports))
    return truth, looks


def look_at(nodes: dict[str, Node], merged: bool, reports: dict[str, Any]) -> View:
    what = BackendStatus(phase=Phase.RUNNING, nodes=nodes, uid="workflow-uid")
    return view(PLANS, what, markers={"a"} if merged else set(), reports=list(reports.values()))


def follow(looks: list[View], start: RunRecord) -> RunRecord:
    """The record after these looks, each on what the one before left; a terminal one is looked at no more."""
    record = start
    for number, seen in enumerate(looks):
        record = decide(replace(seen, record=record), NOW + number).record
        if record.state.terminal:
            return record
    return record


def comparable(record: RunRecord) -> RunRecord:
    """Without the moments at which something was first seen, which do depend on when one looks."""
    return record.changed(
        merge_pending=dict.fromkeys(record.merge_pending, 0.0),
        times=record.times.model_copy(update={"ended": None}),
    )


@settings(max_examples=200, deadline=None)
@given(told=tellings())
def test_looks_that_come_late_twice_or_in_another_order_end_in_the_same_record(
    told: tuple[View, list[View]],
) -> None:
    truth, looks = told
    at_once = follow([truth], truth.record)
    step_by_step = follow([*looks, truth, truth], truth.record)
    assert step_by_step.state is at_once.state
    before = follow(looks, truth.record)
    if before.state.terminal:
        # What ended it is told sooner, with less known of the rest: never another end, and never a task undone
        assert before.state is at_once.state is RunState.FAILED or before == step_by_step
        done_before = {task for task, state in before.tasks.items() if state is DONE}
        assert done_before <= {task for task, state in at_once.tasks.items() if state is DONE}
    else:
        assert comparable(step_by_step).model_dump() == comparable(at_once).model_dump()


@settings(max_examples=100, deadline=None)
@given(told=tellings())
def test_every_decision_is_stable_and_a_terminal_one_is_final(
    told: tuple[View, list[View]],
) -> None:
    truth, looks = told
    record = truth.record
    for number, seen in enumerate([*looks, truth]):
        decision = decide(replace(seen, record=record), NOW + number)
        again = decide(replace(seen, record=decision.record), NOW + number)
        assert again.record == decision.record
        if decision.record.state.terminal:
            assert all(state.final for state in decision.record.tasks.values())
            assert settles(decision)
        record = decision.record
    if not record.state.terminal:
        assert record.oom_kills["a-w1"][0] == 0


def test_memory_is_told_in_units_that_people_read() -> None:
    plans = {"a": SPLIT.model_copy(update={"memory": 96 * MIB, "retry_memory": 3 * GIB // 2})}
    what = status(a_w0=live(killed(0), killed(1, memory=2 * GIB)))
    message = decide(view(plans, what), NOW).record.message or ""
    assert "retry memory of 1.5 GiB (first attempt: 96 MiB)" in message
