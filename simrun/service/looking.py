"""Looking at a run: its record, what was submitted, what the backend says, put together for whoever asks."""

from __future__ import annotations

import contextlib

from simrun.aio.threads import Pool
from simrun.backends.base import Backend, BackendStatus, Followed, QueueState
from simrun.base.errors import BackendUnavailable
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.controller import Controller
from simrun.service.progress import ProgressReader, RunProgress
from simrun.service.runfeed import Seen
from simrun.service.why import RunWhy, why
from simrun.store.runs import RunStore


class Looking:
    """What a session knows of runs."""

    def __init__(
        self, store: RunStore, backend: Backend, controller: Controller, pool: Pool
    ) -> None:
        self.store = store
        self._backend, self._controller, self._pool = backend, controller, pool
        self._progress = ProgressReader(store)

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound, DamagedRecord."""
        return await self._pool.run(self.store.read, run_id)

    async def submission(self, run_id: str) -> Submission:
        """Give what was submitted as a run. Raises NotFound, DamagedRecord."""
        known = self.store.remembered_submission(run_id)
        if known is not None:
            return known
        return await self._pool.run(self.store.submission, run_id)

    async def queues(self) -> list[QueueState]:
        """Give the queues that pods wait in. Raises BackendUnavailable."""
        return await self._backend.queues()

    async def progress(self, run_id: str) -> RunProgress:
        """Give how far a run is now."""
        record, submission, status = await self._look(run_id)
        return await self._pool.run(self._progress.read, record, submission, status)

    async def why(self, run_id: str) -> RunWhy:
        """Say what a run waits for. Raises NotFound, DamagedRecord."""
        record, submission, status = await self._look(run_id)
        in_flight = self._controller.in_flight(run_id)
        held_up = self._controller.held_up(run_id)
        notes = [
            *([f"its submission is tried again: {held_up}"] if held_up else []),
            *self.trouble(),
        ]
        return why(record, submission.workflow, status, in_flight=in_flight, notes=notes)

    async def _look(self, run_id: str) -> tuple[RunRecord, Submission, BackendStatus | None]:
        """Give what is known of a run; no status while the backend does not answer."""
        record = await self._pool.run(self.store.read, run_id)
        submission = await self.submission(run_id)
        status: BackendStatus | None = None
        if record.workflow_name is not None:
            with contextlib.suppress(BackendUnavailable):
                status = await self._backend.status(record.workflow_name)
        return record, submission, status

    async def _seen(self, run_id: str) -> Seen:
        """Look at a run for those who watch it."""
        # The record comes first: what is counted after a terminal record is the last word
        record, submission, status = await self._look(run_id)
        progress = await self._pool.run(self._progress.read, record, submission, status)
        return Seen(record.revision, record.state.terminal and not record.pending, progress)

    def age_s(self) -> float | None:
        """Give the seconds since the backend was last heard of; None for one that is this process itself."""
        return self._backend.age_s() if isinstance(self._backend, Followed) else None

    def trouble(self) -> list[str]:
        """Say what keeps the backend from being followed; empty when nothing does."""
        return self._backend.trouble() if isinstance(self._backend, Followed) else []
