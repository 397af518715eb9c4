"""The pure pieces of a decision: states of tasks, kills for memory, evictions, terminal records.

Named in the controller's reference and importable from simrun.service.controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.report import WorkerReport
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Workflow
from simrun.worker.protocol import Exit, merge_name, parse_attempt_name, worker_name

MERGE_MARKER_GRACE_S = 120.0
"""How long the marker of a merge is awaited after its coordinator succeeded, in seconds.

Longer than any attribute cache of NFS hides a new file (60 s); a harness that never merges is found out after it.
"""

INFRASTRUCTURE = frozenset({"evicted", "preempted", "lost"})
"""Reasons that are no fault of the worker: counted against max_evictions."""


def task_plans(record: RunRecord) -> dict[str, TaskPlan]:
    """Give the plans of the tasks of a run from its record.

    One written before coordinator_merges existed reads it as False; so does the record's own reader.
    """
    return dict(record.plans)


def task_states(
    workflow: Workflow,
    types: Mapping[str, TaskType],
    status: BackendStatus,
    plans: Mapping[str, TaskPlan],
    merge_state: Callable[[str], TaskState],
) -> dict[str, TaskState]:
    """Give the state of every task of a workflow from the nodes of its DAG.

    `merge_state` tells the state of a task whose coordinator merges and has succeeded: done with the marker of its
    merge, running while that is awaited, failed when the harness was one that does not merge.
    """
    del types  # a type says nothing that the plan of this run does not say better
    return {
        task: _task_state(task, status, plans[task], merge_state)
        if task in plans
        else TaskState.WAITING
        for task in workflow.tasks
    }


def _task_state(
    task: str,
    status: BackendStatus,
    plan: TaskPlan,
    merge_state: Callable[[str], TaskState],
) -> TaskState:
    if not plan.split:
        nodes = [status.nodes.get(task)]
        verdict = _verdict(nodes[0])
    else:
        coordinator = status.nodes.get(worker_name(task, 0))
        merge = status.nodes.get(merge_name(task))
        extra = [status.nodes.get(worker_name(task, index)) for index in range(1, plan.pods)]
        # The verdict is the coordinator's and the merge's alone: an extra worker never fails a task
        nodes = [coordinator, merge, *extra]
        if plan.coordinator_merges:
            verdict = _verdict(coordinator)
            if verdict is TaskState.DONE:
                return merge_state(task)
        else:
            verdict = _verdict(merge)
            if _verdict(coordinator) is TaskState.FAILED:
                verdict = TaskState.FAILED
            elif verdict is None and _verdict(coordinator) is TaskState.DONE:
                return _state_of_merge(merge)
    return verdict or _live_state([node for node in nodes if node is not None])


def _verdict(node: Node | None) -> TaskState | None:
    """The end of a node after its retries; None while it has none."""
    if node is None or not node.phase.ended or node.phase is Phase.OMITTED:
        return None
    return TaskState.DONE if node.phase is Phase.SUCCEEDED else TaskState.FAILED


def _state_of_merge(merge: Node | None) -> TaskState:
    """The state of a task whose coordinator is done and whose merge is not: running, unless a pod of the merge was lost."""
    state = _live_state([merge] if merge is not None else [])
    return state if state in (TaskState.PREEMPTED, TaskState.RETRYING) else TaskState.RUNNING


_AT_WORK = (Phase.RUNNING, Phase.SUCCEEDED)
"""Of the last attempt of a node: one that succeeded waits for no retry, only the node's own verdict is still to come."""


def _live_state(nodes: list[Node]) -> TaskState:
    """The state of a task that has not ended, from all of its pods."""
    if not nodes:
        return TaskState.WAITING
    live = [node for node in nodes if not node.phase.ended]
    for node in live:
        if node.attempts and node.attempts[-1].phase in _AT_WORK:
            return TaskState.RUNNING
    # A node between two attempts, or whose next one waits for its pod to start
    waiting = [attempt for node in live if (attempt := _ended_before(node)) is not None]
    if any(attempt_evicted(attempt) for attempt in waiting):
        return TaskState.PREEMPTED
    if waiting:
        return TaskState.RETRYING
    if any(node.phase is not Phase.OMITTED for node in nodes):
        return TaskState.QUEUED
    return TaskState.WAITING


def _ended_before(node: Node) -> Attempt | None:
    """The last attempt of a node that has ended, when none runs after it."""
    ended = [attempt for attempt in node.attempts if attempt.phase.ended]
    return ended[-1] if ended else None


def attempt_of(name: str) -> int:
    """Give the attempt of a report file `<worker>-<attempt>.json`, 0 without one."""
    parsed = parse_attempt_name(name.removesuffix(".json"))
    return parsed[1] if parsed else 0


def is_oom(report: WorkerReport, attempt: int, kills: Mapping[str, list[int]]) -> bool:
    """Whether a report is of a worker that was killed for memory.

    Only the evidence of the out-of-memory killer counts (Rulings 34, 39): an attempt that is known as killed, or a report that exited 137
    and counts kills in its cgroup. A peak near the limit is nothing: the kernel takes page cache back there. An exit
    137 alone may be a kill after the grace.
    """
    if attempt in kills.get(report.worker, []):
        return True
    return (
        report.exit_code == Exit.MEMORY and report.memory.oom_kills > 0 and report.reason != "asked"
    )


def attempt_oom(attempt: Attempt, report: WorkerReport | None = None) -> bool:
    """Whether the backend's word on an attempt is a kill for memory; `report` is the attempt's, where there is one.

    OOMKilled with exit 0 is a success with a warning. With 143 the pod was ended after something in it had been killed: an
    eviction (Ruling 40), unless the harness counted the kill in its own cgroup.
    """
    if not attempt.oom or attempt.exit_code == 0:
        return False
    if attempt.exit_code == Exit.TERMINATED:
        return report is not None and report.memory.oom_kills > 0
    return True


def attempt_evicted(attempt: Attempt, *, killed: bool = False) -> bool:
    """Whether an attempt ended through no fault of its own; `killed`: it is known as killed for memory."""
    if killed and not attempt.pod_uid:
        return False  # its pod is gone, and with it what it said; it was known before
    if attempt.reason in INFRASTRUCTURE:
        return True
    return attempt.oom and attempt.exit_code == Exit.TERMINATED and not killed


def closed(
    record: RunRecord,
    state: RunState,
    tasks: Mapping[str, TaskState],
    message: str | None,
    *,
    now: float,
    **update: object,
) -> RunRecord:
    """Give the terminal record, ended now: tasks that have not ended are skipped, what is to be settled is pending.

    Logs are to keep and the workflow is to stop where there is one; the node is to release where one is reserved.
    """
    final = {
        task: _end(record.tasks.get(task), state)
        for task, state in {**record.tasks, **tasks}.items()
    }
    pending: dict[str, object] = {
        "pending_logs": record.workflow_name is not None,
        "pending_cancel": record.workflow_name is not None,
        # While a run is submitted a node may be reserved for it whose name nobody had the time to write down
        "pending_release": record.node is not None
        or (record.reserve_node and record.state is RunState.SUBMITTING),
        "merge_pending": {},
        "times": record.times.model_copy(update={"ended": now}),
    }
    return record.changed(state=state, tasks=final, message=message, **{**pending, **update})


def _end(old: TaskState | None, new: TaskState) -> TaskState:
    """The state in which a task ends with its run: done never goes back, what has not ended is skipped."""
    if old is TaskState.DONE:
        return old
    return new if new.final else TaskState.SKIPPED
