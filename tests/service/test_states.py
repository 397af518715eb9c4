"""The pure pieces of the controller: one test for each sentence of its reference that they carry."""

from __future__ import annotations

import pytest

from simrun.backends.base import BackendStatus, Node, Phase
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.service import controller, states
from simrun.service.states import attempt_evicted, attempt_of, attempt_oom, closed, is_oom
from tests.service.facts import (
    LEGACY,
    NOW,
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
    waiting,
)

WAITING, QUEUED, RUNNING = TaskState.WAITING, TaskState.QUEUED, TaskState.RUNNING
RETRYING, PREEMPTED = TaskState.RETRYING, TaskState.PREEMPTED
DONE, FAILED, SKIPPED = TaskState.DONE, TaskState.FAILED, TaskState.SKIPPED


def state_of(
    plan: TaskPlan, what: BackendStatus, merge_state: TaskState = RUNNING, task: str = "a"
) -> TaskState:
    asked: list[str] = []

    def merged(name: str) -> TaskState:
        asked.append(name)
        return merge_state

    workflow = Workflow(tasks={task: Task(type="t")})
    types = {"t": TaskType(command=["true"])}
    found = states.task_states(workflow, types, what, {task: plan}, merged)
    assert set(found) == {task}
    assert asked in ([], [task])
    return found[task]


# --- when a task is done or failed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("merge_state", [DONE, RUNNING, FAILED])
def test_a_split_task_whose_coordinator_merges_and_succeeded_is_what_its_marker_says(
    merge_state: TaskState,
) -> None:
    what = status(a_w0=succeeded(), a_w1=live(running()))
    assert state_of(SPLIT, what, merge_state) is merge_state


def test_a_split_task_with_a_merge_of_its_own_is_done_when_that_succeeded() -> None:
    assert state_of(LEGACY, status(a_w0=succeeded(), a_merge=succeeded())) is DONE


def test_the_marker_is_not_asked_for_where_the_merge_has_a_node_of_its_own() -> None:
    what = status(a_w0=succeeded(), a_merge=live(running()))
    assert state_of(LEGACY, what, merge_state=FAILED) is RUNNING


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.ERROR])
@pytest.mark.parametrize("plan", [SPLIT, LEGACY])
def test_a_split_task_is_failed_when_its_coordinator_failed(plan: TaskPlan, phase: Phase) -> None:
    what = status(a_w0=node(phase, crashed(exit_code=3)), a_w1=live(running()))
    assert state_of(plan, what, merge_state=DONE) is FAILED


def test_a_split_task_is_failed_when_its_merge_failed() -> None:
    assert state_of(LEGACY, status(a_w0=succeeded(), a_merge=failed())) is FAILED


def test_failed_means_after_the_retries_of_argo() -> None:
    what = status(a_w0=live(crashed(0), running(1)))
    assert state_of(SPLIT, what) is RUNNING


@pytest.mark.parametrize("plan", [SPLIT, LEGACY])
@pytest.mark.parametrize("extra", [failed(), node(Phase.ERROR, evicted())])
def test_an_extra_worker_never_fails_a_task(plan: TaskPlan, extra: Node) -> None:
    what = status(a_w0=live(running()), a_w1=extra, a_w2=extra)
    assert state_of(plan, what) is RUNNING


def test_extra_workers_alone_never_make_a_task_done() -> None:
    what = status(a_w0=live(waiting()), a_w1=succeeded(), a_w2=succeeded())
    assert state_of(SPLIT, what, merge_state=DONE) is QUEUED


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (status(a=succeeded()), DONE),
        (status(a=failed()), FAILED),
        (status(a=node(Phase.ERROR)), FAILED),
        (status(a=live(running())), RUNNING),
        (status(), WAITING),
    ],
)
def test_an_unsplit_task_is_its_node(what: BackendStatus, expected: TaskState) -> None:
    assert state_of(WHOLE, what) is expected


def test_the_nodes_of_one_task_say_nothing_of_another_with_a_longer_name() -> None:
    assert state_of(WHOLE, status(a_b=succeeded(), a_b_w0=failed())) is WAITING


