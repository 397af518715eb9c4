"""The attempts that run: from their order to the record of their end.

The end of a supervisor makes its pidfd readable, whoever started it, so nothing is looked at again and again. All that ended
meanwhile is read in one hop to a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simrun.aio.threads import Pool, in_thread
from simrun.backends.local.capacity import Capacity, Pick
from simrun.backends.local.dag import Try, Workflow
from simrun.backends.local.launcher import Launcher
from simrun.backends.local.orders import Orders, StartRefused
from simrun.backends.local.processes import Identity, boot_id
from simrun.backends.local.records import Exit
from simrun.backends.local.settling import Alive, Job, Outcome, settle_all
from simrun.backends.local.spawning import CANNOT_START
from simrun.base.clock import Clock

logger = logging.getLogger(__name__)

_AGAIN_S = 1.0


@dataclass(slots=True)
class Running:
    """An attempt that was ordered and has not ended. `job` finds out what became of it."""

    workflow: Workflow
    worker: str
    job: Job
    cpus: float
    memory: int
    pidfd: int | None = None
    """Of its supervisor, once there is one."""
    signal: signal.Signals | None = None
    """To be sent as soon as there is a supervisor."""


class Attempts:
    """Starts attempts, watches them, and takes in how they ended.

    `changed` is called on the loop for each workflow of which something changed, `ended` after attempts have ended or one may
    be tried again, when others may start.
    """

    def __init__(
        self,
        capacity: Capacity,
        orders: Orders,
        launcher: Launcher,
        *,
        pool: Pool,
        clock: Clock,
        changed: Callable[[Workflow], None],
        ended: Callable[[], None],
    ) -> None:
        self._capacity, self._orders, self._launcher = capacity, orders, launcher
        self._pool, self._clock = pool, clock
        self._changed, self._ended = changed, ended
        self._running: dict[str, Running] = {}
        self._over: list[Running] = []
        self._any_over = asyncio.Event()
        self._turn = asyncio.Event()
        """Set, and replaced by a new one, whenever attempts have ended."""
        self._timers: set[asyncio.TimerHandle] = set()

    def __len__(self) -> int:
        """How many attempts were ordered and have not ended."""
        return len(self._running)

    # --- start -----------------------------------------------------------------------------------------------------------

    def start(self, pick: Pick) -> None:
        """Order the next attempt of a worker."""
        uid = uuid.uuid4().hex
        running, attempt = self._begin(pick, uid, pick.worker.next_memory, self._clock.wall())
        try:
            order = self._orders.make(pick.workflow, pick.worker.pod, attempt)
        except StartRefused as error:
            running.job.given = Exit(
                uid=uid,
                code=CANNOT_START,
                reason="start_error",
                message=str(error),
                ended=self._clock.wall(),
                memory=attempt.memory,
            )
            self._is_over(running)
        else:
            self._launcher.send(order)
        self._changed(pick.workflow)

    def _begin(self, pick: Pick, uid: str, memory: int, created: float) -> tuple[Running, Try]:
        """Count an attempt as running, from its order on."""
        workflow, worker = pick
        name = worker.pod.worker
        attempt = workflow.begin(name, uid, memory, created)
        place = self._orders.place(workflow.name, name, attempt.index)
        job = Job(place=place, uid=uid, memory=memory)
        running = Running(workflow, name, job, worker.pod.cpus, memory)
        self._running[uid] = running
        self._capacity.take(running.cpus, memory)
        return running, attempt

    def restore(self, workflow: Workflow, worker: str, outcomes: Iterable[Outcome]) -> None:
        """Take up the attempts of a worker that an earlier engine started, in order."""
        for outcome in outcomes:
            seen = outcome.start if isinstance(outcome, Alive) else outcome.exit
            pick = Pick(workflow, workflow.workers[worker])
            created = seen.started if seen.started is not None else self._clock.wall()
            memory = seen.memory or pick.worker.next_memory
            running, _ = self._begin(pick, seen.uid, memory, created)
            self._apply(running, outcome)

    # --- watch -----------------------------------------------------------------------------------------------------------

    def supervised(self, uid: str, pid: int, start: int | None) -> None:
        """Watch the supervisor that took an order; the launcher calls this."""
        running = self._running.get(uid)
        if running is None:
            return
        running.workflow.started(running.worker, uid, self._clock.wall())
        self._changed(running.workflow)
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._is_over(running)  # as quick as that
            return
        except OSError as error:
            logger.warning("Process %d cannot be watched yet: %s", pid, error)
            self._later(_AGAIN_S, self.supervised, uid, pid, start)
            return
        self._watch(running, Identity(boot_id(), pid, start or 0), pidfd)

    def _watch(self, running: Running, supervisor: Identity, pidfd: int) -> None:
        running.job.known, running.pidfd = supervisor, pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._is_over, running)
        if running.signal is not None:
            _send(pidfd, running.signal)

    def _unwatch(self, running: Running) -> None:
        if running.pidfd is not None:
            asyncio.get_running_loop().remove_reader(running.pidfd)
            os.close(running.pidfd)
            running.pidfd = None

    def signal(self, workflow: Workflow, number: signal.Signals) -> None:
        """Send a signal to the supervisors of a workflow, to those that are yet to come too."""
        for running in self._running.values():
            if running.workflow is workflow:
                running.signal = number
                if running.pidfd is not None:
                    _send(running.pidfd, number)

    # --- end -------------------------------------------------------------------------------------------------------------

    def _is_over(self, running: Running) -> None:
        """Queue an attempt whose supervisor has ended for its verdict."""
        self._unwatch(running)
        self._over.append(running)
        self._any_over.set()

    async def collect(self) -> None:
        """Read how attempts ended, for as long as the engine lives."""
        while True:
            await self._any_over.wait()
            self._any_over.clear()
            batch, self._over = self._over, []
            jobs = [running.job for running in batch]
            outcomes = await in_thread(self._pool, settle_all, jobs)
            for running, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, OSError):
                    logger.error("The end of %s is not known yet: %s", running.job.place, outcome)
                    self._later(_AGAIN_S, self._is_over, running)
                else:
                    self._apply(running, outcome)
                    self._changed(running.workflow)
            self._ended()
            self._turn.set()
            self._turn = asyncio.Event()

    def _apply(self, running: Running, outcome: Outcome) -> None:
        """Take in what became of an attempt: it ended, or lives under a supervisor that was not known."""
        workflow, name = running.workflow, running.worker
        if isinstance(outcome, Alive):
            start = outcome.start
            workflow.started(name, start.uid, start.started)
            self._watch(running, Identity(start.boot, start.pid, start.start), outcome.pidfd)
            return
        del self._running[running.job.uid]
        self._capacity.give(running.cpus, running.memory)
        wait = workflow.end(name, outcome.exit)
        if wait is None:
            return
        if wait:
            self._later(wait, self._again, workflow, name)
        else:
            workflow.again(name)

    def _again(self, workflow: Workflow, name: str) -> None:
        workflow.again(name)
        self._ended()

    async def wait_for_end(self) -> None:
        """Wait until attempts have ended, any of them."""
        await self._turn.wait()

    def _later(self, delay_s: float, function: Callable[..., None], *args: object) -> None:
        def call() -> None:
            self._timers.discard(timer)
            function(*args)

        timer = asyncio.get_running_loop().call_later(delay_s, call)
        self._timers.add(timer)

    def close(self) -> None:
        """Let go of all that runs: supervisors live on, a later engine finds them."""
        for timer in self._timers:
            timer.cancel()
        for running in self._running.values():
            self._unwatch(running)


def _send(pidfd: int, number: signal.Signals) -> None:
    """Send a signal to a supervisor; of one that has ended the loop is about to hear."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
