"""Retrying a run: the same run, a new round, only what is not done.

A round has a workflow of its own, since a finished one can't go on; its attempts are numbered on from the highest seen, so that no file
of an earlier attempt is written again. Done tasks keep their output and are left out; failed units are opened again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simrun.argo import run_workflow_name
from simrun.base.errors import Conflict
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.service.states import attempt_of
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.claims import Holder
from simrun.worker.ledger import Ledger
from simrun.worker.protocol import HARNESS_PROTOCOL, UNIT_TRIES
from simrun.worker.units import UnitTable

SERVICE_HOLDER = "service"
"""Name under which the service opens units again."""


def next_round(record: RunRecord, highest: Mapping[str, int]) -> RunRecord:
    """Give the record of the next round of an ended run. `highest` attempt seen by task; a task without one is missing.

    Raises Conflict for a run that has not ended, has something pending, or has succeeded.
    """
    if not record.state.terminal or record.pending:
        raise Conflict(
            f"run {record.id} has not ended: it is {record.state}, or its workflow is being stopped"
        )
    if record.state is RunState.SUCCEEDED:
        raise Conflict(f"run {record.id} has succeeded; there is nothing to retry")
    again = [task for task, state in record.tasks.items() if state is not TaskState.DONE]
    number = record.round + 1
    return record.changed(
        state=RunState.SUBMITTING,
        round=number,
        attempt_base={
            **record.attempt_base,
            **{task: highest[task] + 1 for task in again if task in highest},
        },
        tasks={**record.tasks, **dict.fromkeys(again, TaskState.WAITING)},
        message=None,
        merge_pending={},
        evictions={},
        workflow_name=run_workflow_name(record.id, number),
        workflow_uid=None,
        node=None,
        times=record.times.model_copy(update={"submitted": None, "started": None, "ended": None}),
    )


def prepare_round(store: RunStore, record: RunRecord) -> RunRecord:
    """Give the record of the next round, from what the store says of the attempts so far (blocking).

    Raises Conflict, also when a harness of an image is too old to count attempts over rounds.
    """
    highest = {
        task: max(attempts)
        for task in record.tasks
        if (attempts := list(_attempts(store, record.id, task)))
    }
    after = next_round(record, highest)
    for task, state in record.tasks.items():
        if state is TaskState.DONE:
            continue
        reports = store.reports(record.id, task).values()
        if any(report.protocol < HARNESS_PROTOCOL for report in reports):
            raise Conflict(
                f"run {record.id}: the image of task {task} has a harness that knows no rounds; "
                "resubmit the workflow as a new run, or use an image with a current simrun"
            )
    return after


def open_failed_units(store: RunStore, record: RunRecord, task: str) -> list[int]:
    """Open the failed units of a task again; which they were (blocking). Doing it twice opens nothing more."""
    task_dir = store.layout.run(record.id).task(task)
    table = UnitTable.load(task_dir)
    if table is None or not files.listing(task_dir.failed):
        return []
    holder = Holder(SERVICE_HOLDER, record.round, "service", "service")
    ledger = Ledger(
        task_dir, holder, table.count, tries=UNIT_TRIES, max_evictions=record.max_evictions
    )
    return ledger.reopen_failed()


def _attempts(store: RunStore, run_id: str, task: str) -> Iterable[int]:
    """Every attempt number that left a trace."""
    directory = store.layout.run(run_id).task(task)
    for place in (directory.attempts, directory.reports, directory.logs, directory.memory):
        for name in files.listing(place):
            stem = name.removesuffix(".log").removesuffix(".json")
            if stem.rpartition("-")[2].isdigit():
                yield attempt_of(stem)
