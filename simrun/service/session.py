"""A session: a store, a backend and a controller in this process, for as long as one command lasts.

`simrun run` has one, `simrun serve` has one; opening.py makes it. It holds the lock of the store, so that one process alone follows
its runs.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

from simrun.aio.threads import Pool
from simrun.backends.base import (
    Backend,
    Identity,
    Reviewing,
    Watching,
)
from simrun.base import ids
from simrun.base.clock import Clock
from simrun.base.errors import BackendUnavailable, Conflict
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.scheduler.scheduler import SchedulerSettings
from simrun.service.attachments import Attachment
from simrun.service.controller import Controller
from simrun.service.events import KEPT_S, Events
from simrun.service.index import IndexedRunStore, recent
from simrun.service.limits import Demand, Limits, demand_in, demand_of, demands_in, tables_of
from simrun.service.looking import Looking
from simrun.service.progress import RunProgress
from simrun.service.readiness import StoreCheck
from simrun.service.rounds import prepare_round
from simrun.service.runfeed import RunFeeds
from simrun.service.runquery import Position, RunFilter
from simrun.service.runrow import RunRow
from simrun.service.schedules import Schedules
from simrun.service.snapshots import check_again
from simrun.service.statistics import SessionStatistics
from simrun.service.submission import create_run, new_record
from simrun.service.timings import StoreTimings
from simrun.store.runs import RunStore

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Session(Looking):
    """What one command does with runs."""

    def __init__(
        self,
        store: RunStore,
        backend: Backend,
        controller: Controller,
        pool: Pool,
        clock: Clock,
        *,
        timings: StoreTimings | None = None,
        limits: Limits | None = None,
        schedules: SchedulerSettings | None = None,
    ) -> None:
        super().__init__(store, backend, controller, pool)
        self.limits = limits or Limits()
        self.limits.load = self._demands
        self._timings = timings or StoreTimings()
        self._clock = clock
        self._index_pool = Pool("index", 2)
        self.streams = Pool("streams", 8)
        """For files that are sent or received bit by bit: a slow store holds up no record."""
        self._check = StoreCheck(store.layout.root, clock)
        self.schedules = Schedules(self, pool, clock, schedules)
        """Launch plans; their schedules are fired by `simrun serve` only."""
        self.events = Events(self._recent, clock)
        """What is told of all runs."""
        self.feeds = RunFeeds(self._seen)
        """What is told of the runs that are watched."""

    async def submit(
        self, submission: Submission, attachments: Sequence[Attachment], run_id: str | None = None
    ) -> str:
        """Make a run exist, with the local files it refers to, and start its submission; its id.

        Raises InvalidInput for an id that can't be one, Conflict for one that stands for something else.
        """
        now = self._clock.wall()
        record = new_record(submission, run_id or ids.new_run_id(now), now)
        counted = await self._admit(record.id, submission, attachments)
        try:
            there = await self._pool.run(
                create_run, self.store, record, submission, list(attachments)
            )
        except BaseException:
            if counted:
                self.limits.ended(record.id)
            raise
        self.tell(there)
        if not there.state.terminal:
            self._controller.start_submission(there.id, self._controller.resume or _no_job)
        return there.id

    async def _admit(
        self, run_id: str, submission: Submission, attachments: Sequence[Attachment]
    ) -> bool:
        """Count a new run against the limits of its group; whether it is counted by this. Raises Exhausted, InvalidInput."""
        if not self.limits.bounded or await self._pool.run(self.store.exists, run_id):
            return False
        wanted = await self._pool.run(demand_of, submission, tables_of(attachments))
        return await self.limits.admit(run_id, wanted)

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        """Cancel a run; its workers are given their grace, with `kill` none. A run that has ended is left as it is."""
        with contextlib.suppress(ValueError):
            await self._controller.cancel(run_id)
        if kill:
            record = await self._pool.run(self.store.read, run_id)
            if record.workflow_name is not None:
                await self._backend.stop(record.workflow_name, now=True)

    async def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run: what is not done, again. Raises NotFound, Conflict."""
        record = await self._pool.run(self.store.read, run_id)
        counted = self.limits.bounded and await self.limits.admit(
            run_id, await self._pool.run(demand_in, self.store, run_id)
        )
        try:
            return await self._next_round(record)
        except BaseException:
            if counted:
                self.limits.ended(run_id)
            raise

    async def _next_round(self, record: RunRecord) -> RunRecord:
        run_id = record.id
        after = await self._pool.run(prepare_round, self.store, record)
        await self._pool.run(self.store.mark_live, run_id)
        try:
            await self._pool.run(check_again, self.store, run_id)
        except Conflict:
            await self._pool.run(self.store.tidy, run_id)
            raise
        written = await self._controller.write(record, after)
        if written is None:
            raise Conflict(f"run {run_id} changed meanwhile; try again")
        self._controller.start_submission(run_id, self._controller.resume or _no_job)
        return written

    async def delete(self, run_id: str) -> None:
        """Remove an ended run with all its files; its id is not used again. Raises NotFound, Conflict for one that has not ended."""
        record = await self._pool.run(self.store.read, run_id)
        if not record.state.terminal or record.pending:
            what = "is winding up" if record.state.terminal else f"is {record.state}"
            raise Conflict(f"run {run_id} {what}; cancel it, or wait for its end")
        if record.workflow_name is not None:
            await self._backend.delete(record.workflow_name)
        await self._pool.run(self.store.delete, run_id)
        self.events.gone(record)
        self.feeds.wake(run_id)

    async def _demands(self) -> dict[str, Demand]:
        """Give what the live runs have, for the limits."""
        return await self._pool.run(demands_in, self.store)

    def now(self) -> float:
        """Give the time of this session's clock: seconds since 1970 UTC."""
        return self._clock.wall()

    async def updates(self, run_id: str) -> AsyncIterator[RunProgress]:
        """Yield how far a run is, at each change, until it has ended and nothing of it is pending."""
        last: RunProgress | None = None
        with self.feeds.reading(run_id) as feed:
            async for told in feed.news():
                if told is not None and told.seen.progress != last:
                    yield (last := told.seen.progress)

    def tell(self, record: RunRecord) -> None:
        """Tell whoever watches that a record was written."""
        if record.state.terminal:
            self.limits.ended(record.id)
        self.events.tell(record)
        self.feeds.wake(record.id)

    async def _recent(self) -> list[RunRow]:
        """Give the runs that are live or have ended a short while ago."""
        return await self._pool.run(recent, self.store, self._clock.wall() - KEPT_S)

    async def page(
        self, wanted: RunFilter, *, limit: int, after: Position | None = None
    ) -> list[str]:
        """List runs from the index, newest first, behind a position: rows as JSON objects. Raises BackendUnavailable."""
        if not isinstance(self.store, IndexedRunStore):
            raise BackendUnavailable("this process keeps no index of runs; ask a `simrun serve`")
        # On a local disk, so a store that hangs must not keep it from answering
        return await self._index_pool.run(self.store.index.page, wanted, limit=limit, after=after)

    async def in_pool(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking file work in the pool of this session."""
        return await self._pool.run(fn, *args, **kwargs)

    async def in_index(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what blocks, but needs nothing of the store, in a thread."""
        return await self._index_pool.run(fn, *args, **kwargs)

    async def not_ready(self) -> list[str]:
        """Say what keeps runs from being followed; empty when nothing does."""
        reasons = []
        if problem := await self._check.problem():
            reasons.append(problem)
        statistics = self._pool.statistics
        if statistics.saturated:
            reasons.append(f"all {statistics.threads} file threads are busy: the store may hang")
        return reasons + self.trouble() + self.schedules.trouble()

    @property
    def review(self) -> Callable[[str], Awaitable[Identity | None]] | None:
        """Asks the backend whose token it is; None for a backend that knows nobody."""
        backend = self._backend
        return backend.review if isinstance(backend, Reviewing) else None

    def statistics(self) -> SessionStatistics:
        """Give how everything does."""
        backend = self._backend
        return SessionStatistics(
            controller=self._controller.statistics(),
            pools=[pool.statistics for pool in (self._pool, self._index_pool, self.streams)],
            store=self._timings.by_kind,
            watches=backend.statistics() if isinstance(backend, Watching) else {},
            age_s=self.age_s(),
            events=self.events.seq,
        )

    async def counts(self) -> dict[str, int]:
        """Give how many runs there are, by state. Raises BackendUnavailable."""
        if not isinstance(self.store, IndexedRunStore):
            raise BackendUnavailable("this process keeps no index of runs; ask a `simrun serve`")
        return await self._index_pool.run(self.store.index.counts)

    def close(self) -> None:
        """Give back what the session has for itself."""
        self._check.close()
        self._index_pool.close()
        self.streams.close()


async def _no_job(run_id: str) -> None:
    raise RuntimeError(f"nobody submits run {run_id}")
