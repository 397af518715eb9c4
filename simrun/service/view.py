"""Gathers all that is known of a run into the View that `decide` works on."""

from __future__ import annotations

from pathlib import Path

from simrun.aio.threads import Pool
from simrun.backends.base import Backend, BackendStatus
from simrun.base.clock import Clock
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.report import WorkerReport
from simrun.model.workflow import Submission
from simrun.service.decision import GONE, Gone, View
from simrun.service.states import task_plans
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.protocol import MERGE_MARKER, worker_name


def has_merge_marker(task_dir: Path) -> bool:
    """Whether the output of a task has the marker of a merge, out/.simrun-merged.

    The directories are listed, the task's first: on NFS a listing is answered by the server, while a lookup may be answered from a
    cached "no such file" from before the pod wrote the marker, or made out/ itself.
    """
    return files.listed(task_dir, "out", MERGE_MARKER)


async def status_of(backend: Backend, record: RunRecord) -> BackendStatus | Gone | None:
    """Ask the backend for the workflow of a run; None while there is nothing to ask for. Raises BackendUnavailable."""
    if record.workflow_name is None or record.state is RunState.SUBMITTING:
        return None
    status = await backend.status(record.workflow_name)
    return GONE if status is None else status


class ViewReader:
    """Reads views; remembers since when a marker is awaited."""

    def __init__(self, store: RunStore, pool: Pool, clock: Clock) -> None:
        self._store, self._pool, self._clock = store, pool, clock
        self._awaited: dict[tuple[str, str], float] = {}

    def remembered(self, run_id: str) -> tuple[RunRecord, Submission] | None:
        """Give record and submission of a run that was running when this process last read or wrote its record; no file is looked at."""
        record = self._store.remembered(run_id)
        submission = self._store.remembered_submission(run_id)
        if record is None or submission is None or record.state is not RunState.RUNNING:
            return None
        return record, submission

    async def latest(self, run_id: str) -> tuple[RunRecord, Submission, bool]:
        """Give record and submission of a run, and whether they are remembered and not read. Raises NotFound, DamagedRecord."""
        if (known := self.remembered(run_id)) is not None:
            return *known, True
        record, submission = await self._pool.run(self.load, run_id)
        return record, submission, False

    def load(self, run_id: str) -> tuple[RunRecord, Submission]:
        """Give record and submission of a run (blocking). Raises NotFound, DamagedRecord."""
        return self._store.read(run_id), self._store.submission(run_id)

    async def read(
        self,
        record: RunRecord,
        submission: Submission,
        status: BackendStatus | Gone | None,
        *,
        in_flight: bool,
    ) -> View:
        """Gather the view of a live run: one hop for all its files."""
        tasks = [
            task
            for task in submission.workflow.tasks
            if _worth_a_look(record, submission, status, task)
        ]
        markers: frozenset[str] = frozenset()
        reports: dict[str, WorkerReport] = {}
        if tasks:
            markers, reports = await self._pool.run(self._files, record, submission, status, tasks)
        return View(
            record=record,
            workflow=submission.workflow,
            types=submission.types,
            plans=task_plans(record),
            status=status,
            markers=markers,
            reports=reports,
            waited=self.waited(record),
            in_flight=in_flight,
        )

    def _files(
        self,
        record: RunRecord,
        submission: Submission,
        status: BackendStatus | Gone | None,
        tasks: list[str],
    ) -> tuple[frozenset[str], dict[str, WorkerReport]]:
        markers: set[str] = set()
        reports: dict[str, WorkerReport] = {}
        run = self._store.layout.run(record.id)
        for task in tasks:
            split = record.plans[task].split
            if split and _may_have_merged(task, status) and has_merge_marker(run.task(task).root):
                markers.add(task)
            if _has_reports(task, submission, record) and _has_attempts(task, split, status):
                reports |= self._store.reports(record.id, task)
        return frozenset(markers), reports

    def waited(self, record: RunRecord) -> dict[str, float]:
        """Give by task the seconds for which the marker of its merge has been awaited.

        What the record said when this process first heard of the wait, and from then on the monotonic clock: a step of the wall clock
        moves nothing. Told of a record right after it was written, it starts at once.
        """
        now = self._clock.monotonic()
        current = {(record.id, task) for task in record.merge_pending}
        for key in [key for key in self._awaited if key[0] == record.id and key not in current]:
            del self._awaited[key]
        waited = {}
        for task, since in record.merge_pending.items():
            began = now - max(0.0, self._clock.wall() - since)
            waited[task] = now - self._awaited.setdefault((record.id, task), began)
        return waited


def _worth_a_look(
    record: RunRecord, submission: Submission, status: BackendStatus | Gone | None, task: str
) -> bool:
    """Whether a task may have left something in the store that a decision needs; a bare command leaves nothing."""
    plan = record.plans.get(task)
    if plan is None or record.tasks.get(task, TaskState.WAITING).final:
        return False
    if plan.split and _may_have_merged(task, status):
        return True
    return _has_reports(task, submission, record) and _has_attempts(task, plan.split, status)


def _may_have_merged(task: str, status: BackendStatus | Gone | None) -> bool:
    """The marker is worth a look once the coordinator has succeeded, or when nobody can say whether it has.

    Of a workflow that has ended the backend may know only what its pods left, and those may be gone.
    """
    if not isinstance(status, BackendStatus):
        return True
    node = status.nodes.get(worker_name(task, 0))
    return status.phase.ended if node is None else node.phase.ended


def _has_reports(task: str, submission: Submission, record: RunRecord) -> bool:
    """A bare command leaves no report: no directory to list."""
    kind = submission.types[submission.workflow.tasks[task].type]
    return record.plans[task].split or kind.under_harness


def _has_attempts(task: str, split: bool, status: BackendStatus | Gone | None) -> bool:
    if not isinstance(status, BackendStatus):
        return True
    return (worker_name(task, 0) if split else task) in status.nodes