# --- states of a task that has not ended ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({"a_w0": live(running())}, RUNNING, id="its coordinator runs"),
        pytest.param(
            {"a_w0": live(waiting()), "a_w2": live(running())}, RUNNING, id="an extra worker runs"
        ),
        pytest.param(
            {"a_w0": live(evicted(), waiting(1)), "a_w1": live(running())},
            RUNNING,
            id="one runs while an evicted one waits for its retry",
        ),
        pytest.param({"a_w0": live(evicted())}, PREEMPTED, id="evicted, no next pod yet"),
        pytest.param({"a_w0": live(evicted(), waiting(1))}, PREEMPTED, id="evicted, next waits"),
        pytest.param(
            {"a_w0": live(attempt(0, Phase.FAILED, reason="preempted"))},
            PREEMPTED,
            id="preempted by the queue",
        ),
        pytest.param(
            {"a_w0": live(attempt(0, Phase.ERROR, reason="lost"))}, PREEMPTED, id="pod vanished"
        ),
        pytest.param(
            {"a_w0": live(killed(exit_code=143), waiting(1))},
            PREEMPTED,
            id="OOMKilled with 143 is an eviction",
        ),
        pytest.param(
            {"a_w0": live(crashed(), waiting(1)), "a_w1": live(evicted())},
            PREEMPTED,
            id="evicted wins over failed otherwise",
        ),
        pytest.param({"a_w0": live(crashed())}, RETRYING, id="failed, no next pod yet"),
        pytest.param({"a_w0": live(killed(), waiting(1))}, RETRYING, id="killed for memory"),
        pytest.param(
            {"a_w0": live(attempt(0, Phase.FAILED, reason="asked", exit_code=137))},
            RETRYING,
            id="asked for the retry memory",
        ),
        pytest.param(
            {"a_w0": live(evicted(0), crashed(1), waiting(2))}, RETRYING, id="the last end counts"
        ),
        pytest.param({"a_w0": live(waiting())}, QUEUED, id="its pod waits for admission"),
        pytest.param({"a_w0": node(Phase.PENDING)}, QUEUED, id="a node without a pod yet"),
        pytest.param({"a_w1": failed(), "a_w0": live(waiting())}, QUEUED, id="an extra one failed"),
        pytest.param(
            {"a_w0": live(done())}, RUNNING, id="its pod succeeded, the node says so later"
        ),
        pytest.param({"a_w0": node(Phase.OMITTED)}, WAITING, id="left out"),
        pytest.param({}, WAITING, id="without pods"),
    ],
)
def test_a_task_is_running_preempted_retrying_queued_or_waiting(
    nodes: dict[str, Node], expected: TaskState
) -> None:
    assert state_of(SPLIT, status(**nodes)) is expected


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        pytest.param(None, RUNNING, id="no node yet"),
        pytest.param(live(waiting()), RUNNING, id="waits for admission"),
        pytest.param(live(running()), RUNNING, id="runs"),
        pytest.param(live(evicted(), waiting(1)), PREEMPTED, id="evicted"),
        pytest.param(live(killed(), waiting(1)), RETRYING, id="killed"),
    ],
)
def test_a_task_whose_coordinator_is_done_is_running_while_its_merge_waits(
    merge: Node | None, expected: TaskState
) -> None:
    nodes = {"a_w0": succeeded(), **({"a_merge": merge} if merge else {})}
    assert state_of(LEGACY, status(**nodes)) is expected


def test_a_task_without_a_plan_is_waiting() -> None:
    workflow = Workflow(tasks={"a": Task(type="t")})
    found = states.task_states(workflow, {}, status(a=succeeded()), {}, lambda _: DONE)
    assert found == {"a": WAITING}


def test_every_task_of_the_workflow_has_a_state() -> None:
    workflow = Workflow(tasks={name: Task(type="t") for name in "abc"})
    what = status(a=succeeded(), b_w0=live(running()))
    plans = {"a": WHOLE, "b": SPLIT, "c": WHOLE}
    found = states.task_states(workflow, {}, what, plans, lambda _: DONE)
    assert found == {"a": DONE, "b": RUNNING, "c": WAITING}


# --- plans ---------------------------------------------------------------------------------------------------------------


def test_the_plans_of_a_record_read_a_missing_coordinator_merges_as_false() -> None:
    record = RunRecord.model_validate(
        {"id": "r", "plans": {"a": {"memory": 2**28}}, "times": {"created": NOW}}
    )
    assert states.task_plans(record)["a"].coordinator_merges is False


# --- kills for memory ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kills", "expected"),
    [
        pytest.param({"exit_code": 137, "reason": "oom", "oom_kills": 1}, {}, True, id="counted"),
        pytest.param({"exit_code": 137, "reason": "error"}, {}, False, id="137 alone"),
        pytest.param(
            {"exit_code": 143, "reason": "evicted", "oom_kills": 1}, {}, False, id="ended by 143"
        ),
        pytest.param({"exit_code": 0, "oom_kills": 2}, {}, False, id="0 is a success"),
        pytest.param({"exit_code": 137, "reason": "asked"}, {}, False, id="asked"),
        pytest.param({"exit_code": 3, "reason": "error"}, {"a-w0": [0]}, False, id="another's"),
        pytest.param({"exit_code": 3, "reason": "error"}, {"a-w0": [1]}, True, id="known kill"),
        pytest.param({"exit_code": 3, "reason": "error"}, {"a-w1": [1]}, False, id="other worker"),
    ],
)
def test_only_the_evidence_of_the_out_of_memory_killer_makes_a_kill_of_a_report(
    values: dict[str, object], kills: dict[str, list[int]], expected: bool
) -> None:
    assert is_oom(report("a-w0", 1, **values), 1, kills) is expected


