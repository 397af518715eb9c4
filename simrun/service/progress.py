"""How far a run is, for people: counted from the store and the backend, never kept in the record."""

from __future__ import annotations

from dataclasses import dataclass

from simrun.backends.base import BackendStatus, Node, Phase
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.workflow import Submission
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.protocol import TaskDir, merge_name, parse_claim_name, worker_name
from simrun.worker.units import UnitTable

_TOTALS_KEPT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """One task. done and failed count units of a split task, `total` is None while nobody knows how many there are.

    running: pods that run now. retried: attempts beyond the first of each worker. started, ended: wall seconds.
    """

    task: str
    state: TaskState
    split: bool = False
    done: int = 0
    failed: int = 0
    total: int | None = None
    running: int = 0
    retried: int = 0
    message: str = ""
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A run at one moment."""

    run: str
    name: str
    state: RunState
    message: str | None
    tasks: tuple[TaskProgress, ...]
    started: float | None
    ended: float | None


class ProgressReader:
    """Counts; remembers totals, which do not change."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._totals: dict[tuple[str, str], int] = {}

    def read(
        self, record: RunRecord, submission: Submission, status: BackendStatus | None
    ) -> RunProgress:
        """Count one run (blocking: two listings for each split task)."""
        return RunProgress(
            run=record.id,
            name=record.name,
            state=record.state,
            message=record.message,
            tasks=tuple(self._task(record, task, status) for task in submission.workflow.tasks),
            started=record.times.started,
            ended=record.times.ended,
        )

    def _task(self, record: RunRecord, task: str, status: BackendStatus | None) -> TaskProgress:
        plan = record.plans.get(task)
        split = plan is not None and plan.split
        names = [task]
        if split and plan is not None:
            names = [*(worker_name(task, index) for index in range(plan.pods)), merge_name(task)]
        nodes = [node for name in names if status and (node := status.nodes.get(name))]
        done, failed, total = self._units(record, task) if split else (0, 0, None)
        return TaskProgress(
            task=task,
            state=record.tasks.get(task, TaskState.WAITING),
            split=split,
            done=done,
            failed=failed,
            total=total,
            running=sum(_runs(node) for node in nodes),
            retried=sum(max(0, len(node.attempts) - 1) for node in nodes),
            message=_trouble(nodes),
            started=min(
                (t for node in nodes for a in node.attempts if (t := a.started)), default=None
            ),
            ended=max((t for node in nodes for a in node.attempts if (t := a.ended)), default=None),
        )

    def _units(self, record: RunRecord, task: str) -> tuple[int, int, int | None]:
        directory = self._store.layout.run(record.id).task(task)
        done = {int(name) for name in files.listing(directory.done) if name.isdigit()}
        failed = {
            claim[0]
            for name in files.listing(directory.failed)
            if (claim := parse_claim_name(name)) and claim[0] not in done
        }
        return len(done), len(failed), self._total(record.id, directory, task)

    def _total(self, run_id: str, directory: TaskDir, task: str) -> int | None:
        """Give how many units a task has; None while its table is not published. Called in several threads at once."""
        known = self._totals.get((run_id, task))
        if known is None and (table := UnitTable.load(directory)) is not None:
            if len(self._totals) >= _TOTALS_KEPT:
                self._totals.clear()  # what never changes is read again
            known = self._totals[run_id, task] = table.count
        return known


def _runs(node: Node) -> bool:
    return bool(node.attempts) and node.attempts[-1].phase is Phase.RUNNING


def _trouble(nodes: list[Node]) -> str:
    """What was wrong with the last attempt that did not end well."""
    ended = [
        attempt
        for node in nodes
        for attempt in node.attempts
        if attempt.phase in (Phase.FAILED, Phase.ERROR)
    ]
    if not ended:
        return ""
    last = max(ended, key=lambda attempt: attempt.ended or 0)
    return last.reason or last.message
