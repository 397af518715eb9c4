"""Verdicts: the reasons for which a run ends, in words that say what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from simrun.backends.base import BackendStatus, Node, Phase
from simrun.model.plan import TaskPlan
from simrun.model.quantities import format_memory
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.service.decision import View
from simrun.service.states import MERGE_MARKER_GRACE_S
from simrun.worker.protocol import attempt_name, merge_name, worker_name

_WORKER_TAIL = re.compile(r"w[0-9]+")
_ROUNDING = 4096
"""Bytes: a cgroup keeps whole pages, so the memory that an attempt had can be a little less than was asked for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run ends; `task` is one that fails with it although its nodes have not said so (yet)."""

    state: RunState
    message: str | None = None
    task: str | None = None


def memory_verdict(
    view: View, nodes: Mapping[str, Node], kills: Mapping[str, list[int]]
) -> Verdict | None:
    """Killed for memory again with the retry memory: the run fails (Ruling 35), an extra worker's kill too."""
    for worker, attempts in kills.items():
        task = task_of(worker, view.plans)
        if task is None:
            continue
        plan = view.plans[task]
        this_round = [n for n in attempts if n >= view.record.base_of(task)]
        if plan.retry_memory is None:
            if this_round:
                text = f"killed for memory at {format_memory(plan.memory)}, and there is no retry memory"
                remedy = "set resources.retry_memory"
                return Verdict(RunState.FAILED, _failure(task, worker, text, remedy), task)
            continue
        for n in this_round[1:]:
            given = _memory_given(view, nodes, worker, n)
            if given is None or given >= plan.retry_memory - _ROUNDING:
                text = (
                    f"killed for memory again with the retry memory of {format_memory(plan.retry_memory)} "
                    f"(first attempt: {format_memory(plan.memory)})"
                )
                remedy = "raise resources.retry_memory"
                return Verdict(RunState.FAILED, _failure(task, worker, text, remedy), task)
    return None


def _memory_given(view: View, nodes: Mapping[str, Node], worker: str, attempt: int) -> int | None:
    """The memory an attempt had, in bytes; None when nobody says."""
    node = nodes.get(worker)
    for seen in node.attempts if node else ():
        if seen.n == attempt and seen.memory is not None:
            return seen.memory
    report = view.reports.get(attempt_name(worker, attempt))
    return report.memory.limit if report else None


def eviction_verdict(view: View, record: RunRecord) -> Verdict | None:
    """A worker evicted more often than allowed; an extra worker only gives up. `record` has the counts of this look."""
    for worker, count in record.evictions.items():
        task = task_of(worker, view.plans)
        if count > record.max_evictions and task and not _is_extra(worker, task, view.plans[task]):
            text = f"evicted {count} times, more than max_evictions ({record.max_evictions}) allows"
            return Verdict(RunState.FAILED, _failure(task, worker, text, None), task)
    return None


def task_verdict(
    view: View, status: BackendStatus, tasks: Mapping[str, TaskState]
) -> Verdict | None:
    """A failed task fails the run, when all are done it has succeeded."""
    failed = [task for task in view.workflow.tasks if tasks[task] is TaskState.FAILED]
    if failed:
        texts = [_why_failed(view, status, task) for task in failed[:3]]
        if len(failed) > 3:
            texts.append(f"and {len(failed) - 3} more tasks failed")
        return Verdict(RunState.FAILED, "; ".join(texts))
    if all(state is TaskState.DONE for state in tasks.values()):
        return Verdict(RunState.SUCCEEDED)
    return None


def workflow_verdict(
    status: BackendStatus, tasks: Mapping[str, TaskState], *, awaited: bool
) -> Verdict | None:
    """A workflow that ended while tasks have not: nothing more will come, unless a marker is awaited."""
    if not status.phase.ended or awaited:
        return None
    open_tasks = [task for task, state in tasks.items() if not state.final]
    text = f"the workflow ended as {status.phase} while {listed(open_tasks)} had not"
    return Verdict(RunState.FAILED, f"{text}: {status.message}" if status.message else text)


def _why_failed(view: View, status: BackendStatus, task: str) -> str:
    """Why a task failed, from the best witness: the report of its last attempt, the attempt, the node."""
    plan = view.plans[task]
    workers = [worker_name(task, 0), merge_name(task)] if plan.split else [task]
    for worker in workers:
        node = status.nodes.get(worker)
        if node is None or node.phase not in (Phase.FAILED, Phase.ERROR):
            continue
        last = node.attempts[-1] if node.attempts else None
        if last is None:
            return _failure(task, worker, node.message or "failed", None)
        report = view.reports.get(attempt_name(worker, last.n))
        if report is not None and report.message:
            return _failure(task, worker, report.message, None)
        code = f" (exit code {last.exit_code})" if last.exit_code is not None else ""
        return _failure(task, worker, f"{last.message or last.reason or 'failed'}{code}", None)
    return _failure(
        task,
        workers[0],
        f"its coordinator succeeded, but no merged output came within {MERGE_MARKER_GRACE_S:.0f} s: "
        "the harness of its image does not merge",
        "use an image with a current simrun",
    )


def _failure(task: str, worker: str, text: str, remedy: str | None) -> str:
    who = task if worker == task else f"{task} ({worker})"
    return f"task {who}: {text}" + (f"; {remedy}" if remedy else "")


# --- names ----------------------------------------------------------------------------------------------------


def task_of(worker: str, plans: Mapping[str, TaskPlan]) -> str | None:
    """Give the task of a worker; None when it is none of this run's."""
    if worker in plans:
        return worker
    task, dash, tail = worker.rpartition("-")
    if dash and task in plans and (tail == "merge" or _WORKER_TAIL.fullmatch(tail)):
        return task
    return None


def _is_extra(worker: str, task: str, plan: TaskPlan) -> bool:
    return plan.split and worker not in (worker_name(task, 0), merge_name(task))


def listed(tasks: list[str]) -> str:
    """Give names as part of a sentence, the first five."""
    shown = ", ".join(tasks[:5])
    return shown + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
