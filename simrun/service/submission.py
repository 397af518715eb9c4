"""From a submission to a running workflow, each step such that doing it again is harmless.

    create      directory, files, submission.json, live mark, run.json (state submitting): now the run exists
    the job     unit tables -> plans -> settings.json -> reserve a node -> backend.submit -> running

A service that dies in between leaves a run that is `submitting`; the next one runs the job again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from simrun.aio.threads import Pool
from simrun.argo import workflow_name
from simrun.backends.base import Backend
from simrun.base import ids
from simrun.base.clock import Clock
from simrun.base.errors import Conflict, InvalidInput
from simrun.model.inputs import input_refs, open_inputs, task_params
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.settings import MergeSettings, PluginRef, TaskSettings, UnitSource
from simrun.model.tasktype import TaskType, parse_plugin
from simrun.model.workflow import Submission
from simrun.planning import plan_run
from simrun.service.attachments import Attachment, attach
from simrun.service.rounds import open_failed_units
from simrun.service.snapshots import local_data, pinned, uses
from simrun.store import codec
from simrun.store.layout import RunDir
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.store.snapshots import SnapshotStore
from simrun.worker import files, units

log = logging.getLogger(__name__)

Write = Callable[[RunRecord, RunRecord], Awaitable[RunRecord | None]]
"""Writes a record that is still what it was, and tells everybody; the controller's `write`."""


def new_record(submission: Submission, run_id: str, now: float) -> RunRecord:
    """Give the first record of a run. Raises InvalidInput for an id that can't be one."""
    if problem := ids.run_id_problem(run_id):
        raise InvalidInput.one("id", problem, value=run_id)
    request = submission.request
    return RunRecord(
        id=run_id,
        group=request.group,
        owner=request.owner,
        name=request.name or submission.workflow.name,
        labels=request.labels,
        state=RunState.SUBMITTING,
        tasks=dict.fromkeys(submission.workflow.tasks, TaskState.WAITING),
        max_evictions=request.max_evictions,
        reserve_node=request.reserve_node,
        priority=request.priority,
        # Known before anything is created, so that a cancellation at any moment knows what to stop
        workflow_name=workflow_name(run_id),
        times=RunTimes(created=now),
        # Without defaults: a newer simrun with more fields must know a repeated submission again. Without who made it: a token
        # may have another name by the second time
        fingerprint=ids.fingerprint(
            submission.model_dump(
                mode="json",
                by_alias=True,
                exclude_defaults=True,
                exclude={"request": {"owner"}},
            )
        ),
    )


def create_run(
    store: RunStore, record: RunRecord, submission: Submission, attachments: list[Attachment]
) -> RunRecord:
    """Make the run exist (blocking); one that exists with the same submission is given as it is.

    Raises InvalidInput for snapshots that it may not use, Conflict when the id stands for another submission, or was deleted.
    """
    snapshots = SnapshotStore(store.layout)
    named = uses(submission) or local_data(submission)
    with snapshots.held() if named else nullcontext():
        if named and not store.exists(record.id):
            submission = pinned(snapshots, submission)
        there = store.create(record, submission, prepare=lambda run: attach(run, attachments))
    if there.fingerprint != record.fingerprint:
        raise Conflict(
            f"run {record.id} exists with another submission "
            f"(fingerprint {there.fingerprint[:12]}, this one has {record.fingerprint[:12]}); "
            "submit this one under another id or key"
        )
    return there


