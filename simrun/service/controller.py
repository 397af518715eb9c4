"""The controller: follows the workflows of the runs and records their end.

    queue ─> reconcile_run ─> view ─> decide ─> evidence ─> write if unchanged ─> settle

It keeps nothing in memory that a restart would miss: what it remembers only saves reads and writes, or measures waits on the monotonic
clock. A record that is taken from memory is compared with the one on disk by the write, or, when nothing is to be written, by a read.
Reads and writes of files are one hop into a pool of threads each; no call of the backend is made under a record lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from simrun.aio.threads import Pool
from simrun.backends.base import Backend
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import DamagedRecord, NotFound, SimrunError
from simrun.base.term import UNLIMITED, Term, check
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission
from simrun.service import states
from simrun.service.decide import decide
from simrun.service.decision import Decision, Settle
from simrun.service.effects import WORKFLOW_KEPT_S, Effects, FileWork
from simrun.service.following import RESYNC_S, Following
from simrun.service.jobs import Job, Jobs
from simrun.service.queue import Priority, WorkQueue
from simrun.service.records import Records
from simrun.service.states import MERGE_MARKER_GRACE_S, attempt_of, is_oom, task_plans, task_states
from simrun.service.statistics import ControllerStatistics
from simrun.service.tally import Tally
from simrun.service.view import ViewReader, has_merge_marker, status_of
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore

__all__ = [
    "MERGE_MARKER_GRACE_S",
    "Controller",
    "attempt_of",
    "closed",
    "has_merge_marker",
    "is_oom",
    "task_plans",
    "task_states",
]

log = logging.getLogger(__name__)


def closed(
    record: RunRecord,
    state: RunState,
    tasks: Mapping[str, TaskState],
    message: str | None,
    *,
    now: float | None = None,
    **update: object,
) -> RunRecord:
    """Give the terminal record of a run, ended now (see states.closed, which takes its time from the caller)."""
    now = SystemClock().wall() if now is None else now
    return states.closed(record, state, tasks, message, now=now, **update)


class Controller:
    """Maps what the backend says onto the records of the runs."""

    def __init__(
        self,
        store: RunStore,
        resources: ResourceStore,
        backend: Backend,
        types: Mapping[str, TaskType] | None = None,
        *,
        pool: Pool | None = None,
        clock: Clock | None = None,
        resync_s: float = RESYNC_S,
        on_change: Callable[[RunRecord], None] | None = None,
        term: Term = UNLIMITED,
    ) -> None:
        self._term = term
        self.store = store
        self.backend = backend
        self.types = dict(types or {})
        """Types that submissions may name without defining them."""
        self.resume: Job | None = None
        """How a submission that a stopped service left is taken up again; set by the submission module."""
        self._pool = pool or Pool("files", 8)
        self._clock = clock or SystemClock()
        self._queue = WorkQueue(clock=self._clock)
        self._view = ViewReader(store, self._pool, self._clock)
        self._tally = Tally()
        self._effects = Effects(
            store, resources, backend, self._pool, self._clock, tally=self._tally
        )
        self._records = Records(
            store, self._effects, self._pool, term, on_change, tally=self._tally
        )
        self._jobs = Jobs(self._clock, fail=self._fail_submission, ended=self._queue.add)
        self._following = Following(
            store, backend, self._queue, self._pool, look=self.reconcile_run, resync_s=resync_s
        )
        self._started = self._clock.wall()

    # --- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow events, timers and resyncs until cancelled."""
        await self._following.run()

    def wake(self) -> None:
        """Make the controller look at all live runs now instead of at the next resync."""
        self._following.wake()

    async def wait_for_wake(self, timeout_s: float) -> None:
        """Wait until woken or until `timeout_s` seconds have passed; clears the wake."""
        await self._following.wait_for_wake(timeout_s)

    def statistics(self) -> ControllerStatistics:
        """Give how it does."""
        submissions, held_up = self._jobs.counts
        return ControllerStatistics(
            queue=self._queue.statistics(),
            waits=self._queue.waits,
            looks=self._following.looks,
            drift=self._following.drift,
            submissions=submissions,
            held_up=held_up,
            tally=self._tally,
        )

    def close(self) -> None:
        """Take no more submissions and don't wait for the running ones: a build may take an hour.

        A run that is left submitting is resumed by `recover` at the next start.
        """
        self._jobs.close()
        self._queue.close()

    # --- submissions ---------------------------------------------------------------------------------------------------

    def start_submission(self, run_id: str, job: Job) -> None:
        """Run the submission of a run in the background; see `in_flight`.

        A job that raises fails a run that is still submitting; its workflow may exist, so it is cancelled.
        """
        self._jobs.start(run_id, job)

    def in_flight(self, run_id: str) -> bool:
        """Whether the submission of a run runs in this process."""
        return self._jobs.running(run_id)

    def held_up(self, run_id: str) -> str:
        """Say why the submission of a run could not go on the last time; "" when nothing held it up."""
        return self._jobs.held_up(run_id)

    async def _fail_submission(self, run_id: str, message: str) -> None:
        record = await self._pool.run(self.store.read, run_id)
        # Its workflow may exist: the terminal record has the cancellation pending
        while record.state is RunState.SUBMITTING:
            if await self._end(record, RunState.FAILED, message):
                return
            record = await self._pool.run(self.store.read, run_id)

    async def recover(self) -> None:
        """Settle what a stopped service left; called once, at the start.

        A run that has been submitting since before this controller was made has lost its submission: it is resumed. Runs that
        were submitted since then may be in flight and are left alone.
        """
        for run_id in await self._pool.run(self.store.live_ids):
            try:
                record = await self._pool.run(self.store.read, run_id)
            except (NotFound, DamagedRecord) as error:
                log.warning("run %s is skipped: %s", run_id, error)
                continue
            if record.state.terminal:
                self._queue.add(run_id, Priority.RESYNC)
            elif record.workflow_name is None:
                message = "the record has no workflow name: it was written by an older simrun"
                await self._end(record, RunState.FAILED, message)
            elif record.state is RunState.SUBMITTING and record.times.created <= self._started:
                if self.resume is not None and not self.in_flight(run_id):
                    self.start_submission(run_id, self.resume)
            else:
                self._queue.add(run_id, Priority.RESYNC)

    # --- reconciling ---------------------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Bring the records of all live runs up to date: one pass over each."""
        for run_id in await self._pool.run(self.store.live_ids):
            try:
                await self.reconcile_run(run_id)
            except (SimrunError, OSError) as error:
                log.warning("run %s is skipped in this pass: %s", run_id, error)

    async def reconcile_run(self, run_id: str) -> None:
        """Bring the record of one run up to date and carry out what follows from it. Raises NotLeading."""
        check(self._term, f"run {run_id}")
        try:
            record, submission, remembered = await self._view.latest(run_id)
        except NotFound:
            return  # deleted meanwhile, or its creation has not come to its end
        wait = 0.0
        if record.state is RunState.RUNNING:
            await self._follow(record, submission, remembered=remembered)
        elif record.state is RunState.SUBMITTING:
            wait = self._jobs.attend(run_id, self.resume)
        elif record.pending:
            await self.settle(run_id)
        else:
            await self._pool.run(self.store.tidy, run_id)
            wait = await self._effects.delete_workflow(record)
        if wait > 0:
            self._queue.add_after(run_id, wait)

    async def _follow(self, record: RunRecord, submission: Submission, *, remembered: bool) -> None:
        """Decide on a run that is running, and write what was decided."""
        run_id = record.id
        status = await status_of(self.backend, record)
        view = await self._view.read(record, submission, status, in_flight=self.in_flight(run_id))
        decision = decide(view, self._clock.wall())
        # With the kills that were decided just now
        work = self._effects.files_of(replace(view, record=decision.record), decision.effects)
        if not await self._keep(record, decision, work, remembered):
            self._queue.add(run_id)  # it changed while we looked: decide again on what it is now
            return
        if decision.look_again_at is not None:
            self._queue.add_after(run_id, max(0.05, decision.look_again_at - self._clock.wall()))
        if any(isinstance(effect, Settle) for effect in decision.effects):
            await self.settle(run_id)

    async def _keep(
        self, record: RunRecord, decision: Decision, work: FileWork | None, remembered: bool
    ) -> bool:
        """Keep evidence and record, in one hop; False when `record` is not what is on disk."""
        if decision.record is record or decision.record == record:
            known = work is None and not remembered
            return known or await self._records.unchanged(record, work)
        written = await self._records.write(record, decision.record, work)
        if written is None:
            return False
        self._following.changed(record.id)
        self._view.waited(written)  # a wait that begins is measured from now
        return True

    async def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> bool:
        """Write `after` when the record on disk is still `before`; whether it was written."""
        return await self.write(before, after) is not None

    async def write(self, before: RunRecord, after: RunRecord) -> RunRecord | None:
        """Like write_if_unchanged; gives what was written, with its new revision."""
        return await self._records.write(before, after)

    # --- ends ----------------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str) -> None:
        """Cancel a run: write it cancelled, then stop its workflow and release its node.

        Raises NotFound (a KeyError) for an unknown run, ValueError for one that has ended.
        """
        while True:
            record = await self._pool.run(self.store.read, run_id)
            if record.state.terminal:
                raise ValueError(f"run {run_id} has ended: {record.state}")
            if await self._end(record, RunState.CANCELLED, "cancelled"):
                break
        await self.settle(run_id)

    async def _end(self, record: RunRecord, state: RunState, message: str) -> bool:
        """Write the end of a run as it stands; whether the record was still what it is taken for."""
        end = closed(record, state, record.tasks, message, now=self._clock.wall())
        return await self.write_if_unchanged(record, end)

    async def settle(self, run_id: str) -> None:
        """Do what is pending of a terminal run: keep its logs, stop its workflow, release its node.

        What fails stays pending and is tried again; a run that was deleted meanwhile is ignored. One that is still being submitted here
        is left to the end of that: its node may be reserved and its workflow created after we looked.
        """
        if self.in_flight(run_id):
            return
        check(self._term, f"run {run_id}")
        try:
            record = await self._pool.run(self.store.read, run_id)
        except NotFound:
            return
        if not (record.state.terminal and record.pending):
            return
        after = await self._effects.settle(record)
        if after != record and not await self.write_if_unchanged(record, after):
            self._queue.add(run_id)
        elif after.pending:
            self._queue.retry(run_id)
        else:
            self._queue.add_after(run_id, WORKFLOW_KEPT_S)
