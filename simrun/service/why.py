"""Why a run is where it is: what each task waits for, in words, and what to do about it. Pure.

The words come from whoever decides: Kueue's on quota, the scheduler's on nodes, the kubelet's on images. Only the remedy is simrun's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.workflow import Workflow
from simrun.service.verdicts import task_of

_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"maximum capacity",
        "the queue can never give that much: lower resources of the type, or have its quota raised",
    ),
    (
        r"LocalQueue .* (doesn't|does not) exist",
        "make the LocalQueue, or name another as local_queue",
    ),
    (r"ClusterQueue .* (is inactive|doesn't exist)", "ask the administrator of the queue"),
    (
        r"WorkloadPriorityClass of the pod does not exist",
        "make it, or name another as base_priority and extra_priority",
    ),
    (
        r"ImagePull|ErrImage|InvalidImageName",
        "check the name of the image, and image_pull_secrets of the cluster file",
    ),
    (
        r"CreateContainerConfigError",
        "a Secret or ConfigMap that the type names is missing: check secret_env",
    ),
    (r"untolerated taint", "add tolerations to the cluster file, or free a node"),
    (r"node affinity|node selector", "check node_selector of the type and of the cluster file"),
    (
        r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim .* not found",
        "check the claims that the cluster file names",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWhy:
    """What one worker, or several for the same reason, waits for. attempt: its number, None before there is one."""

    workers: tuple[str, ...]
    attempt: int | None
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWhy:
    """Why a task is in its state."""

    task: str
    state: TaskState
    text: str
    workers: tuple[WorkerWhy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWhy:
    """Why a run is in its state; only tasks that have not ended well are told. notes: what limits this answer."""

    run: str
    state: RunState
    text: str
    tasks: tuple[TaskWhy, ...] = ()
    notes: tuple[str, ...] = ()


def why(
    record: RunRecord,
    workflow: Workflow,
    status: BackendStatus | None,
    *,
    in_flight: bool = False,
    notes: Iterable[str] = (),
) -> RunWhy:
    """Say what a run waits for. status: None when the backend has nothing, or was not reached."""
    tasks = tuple(
        _task(record, workflow, task, status)
        for task in workflow.tasks
        if record.tasks.get(task) is not TaskState.DONE
    )
    ended = record.state.terminal
    return RunWhy(
        run=record.id,
        state=record.state,
        text=_run_text(record, tasks, in_flight=in_flight),
        tasks=tuple(task for task in tasks if not ended or task.state is TaskState.FAILED),
        notes=tuple(notes),
    )


def _run_text(record: RunRecord, tasks: Iterable[TaskWhy], *, in_flight: bool) -> str:
    if record.state is RunState.SUBMITTING:
        if not in_flight:
            return "it was submitted by a service that has stopped; the next one takes it up"
        if record.reserve_node and record.node is None and record.plans:
            return "it waits for a node of its own"
        return "its submission is under way"
    if record.state.terminal:
        return record.message or str(record.state)
    waiting = [task for task in tasks if task.workers]
    if waiting:
        names = ", ".join(task.task for task in waiting[:5])
        return f"workers of {names} wait" + (" and more" if len(waiting) > 5 else "")
    return "nothing of it waits for anything but its own tasks"


# --- tasks -------------------------------------------------------------------------------------------------------------


def _task(
    record: RunRecord, workflow: Workflow, task: str, status: BackendStatus | None
) -> TaskWhy:
    state = record.tasks.get(task, TaskState.WAITING)
    nodes = {
        worker: node
        for worker, node in (status.nodes if status else {}).items()
        if task_of(worker, record.plans) == task
    }
    if record.state.terminal or state.final:
        return TaskWhy(task=task, state=state, text=_end_text(state, nodes))
    if not nodes and (before := _awaited(record, workflow, task)):
        return TaskWhy(task=task, state=state, text=f"waits for {', '.join(before)}")
    if task in record.merge_pending:
        return TaskWhy(
            task=task,
            state=state,
            text="its coordinator has succeeded; the merged output has not been seen yet",
        )
    if not nodes:
        return TaskWhy(task=task, state=state, text=_not_begun(record, status))
    return TaskWhy(task=task, state=state, text=_live_text(nodes), workers=_workers(nodes))


def _awaited(record: RunRecord, workflow: Workflow, task: str) -> list[str]:
    """The tasks before this one that are not done, with their states."""
    item = workflow.tasks[task]
    before = [source.task for source in item.sources.values() if source.kind == "task"]
    found = []
    for name in dict.fromkeys([*before, *item.after]):
        state = record.tasks.get(name, TaskState.WAITING)
        if state is not TaskState.DONE:
            found.append(f"{name} ({state})")
    return found


def _not_begun(record: RunRecord, status: BackendStatus | None) -> str:
    if record.state is RunState.SUBMITTING:
        return "its run is being submitted"
    if status is None:
        return "nothing is known of its workers now"
    if status.message and status.phase is Phase.PENDING:
        return status.message  # the backend holds the whole workflow back
    return "its first worker has not been made yet"


def _live_text(nodes: Mapping[str, Node]) -> str:
    last = [node.attempts[-1] for node in nodes.values() if node.attempts]
    running = sum(attempt.phase is Phase.RUNNING for attempt in last)
    waiting = sum(attempt.phase is Phase.PENDING for attempt in last)
    parts = [f"{count} {word}" for count, word in ((running, "run"), (waiting, "wait")) if count]
    return ", ".join(parts) or "between two attempts"


def _end_text(state: TaskState, nodes: Mapping[str, Node]) -> str:
    if state is not TaskState.FAILED:
        return str(state)
    for worker, node in nodes.items():
        if node.phase in (Phase.FAILED, Phase.ERROR) and node.attempts:
            last = node.attempts[-1]
            return f"{worker}: {last.message or last.reason or 'failed'}"
    return "failed"


# --- workers -----------------------------------------------------------------------------------------------------------


def _workers(nodes: Mapping[str, Node]) -> tuple[WorkerWhy, ...]:
    """What workers wait for; those with the same text together."""
    found: dict[tuple[int | None, str], list[str]] = {}
    for worker, node in nodes.items():
        if node.phase.ended:
            continue
        text = _worker_text(node)
        if text:
            number = node.attempts[-1].n if node.attempts else None
            found.setdefault((number, text), []).append(worker)
    return tuple(
        WorkerWhy(workers=tuple(workers), attempt=number, text=text, remedy=remedy_for(text))
        for (number, text), workers in found.items()
    )


def _worker_text(node: Node) -> str:
    if not node.attempts:
        return "its first attempt has not been made yet"
    last = node.attempts[-1]
    if last.phase is Phase.RUNNING:
        return _leaving(last)
    if last.phase is Phase.SUCCEEDED:
        return ""
    if last.phase.ended:
        return f"{_ended(last)}; its next attempt has not been made yet"
    ended = [attempt for attempt in node.attempts if attempt.phase.ended]
    waits = last.message or "its pod is about to start"
    return f"{_ended(ended[-1])}; now: {waits}" if ended else waits


def _leaving(attempt: Attempt) -> str:
    if attempt.leaving is None:
        return ""
    whom = f" to make room for {attempt.preemptor}" if attempt.preemptor else ""
    return f"was told to leave ({attempt.leaving}){whom}"


def _ended(attempt: Attempt) -> str:
    whom = f" by {attempt.preemptor}" if attempt.preemptor else ""
    words = {"oom": "killed for memory", "start_error": "could not start"}
    reason = words.get(attempt.reason or "", attempt.reason or "ended")
    return f"attempt {attempt.n} {reason}{whom}"


def remedy_for(text: str) -> str:
    """Give what to do about a reason; "" when waiting is all."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, text):
            return remedy
    return ""
