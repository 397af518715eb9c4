"""The controller: follows the workflows of the runs and records their end.

    events of the backend ─┐
    timers (merge grace)  ─┼─> queue ─> reconcile_run ─> view ─> decide ─> evidence ─> write if unchanged ─> settle
    resync                ─┘

It keeps nothing in memory that a restart would miss: what it remembers only saves writes or measures waits on the monotonic clock.
Reads and writes of files are one hop into a pool of threads each; no call of the backend is made under a record lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from simrun.aio.threads import Pool
from simrun.backends.base import Backend, BackendStatus
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import BackendUnavailable, DamagedRecord, NotFound, SimrunError
from simrun.base.term import UNLIMITED, NotLeading, Term, check
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.tasktype import TaskType
from simrun.service import states
from simrun.service.decide import decide
from simrun.service.decision import GONE, Gone, Settle
from simrun.service.effects import Effects, FileWork
from simrun.service.jobs import Job, Jobs
from simrun.service.queue import Priority, WorkQueue
from simrun.service.states import (
    MERGE_MARKER_GRACE_S,
    attempt_of,
    is_oom,
    task_plans,
    task_states,
)
from simrun.service.view import ViewReader, has_merge_marker
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


WORKERS = 8
RESYNC_S = 600.0
WORKFLOW_KEPT_S = 3600.0
"""How long a workflow is left after the end of its run."""
RECONCILE_TIMEOUT_S = 120.0
UNATTENDED_S = 60.0
"""How long a run may be submitting with nobody here at it: between its creation and its submission lies a moment, no more."""


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
    at = SystemClock().wall() if now is None else now
    return states.closed(record, state, tasks, message, now=at, **update)


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
        self._resync_s = resync_s
        self._on_change = on_change or (lambda _record: None)
        self._queue = WorkQueue(clock=self._clock)
        self._view = ViewReader(store, self._pool, self._clock)
        self._effects = Effects(store, resources, backend, self._pool, self._clock)
        self._jobs = Jobs(fail=self._fail_submission, ended=self._queue.add)
        self._unattended: dict[str, float] = {}
        self._swept: set[str] = set()
        """Runs queued by a resync of which no event has come since."""
        self._drift = 0
        self._woken = asyncio.Event()
        self._started = self._clock.wall()

    # --- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow events, timers and resyncs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events(), name="backend events")
            group.create_task(self._resync(), name="resync")
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"reconcile {number}")

    async def _follow_events(self) -> None:
        async for run_id in self.backend.events():
            self._swept.discard(run_id)
            self._queue.add(run_id)

    async def _resync(self) -> None:
        first = True
        while True:
            try:
                for run_id in await self._pool.run(self.store.live_ids):
                    if (
                        not first
                    ):  # the first look finds what happened before this process was there
                        self._swept.add(run_id)
                    self._queue.add(run_id, Priority.RESYNC)
                first = False
            except OSError as error:
                log.warning("the live runs can't be listed now: %s", error)
            await self.wait_for_wake(self._resync_s)

    async def _work(self) -> None:
        while (run_id := await self._queue.get()) is not None:
            try:
                async with asyncio.timeout(RECONCILE_TIMEOUT_S):
                    await self.reconcile_run(run_id)
                self._swept.discard(run_id)
                self._queue.forget(run_id)
            except NotLeading:
                self._queue.retry(run_id)  # the end of this process is near; no word for each run
            except (BackendUnavailable, TimeoutError, OSError) as error:
                delay = self._queue.retry(run_id)
                log.warning(
                    "cannot reconcile run %s now, again in %.1f s: %s", run_id, delay, error
                )
            except Exception:
                # One run's trouble must not stop the others
                delay = self._queue.retry(run_id)
                log.exception("reconciling run %s failed, again in %.1f s", run_id, delay)
            finally:
                self._queue.done(run_id)

    def wake(self) -> None:
        """Make the controller look at all live runs now instead of at the next resync."""
        self._woken.set()

    def look_at(self, run_id: str) -> None:
        """Queue one run."""
        self._swept.discard(run_id)
        self._queue.add(run_id)

    @property
    def drift(self) -> int:
        """How many records a resync changed of which no event had told; 0 as long as the events of the backend are whole."""
        return self._drift

    async def wait_for_wake(self, timeout_s: float) -> None:
        """Wait until woken or until `timeout_s` seconds have passed; clears the wake."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

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
        while True:
            record = await self._pool.run(self.store.read, run_id)
            if record.state is not RunState.SUBMITTING:
                return
            # Its workflow may exist: the terminal record has the cancellation pending
            end = closed(record, RunState.FAILED, record.tasks, message, now=self._clock.wall())
            if await self.write_if_unchanged(record, end):
                return

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
                end = closed(record, RunState.FAILED, record.tasks, message, now=self._clock.wall())
                await self.write_if_unchanged(record, end)
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
            record, submission = await self._pool.run(self._view.load, run_id)
        except NotFound:
            return  # deleted meanwhile, or its creation has not come to its end
        if record.state.terminal:
            if record.pending:
                await self.settle(run_id)
            else:
                await self._pool.run(self.store.tidy, run_id)
                await self._delete_workflow(record)
            return
        if record.state is RunState.SUBMITTING:
            self._attend(run_id)
            return
        status = await self._status(record)
        view = await self._view.read(record, submission, status, in_flight=self.in_flight(run_id))
        decision = decide(view, self._clock.wall())
        # Evidence first: once the record says that a task has ended nobody looks at its attempts again, so a crash between the
        # two would lose it. Seen with the kills that were decided just now; kept twice it is the same
        work = self._effects.files_of(replace(view, record=decision.record), decision.effects)
        if decision.record is record or decision.record == record:
            if work is not None:
                await self._pool.run(self._effects.write, work)
        else:
            written = await self.write(record, decision.record, first=work)
            if written is None:
                self._queue.add(
                    run_id
                )  # it changed while we looked: decide again on what it is now
                return
            if run_id in self._swept:
                self._drift += 1
                log.warning("a resync found run %s changed, of which no event had told", run_id)
            self._view.waited(written)  # a wait that begins is measured from now
        if decision.look_again_at is not None:
            self._queue.add_after(run_id, max(0.05, decision.look_again_at - self._clock.wall()))
        if any(isinstance(effect, Settle) for effect in decision.effects):
            await self.settle(run_id)

    def _attend(self, run_id: str) -> None:
        """Take up a submission that nobody here is at, once that has been so for too long.

        One that `recover` left alone as made since the start, by a clock that was set back meanwhile; or whose caller was cancelled.
        """
        if self.in_flight(run_id):
            self._unattended.pop(run_id, None)
            return
        now = self._clock.monotonic()
        left = UNATTENDED_S - (now - self._unattended.setdefault(run_id, now))
        if left > 0:
            self._queue.add_after(run_id, left)
        elif self.resume is not None:
            del self._unattended[run_id]
            self.start_submission(run_id, self.resume)

    async def _delete_workflow(self, record: RunRecord) -> None:
        """Delete the workflow of a run that ended long ago and has nothing pending: its logs are kept, its pods take up room.

        Until then it is there for whoever looks with the tools of the backend. A service that was away is told of what it left.
        """
        ended, name = record.times.ended, record.workflow_name
        if ended is None or name is None:
            return
        wait = ended + WORKFLOW_KEPT_S - self._clock.wall()
        if wait > 0:
            self._queue.add_after(record.id, wait)
        else:
            await self.backend.delete(name)

    async def _status(self, record: RunRecord) -> BackendStatus | Gone | None:
        if record.workflow_name is None or record.state is RunState.SUBMITTING:
            return None
        status = await self.backend.status(record.workflow_name)
        return GONE if status is None else status

    async def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> bool:
        """Write `after` when the record on disk is still `before`; whether it was written."""
        return await self.write(before, after) is not None

    async def write(
        self, before: RunRecord, after: RunRecord, *, first: FileWork | None = None
    ) -> RunRecord | None:
        """Like write_if_unchanged; gives what was written, with its new revision. `first` is written before, in the same hop."""
        written = await self._pool.run(self._write, before, after, first)
        if written is not None:
            self._on_change(written)
        return written

    def _write(
        self, before: RunRecord, after: RunRecord, first: FileWork | None
    ) -> RunRecord | None:
        """Write in a thread, with the epoch of the term; the term is looked at here, at the last moment."""
        if self._term.epoch is not None:
            after = after.changed(epoch=self._term.epoch)
        check(self._term, f"the record of run {before.id}")
        if first is not None:
            self._effects.write(first)
        return self.store.write_if_unchanged(before, after)

    # --- ends ----------------------------------------------------------------------------------------------------------

    async def cancel(self, run_id: str) -> None:
        """Cancel a run: write it cancelled, then stop its workflow and release its node.

        Raises NotFound (a KeyError) for an unknown run, ValueError for one that has ended.
        """
        while True:
            record = await self._pool.run(self.store.read, run_id)
            if record.state.terminal:
                raise ValueError(f"run {run_id} has ended: {record.state}")
            end = closed(
                record,
                RunState.CANCELLED,
                record.tasks,
                "cancelled",
                now=self._clock.wall(),
            )
            if await self.write_if_unchanged(record, end):
                break
        await self.settle(run_id)

    async def settle(self, run_id: str) -> None:
        """Do what is pending of a terminal run: keep its logs, stop its workflow, release its node.

        What fails stays pending and is tried again; a run that was deleted meanwhile is ignored. While the run is still being
        submitted in this process nothing is done: its node may be reserved and its workflow created after we looked. The end of the
        submission queues the run again.
        """
        if self.in_flight(run_id):
            return
        check(self._term, f"run {run_id}")
        try:
            record = await self._pool.run(self.store.read, run_id)
        except NotFound:
            return
        if not record.state.terminal or not record.pending:
            return
        after = await self._effects.settle(record)
        if after != record and not await self.write_if_unchanged(record, after):
            self._queue.add(run_id)
            return
        if after.pending:
            self._queue.retry(run_id)
        else:
            self._queue.add_after(run_id, WORKFLOW_KEPT_S)
