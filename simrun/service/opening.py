"""Opening a session: the lock of its store, the store, the backend, the controller, and what runs beside it.

    lock -> store -> backend -> controller (recovers, then follows) -> session; housekeeping and, in `serve`, schedules beside it

Leaving goes the other way round; runs go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from simrun.aio.threads import Pool
from simrun.backends.base import Backend
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import Locked
from simrun.base.term import UNLIMITED, Term
from simrun.model.record import RunRecord
from simrun.scheduler.scheduler import SchedulerSettings
from simrun.service.controller import Controller
from simrun.service.housekeeping import keep_house
from simrun.service.index import IndexedRunStore
from simrun.service.limits import Limits
from simrun.service.runindex import RunIndex
from simrun.service.session import Session
from simrun.service.submission import Submitter
from simrun.service.timings import StoreTimings
from simrun.store.lock import StoreLock
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.store.sweep import uploads_left

log = logging.getLogger(__name__)

TAKE_AGAIN_S = 5.0

Work = Callable[[], Coroutine[Any, Any, None]]
BackendFactory = Callable[[RunStore, Pool], AbstractAsyncContextManager[Backend]]
"""Makes the backend of a session; entering starts it, leaving stops what should not outlive the session."""


@asynccontextmanager
async def open_session(
    root: Path,
    backend: BackendFactory,
    *,
    command: str = "run",
    url: str | None = None,
    index: Path | None = None,
    owner: tuple[int, int] | None = None,
    resync_s: float = 600.0,
    clock: Clock | None = None,
    term: Term = UNLIMITED,
    limits: Limits | None = None,
    schedules: SchedulerSettings | None = None,
) -> AsyncIterator[Session]:
    """Open a store, take its lock, and follow its runs until left.

    With a term of leadership the lock is only a hint: a service that leads no more may still hold it, and is fenced off by its epoch.

    `url` is where this process listens. `index` is the file of the index, None for a process that lists no runs.
    `owner` is the (uid, gid) that pods run as, where that is not this process's own. Raises Locked, UnsupportedStore.
    """
    clock = clock or SystemClock()
    timings = StoreTimings()
    pool = Pool("files", 8, measure=timings.measure)
    lock = StoreLock(root)
    store: RunStore | IndexedRunStore = RunStore(root, owner=owner)
    try:
        await pool.run(store.open)
        since = clock.wall()

        async def take() -> bool:
            return await pool.run(_take, lock, command, since, url, term)

        taken = await take()
        await pool.run(store.finish_deletions)
        # Before any request comes: what is there is nobody's
        left = await pool.run(uploads_left, store.layout)
        if index is not None:
            store = IndexedRunStore(root, await pool.run(RunIndex, index), owner=owner)
        if term.epoch is not None:
            store.leads = term.valid
        async with backend(store, pool) as live:
            controller, session = _made(
                store,
                live,
                pool,
                clock,
                resync_s=resync_s,
                term=term,
                limits=limits,
                timings=timings,
                schedules=schedules,
            )
            beside: dict[str, Work] = {"housekeeping": partial(keep_house, store, pool, left)}
            if not taken:
                beside["lock"] = partial(_take_later, take)
            if command == "serve":
                beside["schedules"] = session.schedules.run
            async with session.feeds, _running(controller, session, beside):
                yield session
    finally:
        if isinstance(store, IndexedRunStore):
            await pool.run(store.index.close)
        await pool.run(lock.release)
        pool.close()


def _made(
    store: RunStore,
    live: Backend,
    pool: Pool,
    clock: Clock,
    *,
    resync_s: float,
    term: Term,
    limits: Limits | None,
    timings: StoreTimings,
    schedules: SchedulerSettings | None,
) -> tuple[Controller, Session]:
    """Make a controller and the session around it, which is told of every record that is written."""
    resources = ResourceStore(store.layout.root)

    def tell(record: RunRecord) -> None:
        session.tell(record)

    controller = Controller(
        store,
        resources,
        live,
        pool=pool,
        clock=clock,
        resync_s=resync_s,
        on_change=tell,
        term=term,
    )
    controller.resume = Submitter(store, resources, live, pool, clock, write=controller.write)
    session = Session(
        store, live, controller, pool, clock, timings=timings, limits=limits, schedules=schedules
    )
    return controller, session


@asynccontextmanager
async def _running(
    controller: Controller, session: Session, beside: Mapping[str, Work]
) -> AsyncIterator[None]:
    """Have the controller follow its runs, and what goes on beside it, for as long as this lasts."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(controller.run(), name="controller")]
        await controller.recover()
        # Live runs are followed already; the history of a large store takes its time
        tasks += [group.create_task(work(), name=name) for name, work in beside.items()]
        try:
            yield
        finally:
            controller.close()
            for task in tasks:
                task.cancel()
            session.close()


def _take(lock: StoreLock, command: str, now: float, url: str | None, term: Term) -> bool:
    """Take the lock of a store, or, for a leader, leave it to a service that leads no more. Raises Locked."""
    try:
        lock.acquire(command, now, url)
    except Locked:
        holder = lock.holder()
        if term.epoch is None or (holder is not None and holder.command != command):
            raise
        return False
    return True


async def _take_later(take: Callable[[], Awaitable[bool]]) -> None:
    """Take the lock once its holder has gone: who looks for the server of a store finds it there."""
    log.warning("the store is locked by a service that leads no more")
    while True:
        await asyncio.sleep(TAKE_AGAIN_S)
        try:
            if await take():
                return
        except Locked as error:
            log.warning("the store is used beside this service: %s", error)