def test_a_peak_near_the_limit_is_no_kill() -> None:
    said = report("a-w0", exit_code=137, reason="error")
    memory = said.memory.model_copy(update={"limit": 2**28, "peak": 2**28, "samples": 9})
    assert not is_oom(said.model_copy(update={"memory": memory}), 0, {})


@pytest.mark.parametrize(
    ("exit_code", "counted", "expected"),
    [(137, 0, True), (1, 0, True), (0, 1, False), (143, 0, False), (143, 1, True)],
)
def test_the_backends_word_needs_an_exit_that_is_neither_success_nor_an_eviction(
    exit_code: int, counted: int, expected: bool
) -> None:
    said = report("a-w0", exit_code=143, reason="evicted", oom_kills=counted)
    assert attempt_oom(killed(exit_code=exit_code), said) is expected


def test_an_exit_137_without_the_reason_is_no_kill() -> None:
    assert not attempt_oom(crashed(exit_code=137))


@pytest.mark.parametrize("reason", ["evicted", "preempted", "lost"])
def test_an_attempt_that_ended_through_no_fault_of_its_own_is_an_eviction(reason: str) -> None:
    assert attempt_evicted(attempt(0, Phase.ERROR, reason=reason))


def test_oom_killed_with_143_is_an_eviction_unless_the_kill_is_known() -> None:
    assert attempt_evicted(killed(exit_code=143))
    assert not attempt_evicted(killed(exit_code=143), killed=True)
    assert not attempt_evicted(killed())
    assert not attempt_evicted(crashed())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-w0-3.json", 3),
        ("a-w0-12", 12),
        ("a-merge-0.json", 0),
        ("a-2.json", 2),
        ("a-w0.json", 0),
        ("a.json", 0),
        ("", 0),
    ],
)
def test_the_attempt_of_a_report_file_is_its_number_and_0_without_one(
    name: str, expected: int
) -> None:
    assert attempt_of(name) == expected


# --- the terminal record -------------------------------------------------------------------------------------------------


def record_of(**values: object) -> RunRecord:
    return RunRecord(id="r", times=RunTimes(created=NOW - 9)).changed(**values)


def test_a_closed_record_skips_what_has_not_ended() -> None:
    record = record_of(tasks=dict.fromkeys("abcd", WAITING), merge_pending={"c": NOW - 5})
    end = closed(record, RunState.FAILED, {"a": DONE, "b": FAILED, "c": RUNNING}, "why", now=NOW)
    assert end.tasks == {"a": DONE, "b": FAILED, "c": SKIPPED, "d": SKIPPED}
    assert (end.state, end.message, end.times.ended) == (RunState.FAILED, "why", NOW)
    assert end.merge_pending == {}


def test_a_closed_record_knows_tasks_that_the_record_had_no_state_of() -> None:
    end = closed(record_of(), RunState.FAILED, {"a": FAILED, "b": QUEUED}, None, now=NOW)
    assert end.tasks == {"a": FAILED, "b": SKIPPED}


def test_done_never_goes_back_when_a_record_is_closed() -> None:
    end = closed(record_of(tasks={"a": DONE}), RunState.FAILED, {"a": RUNNING}, None, now=NOW)
    assert end.tasks == {"a": DONE}


@pytest.mark.parametrize("node_name", [None, "node-1"])
@pytest.mark.parametrize("workflow", [None, "simrun-r"])
def test_a_closed_record_has_pending_what_there_is_to_settle(
    node_name: str | None, workflow: str | None
) -> None:
    record = record_of(node=node_name, workflow_name=workflow)
    end = closed(record, RunState.CANCELLED, {}, "cancelled", now=NOW)
    assert end.pending_release is (node_name is not None)
    assert end.pending_logs is end.pending_cancel is (workflow is not None)
    assert end.pending is (node_name is not None or workflow is not None)


def test_further_fields_of_a_closed_record_are_the_callers() -> None:
    record = record_of(workflow_name="simrun-r")
    end = closed(record, RunState.FAILED, {}, None, now=NOW, pending_cancel=False, owner="ada")
    assert (end.pending_cancel, end.pending_logs, end.owner) == (False, True, "ada")


def test_the_controller_closes_a_record_at_the_time_of_the_system() -> None:
    end = controller.closed(record_of(tasks={"a": QUEUED}), RunState.FAILED, {}, "why")
    assert end.times.ended is not None
    assert end.tasks == {"a": SKIPPED}


def test_the_words_of_the_reference_are_importable_from_the_controller() -> None:
    for name in ("task_states", "task_plans", "is_oom", "attempt_of"):
        assert getattr(controller, name) is getattr(states, name)
    assert controller.MERGE_MARKER_GRACE_S == 120