class Submitter:
    """The submission job; also the controller's `resume`."""

    def __init__(
        self,
        store: RunStore,
        resources: ResourceStore,
        backend: Backend,
        pool: Pool,
        clock: Clock,
        *,
        write: Write,
    ) -> None:
        self._store, self._resources, self._backend = store, resources, backend
        self._pool, self._clock, self._write = pool, clock, write

    async def __call__(self, run_id: str) -> None:
        """Plan a run that is `submitting` and start its workflow. Raises what fails; the controller records it."""
        submission, plans = await self._pool.run(self._prepare, run_id)
        record = await self._update(run_id, plans=plans)
        if record is None:
            return
        if record.reserve_node and record.node is None:
            node = await self._backend.reserve(run_id)
            record = await self._update(run_id, node=node)
            if record is None:
                await self._backend.release(node, run_id)
                return
        name = await self._backend.submit(
            record.with_workflow(submission.workflow), plans, submission.types
        )
        times = record.times.model_copy(update={"submitted": self._clock.wall()})
        tasks = {
            task: state if state.final else TaskState.WAITING
            for task, state in record.tasks.items()
        }
        running = await self._update(
            run_id, state=RunState.RUNNING, workflow_name=name, times=times, tasks=tasks
        )
        if running is None:
            # Cancelled while we submitted: the terminal record has pending_cancel, but it may have been settled before
            # the workflow existed
            await self._backend.stop(name)

    async def _update(self, run_id: str, **update: Any) -> RunRecord | None:
        """Change the record of a run that is still submitting; None when it is not any more."""
        for _ in range(100):
            record = await self._pool.run(self._store.read, run_id)
            if record.state is not RunState.SUBMITTING:
                return None
            written = await self._write(record, record.changed(**update))
            if written is not None:
                return written
            await asyncio.sleep(0)
        raise Conflict(f"the record of run {run_id} changes faster than it can be written")

    # --- files (in a thread) ---------------------------------------------------------------------------------------------

    def _prepare(self, run_id: str) -> tuple[Submission, dict[str, TaskPlan]]:
        submission = self._store.submission(run_id)
        record = self._store.read(run_id)
        run = self._store.layout.run(run_id)
        counts = {
            task: self._write_units(run, submission, task) for task in submission.workflow.tasks
        }
        used = {
            name: self._resources.of_type(name)
            for name in {task.type for task in submission.workflow.tasks.values()}
        }
        plans = plan_run(
            submission.workflow,
            submission.types,
            used,
            counts,
            kills=_kill_limits(self._store, record) if record.round else None,
        )
        for task, state in record.tasks.items():
            if state is TaskState.DONE:
                continue
            self._write_settings(run, record, submission, task)
            if record.round:
                open_failed_units(self._store, record, task)
        self._store.give_tree(run)
        return submission, plans

    def _write_units(self, run: RunDir, submission: Submission, task: str) -> int | None:
        """Write the unit table of a split task, unless a plugin makes it in the pod; the number of units."""
        kind = submission.types[submission.workflow.tasks[task].type]
        if kind.split is None or kind.split.units.plugin is not None:
            return None
        task_dir = run.task(task)
        known = units.UnitTable.load(task_dir)
        if known is not None:
            return known.count
        design = kind.split.units.model_dump(mode="json", exclude_none=True)
        if kind.split.units.table is not None:
            design = {"table": units.read_table(run.code / kind.split.units.table)}
        rows = units.expand(design, seed_base=kind.split.seed.base)
        task_dir.root.mkdir(parents=True, exist_ok=True)
        made = units.make_units(
            rows,
            seed_base=kind.split.seed.base,
            task=task,
            seed_across=kind.split.seed.across,
            replicates=kind.split.replicates,
        )
        return units.write_table(task_dir, made)

    def _write_settings(
        self, run: RunDir, record: RunRecord, submission: Submission, task: str
    ) -> None:
        """Write settings.json and the directories a pod starts in. Made again by a resume, hence not fsynced."""
        task_dir = run.task(task)
        settings = task_settings(record, submission, task)
        for directory in (task_dir.root, task_dir.logs, task_dir.reports):
            directory.mkdir(parents=True, exist_ok=True)
        if settings.units is None:
            task_dir.out.mkdir(exist_ok=True)
        files.replace(task_dir.settings, codec.encode(settings), durable=False)


def _kill_limits(store: RunStore, record: RunRecord) -> dict[str, list[int]]:
    """Memory, in bytes, at which attempts of earlier rounds were killed, by task: a round starts above it."""
    return {
        task: [
            item.memory
            for item in store.evidence(record.id, task)
            if item.oom and item.memory is not None
        ]
        for task, state in record.tasks.items()
        if state is not TaskState.DONE
    }


def task_settings(record: RunRecord, submission: Submission, task: str) -> TaskSettings:
    """Give what the harness of a task needs to know."""
    item = submission.workflow.tasks[task]
    kind = submission.types[item.type]
    split = kind.split
    return TaskSettings(
        run=record.id,
        task=task,
        type=item.type,
        command=kind.command,
        plugin=_plugin(kind.plugin),
        params=task_params(kind, item),
        inputs=input_refs(submission.workflow, submission.types, task),
        open_inputs=open_inputs(submission.workflow, submission.types, task),
        outputs=kind.outputs,
        stage=kind.stage,
        units=None
        if split is None
        else UnitSource(
            kind="table" if split.units.plugin is None else "plugin",
            plugin=_plugin(split.units.plugin),
            replicates=split.replicates,
            seed_base=split.seed.base,
            seed_across=split.seed.across,
        ),
        merge=None if split is None else _merge(kind),
        failures_allowed=kind.failures.allowed,
        retries=kind.retries,
        unit_timeout_s=kind.unit_timeout,
        max_evictions=record.max_evictions,
        seed_base=split.seed.base if split else 0,
    )


def _merge(kind: TaskType) -> MergeSettings:
    if kind.merge is None:
        return MergeSettings(kind="table")
    return MergeSettings(
        plugin=_plugin(kind.merge.plugin), command=kind.merge.command, kind=kind.merge.kind
    )


def _plugin(text: str | None) -> PluginRef | None:
    if text is None:
        return None
    source, function, is_file = parse_plugin(text)
    if is_file:
        return PluginRef(file=f"code/{source}", function=function)
    return PluginRef(module=source, function=function)
