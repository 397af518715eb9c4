"""Jobs: the submissions that run in this process.

A job may take long (an image is built) and may have to wait (the backend is away, no node is free); it is tried until it can go on. What it raises
otherwise fails the run, and that is told however long the store takes to let it be written: nobody else would look at the run again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from simrun.base.clock import Clock
from simrun.base.errors import BackendUnavailable, NotFound, SimrunError
from simrun.base.logs import bound
from simrun.base.term import NotLeading

log = logging.getLogger(__name__)

Job = Callable[[str], Awaitable[None]]

FIRST_TRY_AGAIN_S, LAST_TRY_AGAIN_S = 0.1, 60.0
UNATTENDED_S = 60.0
"""How long a run may be submitting with nobody here at it: between its creation and its submission lies a moment, no more."""


class Jobs:
    """`fail(run, message)` makes a failed run of one that is still submitting; `ended(run)` is called after each job."""

    def __init__(
        self,
        clock: Clock,
        *,
        fail: Callable[[str, str], Awaitable[None]],
        ended: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._fail, self._ended = fail, ended
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held_up: dict[str, str] = {}
        self._unattended: dict[str, float] = {}
        self._closing = False

    def start(self, run_id: str, job: Job) -> None:
        """Run a job in the background, unless one of the run is there or this is closed."""
        if self._closing or run_id in self._tasks:
            return
        self._unattended.pop(run_id, None)
        # Kept here and ended by close: the one place where a task lives outside of a TaskGroup
        task = asyncio.get_running_loop().create_task(
            self._run(run_id, job), name=f"submit {run_id}"
        )
        self._tasks[run_id] = task

    def running(self, run_id: str) -> bool:
        """Whether a job of the run is there."""
        return run_id in self._tasks

    def held_up(self, run_id: str) -> str:
        """Say why a job could not go on the last time; "" when nothing held it up."""
        return self._held_up.get(run_id, "")

    @property
    def counts(self) -> tuple[int, int]:
        """How many jobs are there, and how many of them could not go on the last time."""
        return len(self._tasks), len(self._held_up)

    def attend(self, run_id: str, job: Job | None) -> float:
        """Take up a submission that nobody here is at, once that has been so for too long; the seconds until then.

        One that was left alone at the start as made since, by a clock that was set back meanwhile; or whose caller was cancelled.
        """
        if run_id in self._tasks:
            return 0.0
        now = self._clock.monotonic()
        left = UNATTENDED_S - (now - self._unattended.setdefault(run_id, now))
        if left <= 0 and job is not None:
            self.start(run_id, job)
        return max(0.0, left)

    def close(self) -> None:
        """Start no more, and cancel what runs without waiting for it."""
        self._closing = True
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, run_id: str, job: Job) -> None:
        try:
            with bound(run=run_id):
                await self._until_available(run_id, job)
        except (asyncio.CancelledError, NotLeading):
            raise
        except Exception as error:
            if isinstance(error, SimrunError | ValueError):
                log.warning("submission of run %s failed: %s", run_id, error)
            else:
                log.exception("submission of run %s failed", run_id)
            text = "; ".join(str(error).splitlines())
            await self._tell_failed(run_id, f"submission failed: {text}")
        finally:
            self._tasks.pop(run_id, None)
            self._held_up.pop(run_id, None)
            self._ended(run_id)

    async def _until_available(self, run_id: str, job: Job) -> None:
        """Run a submission; what can't be had now, the backend itself or a node, is waited for. Cancelling the run ends it."""
        delay = FIRST_TRY_AGAIN_S
        while True:
            try:
                await job(run_id)
            except NotLeading:
                raise  # the next leader takes it up
            except BackendUnavailable as error:
                self._held_up[run_id] = str(error)
                log.warning("run %s can't be submitted now: %s", run_id, error)
            else:
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_TRY_AGAIN_S)

    async def _tell_failed(self, run_id: str, message: str) -> None:
        """Fail a submission, however long the store takes to let it be written: nobody else would look at the run again."""
        delay = FIRST_TRY_AGAIN_S
        while True:
            try:
                await self._fail(run_id, message)
                return
            except NotFound:
                return  # deleted meanwhile
            except OSError as error:
                log.warning("that run %s failed can't be written now: %s", run_id, error)
                await asyncio.sleep(delay)
                delay = min(LAST_TRY_AGAIN_S, 2 * delay)
