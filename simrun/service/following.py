"""What makes the controller look at a run, and the tasks that look.

events of the backend ─┐
timers                ─┼─> queue ─> a few tasks, each with one run at a time
resync                ─┘
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from simrun.aio.threads import Pool
from simrun.backends.base import Backend
from simrun.base.errors import BackendUnavailable, DamagedRecord
from simrun.base.histogram import Histogram
from simrun.base.logs import bound
from simrun.base.term import NotLeading
from simrun.service.queue import Priority, WorkQueue
from simrun.store.runs import RunStore

log = logging.getLogger(__name__)

WORKERS = 8
RESYNC_S = 600.0
LOOK_TIMEOUT_S = 120.0


class Following:
    """Feeds the queue and works it off; `look` is one pass over a run."""

    def __init__(
        self,
        store: RunStore,
        backend: Backend,
        queue: WorkQueue,
        pool: Pool,
        *,
        look: Callable[[str], Awaitable[None]],
        resync_s: float = RESYNC_S,
    ) -> None:
        self._store, self._backend, self._queue, self._pool = store, backend, queue, pool
        self._look = look
        self._resync_s = resync_s
        self._woken = asyncio.Event()
        self._swept: set[str] = set()
        """Runs queued by a resync of which no event has come since."""
        self._checked: set[str] = set()
        """Those of them that are being looked at."""
        self.looks = Histogram()
        """Seconds that looks took."""
        self.drift = 0
        """How many records a resync changed of which no event had told; 0 as long as the events of the backend are whole."""

    async def run(self) -> None:
        """Follow events, timers and resyncs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_events(), name="backend events")
            group.create_task(self._resync(), name="resync")
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"reconcile {number}")

    def wake(self) -> None:
        """Begin the next resync now."""
        self._woken.set()

    async def wait_for_wake(self, timeout_s: float) -> None:
        """Wait until woken or until `timeout_s` seconds have passed; clears the wake."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def told(self, run_id: str) -> None:
        """Queue a run of which somebody has told something."""
        self._swept.discard(run_id)
        self._checked.discard(run_id)
        self._queue.add(run_id)

    def changed(self, run_id: str) -> None:
        """Count it when the record of a run changed in a look that only a resync had asked for."""
        if run_id in self._checked:
            self.drift += 1
            log.warning("a resync found run %s changed, of which no event had told", run_id)

    async def _follow_events(self) -> None:
        async for run_id in self._backend.events():
            self.told(run_id)

    async def _resync(self) -> None:
        first = True
        while True:
            try:
                for run_id in await self._pool.run(self._store.live_ids):
                    # The first look finds what happened before this process was there
                    if not first:
                        self._swept.add(run_id)
                    self._queue.add(run_id, Priority.RESYNC)
                first = False
            except OSError as error:
                log.warning("the live runs can't be listed now: %s", error)
            await self.wait_for_wake(self._resync_s)

    async def _work(self) -> None:
        while (run_id := await self._queue.get()) is not None:
            if run_id in self._swept:
                self._swept.discard(run_id)
                self._checked.add(run_id)
            begun = time.monotonic()
            try:
                with bound(run=run_id):
                    async with asyncio.timeout(LOOK_TIMEOUT_S):
                        await self._look(run_id)
                self._queue.forget(run_id)
            except NotLeading:
                self._again(run_id)  # the end of this process is near; no word for each run
            except (BackendUnavailable, DamagedRecord, TimeoutError, OSError) as error:
                delay = self._again(run_id)
                log.warning(
                    "cannot reconcile run %s now, again in %.1f s: %s", run_id, delay, error
                )
            except Exception:
                # One run's trouble must not stop the others
                delay = self._again(run_id)
                log.exception("reconciling run %s failed, again in %.1f s", run_id, delay)
            finally:
                self.looks.observe(time.monotonic() - begun)
                self._checked.discard(run_id)
                self._queue.done(run_id)

    def _again(self, run_id: str) -> float:
        """Queue a run whose look failed; the delay in seconds."""
        if run_id in self._checked:
            self._swept.add(run_id)
        return self._queue.retry(run_id)
