"""The whole policy of a run, as a pure function.

`decide(view, now)` takes all that is known of a run and gives the next record, the effects to carry out once it is written, and
when to look again without an event. Doing it twice, late, or with the facts in another order of arrival ends in the same record.
It imports neither asyncio nor files nor clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.report import WorkerReport
from simrun.service import states, verdicts
from simrun.service.decision import (
    GONE,
    Decision,
    Effect,
    Gone,
    KeepAttempt,
    Observe,
    Settle,
    View,
)
from simrun.service.states import MERGE_MARKER_GRACE_S
from simrun.worker.protocol import attempt_name, parse_attempt_name


def decide(view: View, now: float) -> Decision:
    """Decide what becomes of a run. `now` is wall time in seconds."""
    record = view.record
    if record.state.terminal:
        # Ruling 25: nothing else is done for a terminal run
        return Decision(record, (Settle(),) if record.pending else ())
    if record.state is RunState.SUBMITTING or view.in_flight or view.status is None:
        return Decision(record)
    if view.status is GONE or isinstance(view.status, Gone):
        return _decide_gone(view, now)
    return _decide_live(view, view.status, now)


# --- a workflow that exists ------------------------------------------------------------------------------------------


def _decide_live(view: View, status: BackendStatus, now: float) -> Decision:
    record = view.record
    kills = _kills(view, status.nodes)
    evictions = _evictions(record, status, kills)
    wait = _MergeWait(view, now)
    tasks = states.task_states(view.workflow, view.types, status, view.plans, wait.state)
    for task, old in record.tasks.items():
        if old is TaskState.DONE:  # of an earlier round, or seen before: done never goes back
            tasks[task] = old
    if status.phase.ended:  # what the backend has forgotten of it, the store still knows
        merged = [task for task in view.markers if not tasks[task].final]
        tasks |= dict.fromkeys(merged, TaskState.DONE)
    base = record.changed(
        oom_kills=kills,
        evictions=evictions,
        merge_pending=wait.still_pending(tasks),
        workflow_uid=status.uid or record.workflow_uid,
        times=_started(record, status),
    )
    effects = _effects(view, status, tasks, kills)
    verdict = (
        verdicts.memory_verdict(view, status.nodes, kills)
        or verdicts.eviction_verdict(view, base)
        or verdicts.task_verdict(view, status, tasks)
        or verdicts.workflow_verdict(status, tasks, awaited=bool(wait.pending))
    )
    if verdict is not None:
        if verdict.task is not None and tasks[verdict.task] is not TaskState.DONE:
            tasks[verdict.task] = TaskState.FAILED
        end = states.closed(base, verdict.state, tasks, verdict.message, now=now)
        observed = tuple(Observe(task) for task in _newly_final(record, end.tasks))
        return Decision(end, (*effects, *observed, Settle()))
    after = base.changed(tasks=tasks)
    observed = tuple(Observe(task) for task in _newly_final(record, tasks))
    return Decision(after, (*effects, *observed), wait.look_again_at)


class _MergeWait:
    """Decides on tasks whose coordinator succeeded, by the marker and the grace; collects who waits since when."""

    def __init__(self, view: View, now: float) -> None:
        self._view, self._now = view, now
        self.pending: dict[str, float] = {}

    def state(self, task: str) -> TaskState:
        if task in self._view.markers or self._view.record.tasks.get(task) is TaskState.DONE:
            return TaskState.DONE
        since = self._since(task)
        if self._waited(task, since) >= MERGE_MARKER_GRACE_S:
            return TaskState.FAILED
        self.pending[task] = since
        return TaskState.RUNNING

    def still_pending(self, tasks: Mapping[str, TaskState]) -> dict[str, float]:
        """Who waits since when, kept also over a look that is older than the one that began the wait."""
        earlier = self._view.record.merge_pending
        kept = {task: earlier[task] for task in earlier if task in tasks and not tasks[task].final}
        return {**kept, **self.pending}

    @property
    def look_again_at(self) -> float | None:
        ends = [
            self._now + MERGE_MARKER_GRACE_S - self._waited(task, since)
            for task, since in self.pending.items()
        ]
        return min(ends, default=None)

    def _since(self, task: str) -> float:
        # After the wall clock was set back a start that lies ahead would prolong the wait
        return min(self._view.record.merge_pending.get(task, self._now), self._now)

    def _waited(self, task: str, since: float) -> float:
        return self._view.waited.get(task, self._now - since)


def _kills(view: View, nodes: Mapping[str, Node]) -> dict[str, list[int]]:
    """The attempts killed for memory by worker: known ones and those with new evidence (Rulings 34, 39)."""
    kills = {worker: set(attempts) for worker, attempts in view.record.oom_kills.items()}
    for worker, node in nodes.items():
        for attempt in node.attempts:
            if not attempt.phase.ended:
                continue
            report = view.reports.get(attempt_name(worker, attempt.n))
            if report is not None and report.reason == "asked":
                continue  # it exited 137 before it did anything; nothing was killed
            if states.attempt_oom(attempt, report):
                kills.setdefault(worker, set()).add(attempt.n)
    for name, report in view.reports.items():
        # The second report of a number that two pods had is kept under a name with its pod uid
        parsed = parse_attempt_name(name)
        number = parsed[1] if parsed else report.attempt
        if states.is_oom(report, number, {}):
            kills.setdefault(report.worker, set()).add(number)
    return {worker: sorted(attempts) for worker, attempts in sorted(kills.items())}


def _evictions(
    record: RunRecord, status: BackendStatus, kills: Mapping[str, list[int]]
) -> dict[str, int]:
    """Attempts by worker that ended through no fault of theirs; a count never falls when the backend forgets."""
    counts = dict(record.evictions)
    for worker, node in status.nodes.items():
        known = kills.get(worker, [])
        seen = sum(
            states.attempt_evicted(attempt, killed=attempt.n in known)
            for attempt in node.attempts
            if attempt.phase.ended
        )
        if seen > counts.get(worker, 0):
            counts[worker] = seen
    return dict(sorted(counts.items()))


def _started(record: RunRecord, status: BackendStatus) -> Any:
    """The times of the record, with the first start of any attempt."""
    starts = [
        attempt.started
        for node in status.nodes.values()
        for attempt in node.attempts
        if attempt.started is not None
    ]
    if record.times.started is not None:
        starts.append(record.times.started)
    first = min(starts, default=None)
    if first == record.times.started:
        return record.times
    return record.times.model_copy(update={"started": first})


# --- a workflow that is gone -------------------------------------------------------------------------------------------


def _decide_gone(view: View, now: float) -> Decision:
    """Resolve a run from its record and the store, since nobody else remembers it (Ruling 23)."""
    wait = _MergeWait(view, now)
    kills = _kills(view, {})
    record = view.record.changed(oom_kills=kills)
    tasks = dict(record.tasks)
    undetermined = []
    for task in view.workflow.tasks:
        plan = view.plans.get(task)
        if tasks.get(task, TaskState.WAITING).final:
            continue
        if plan is not None and plan.split and task in view.markers:
            tasks[task] = TaskState.DONE
        elif task not in record.merge_pending or wait.state(task) is TaskState.FAILED:
            undetermined.append(task)
    if wait.pending:
        after = record.changed(tasks=tasks, merge_pending=wait.pending)
        observed = tuple(Observe(task) for task in _newly_final(view.record, tasks))
        return Decision(after, observed, wait.look_again_at)
    tasks |= dict.fromkeys(undetermined, TaskState.FAILED)
    if all(state is TaskState.DONE for state in tasks.values()):
        end = states.closed(record, RunState.SUCCEEDED, tasks, None, now=now)
    else:
        failed = [task for task, state in tasks.items() if state is TaskState.FAILED]
        message = f"the workflow is gone, and {verdicts.listed(failed)} had not ended"
        if verdict := verdicts.memory_verdict(view, {}, kills):
            message += f"; {verdict.message}"
        end = states.closed(record, RunState.FAILED, tasks, message, now=now)
    observed = tuple(Observe(task) for task in _newly_final(view.record, end.tasks))
    return Decision(end, (*observed, Settle()))


# --- effects -----------------------------------------------------------------------------------------------------------


def _effects(
    view: View,
    status: BackendStatus,
    tasks: Mapping[str, TaskState],
    kills: Mapping[str, list[int]],
) -> tuple[Effect, ...]:
    """Evidence of every attempt of a task that had not ended before; the controller drops what it has kept already."""
    effects: list[Effect] = []
    for worker, node in status.nodes.items():
        task = verdicts.task_of(worker, view.plans)
        if task is None or (
            view.record.tasks.get(task, TaskState.WAITING).final and tasks[task].final
        ):
            continue
        effects += [
            KeepAttempt(
                task,
                worker,
                _as_reported(attempt, view.reports.get(attempt_name(worker, attempt.n))),
                attempt.n in kills.get(worker, []),
            )
            for attempt in node.attempts
            if attempt.phase is not Phase.PENDING or attempt.leaving is not None
        ]
    return tuple(effects)


def _as_reported(attempt: Attempt, report: WorkerReport | None) -> Attempt:
    """Give an attempt with the harness's word where the backend knows only an exit code: deadline, asked, why it failed."""
    if report is None or attempt.reason != "error" or report.pod_uid != attempt.pod_uid:
        return attempt
    return replace(attempt, reason=report.reason, message=report.message or attempt.message)


def _newly_final(record: RunRecord, tasks: Mapping[str, TaskState]) -> list[str]:
    """The tasks that have ended with this look; of those that were skipped only the ones that had pods."""
    before = {task: record.tasks.get(task, TaskState.WAITING) for task in tasks}
    return [
        task
        for task, state in tasks.items()
        if state.final
        and not before[task].final
        and (state is not TaskState.SKIPPED or before[task] is not TaskState.WAITING)
    ]
