"""LocalBackend: runs the pods of runs as supervised processes of this machine.

The engine decides when an attempt starts; everything else an attempt needs is with its supervisor, which outlives the
engine. So what is in memory here can be read again from the state directory: entering takes up what lives, and leaving
lets it run, unless it was told to end it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import Self

from simrun.aio.threads import Pool, in_thread
from simrun.argo.names import run_workflow_name
from simrun.backends.base import BackendStatus, QueueState, Quota
from simrun.backends.local import groups
from simrun.backends.local.attempts import Attempts
from simrun.backends.local.capacity import Capacity, next_pick
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.dag import Workflow
from simrun.backends.local.launcher import Launcher
from simrun.backends.local.orders import Orders
from simrun.backends.local.processes import boot_id
from simrun.backends.local.registry import Registry
from simrun.backends.local.state import EngineState
from simrun.backends.local.subscriptions import Subscriptions
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import BackendError, BackendUnavailable, Conflict, DamagedRecord
from simrun.model import priorities
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType
from simrun.pods import Pod, PodConfig, pods_of
from simrun.worker import cgroup

PodsOf = Callable[[RunRecord, Mapping[str, TaskPlan], Mapping[str, TaskType], PodConfig], list[Pod]]

_PRESENCE_MAX_S = 10.0
_CHUNK = 2**16


class LocalBackend:
    """The local engine; an asynchronous context manager. simrun.backends.base.Backend says what its methods promise.

    `end_attempts`: leaving ends what runs, with its grace, and waits for it, instead of leaving it to a later engine (`serve`).
    Where it is a set, that is done to these runs only, and it may grow meanwhile: a foreground `run` ends its own, and leaves
    what others left as it was. `environ` is where PATH and the values of secrets come from.
    """

    def __init__(
        self,
        config: LocalConfig,
        *,
        end_attempts: bool | Set[str] = False,
        pods: PodsOf = pods_of,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.host = socket.gethostname()
        self._end_attempts = end_attempts
        self._clock = clock or SystemClock()
        self._pods = pods
        self._pool = Pool("engine", 2)
        self._slow_pool = Pool("engine-slow", 2)
        """For the run store, which may hang, and what may take long; the engine itself waits for neither."""
        self._state = EngineState(config.state_dir)
        self._capacity = Capacity(config.cpus, config.memory)
        environ = dict(os.environ if environ is None else environ)
        self._orders = Orders(config, self._state, environ, host=self.host)
        self._launcher = Launcher(config.state_dir / "engine.log", self._pool)
        self._attempts = Attempts(
            self._capacity,
            self._orders,
            self._launcher,
            pool=self._pool,
            clock=self._clock,
            changed=self._changed,
            ended=self._advance,
        )
        self._subscriptions = Subscriptions()
        self._workflows = Registry(
            self._state, self._orders, self._attempts, pool=self._pool, host=self.host
        )
        self._reserved: str | None = None
        self._closing = False
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    # --- life ----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the state, take up what an earlier engine left, and go on with it.

        Raises Locked when another engine has the state, InvalidInput for a state_dir that is not on a local disk.
        """
        try:
            await in_thread(self._pool, self._open)
            await self._workflows.load(self._clock.wall())
        except BaseException:
            self._let_go()
            raise
        await self._group.__aenter__()
        for name, work in {
            "zygote": self._launcher.run(self._attempts.supervised),
            "attempts that ended": self._attempts.collect(),
            "presence": self._be_present(),
        }.items():
            self._tasks.append(self._group.create_task(work, name=f"local engine: {name}"))
        self._advance()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close. What went wrong inside the engine is raised as an ExceptionGroup."""
        try:
            await self.close(kill=self._end_attempts)
        finally:
            for task in self._tasks:
                task.cancel()
            # The group cancels whoever is inside when a task of it fails, and takes that back here
            ours = isinstance(error, asyncio.CancelledError)
            try:
                await self._group.__aexit__(*((kind, error, traceback) if ours else (None,) * 3))
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self._attempts.close()
        self._state.close()
        self._pool.close()
        self._slow_pool.close()

    async def close(self, *, kill: bool | Set[str] = False) -> None:
        """Start nothing any more. `kill`: end what runs (of these runs), with its grace, and wait until it is gone."""
        self._closing = True
        ends = [
            workflow
            for workflow in self._workflows.live.values()
            if kill is True or (kill and workflow.run in kill)
        ]
        for workflow in ends:
            await self.stop(workflow.name)
        while any(workflow.running for workflow in ends) and not any(
            task.done() for task in self._tasks
        ):
            await self._attempts.wait_for_end()
        self._subscriptions.close()

    def _open(self) -> None:
        """Take the state and find out what this machine allows (blocking)."""
        _check_system()
        self._state.open()
        self._reserved = self._state.reserved()
        if self.config.enforce != "polled":
            self._orders.cgroup = groups.find_parent(cgroup.find())

    # --- the protocol of backends ----------------------------------------------------------------------------------------

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        """Start the workflow of a run; durable before anything of it runs. Raises InvalidInput for a priority that is none here."""
        if record.priority is not None and record.priority not in priorities.ORDER:
            raise priorities.unknown(record.priority, priorities.ORDER, "on this machine")
        name = run_workflow_name(record.id, record.round)
        known = await self._workflows.find(name)
        if known is None:
            pods = self._pods(record, plans, types, self.config)
            uid = uuid.uuid4().hex
            there = await in_thread(self._pool, self._state.create, name, record, uid, pods)
            known = self._workflows.add(
                Workflow(
                    name,
                    record.id,
                    there,
                    pods,
                    host=self.host,
                    fingerprint=record.fingerprint,
                    priority=record.priority,
                )
            )
            self._changed(known)
            self._advance()
        if (known.run, known.fingerprint) != (record.id, record.fingerprint):
            raise Conflict(
                f"workflow {name} exists and belongs to run {known.run}, not {record.id} as it was submitted"
            )
        return name

    async def status(self, name: str) -> BackendStatus | None:
        """Give the state of a workflow. Raises DamagedRecord for one that cannot be read."""
        workflow = await self._workflows.find(name)
        return None if workflow is None else workflow.status()

    async def stop(self, name: str, *, now: bool = False) -> None:
        """End all attempts of a workflow and start none any more; returns when they were told. `now`: without grace."""
        workflow = self._workflows.live.get(name)
        if workflow is None:
            return
        try:
            if not workflow.stopped:
                await in_thread(self._pool, self._state.mark_stopped, name)
        finally:
            # Also when the disk is full: only a later engine would not know of it, and what asked will ask again
            self._workflows.stop(workflow, signal.SIGUSR1 if now else signal.SIGTERM)
            self._changed(workflow)
            self._advance()

    async def delete(self, name: str) -> None:
        """Remove a workflow, after its attempts have ended."""
        await self.stop(name)
        try:
            workflow = await self._workflows.find(name)
        except DamagedRecord:
            workflow = None
        while workflow is not None and workflow.running:
            await self._attempts.wait_for_end()
        await in_thread(self._pool, self._state.remove, name)
        last_of_its_run = self._workflows.drop(name)
        if workflow is None:
            return
        if last_of_its_run:
            scratch = Path(self.config.mounts(workflow.run).scratch) / workflow.run
            await in_thread(self._slow_pool, shutil.rmtree, scratch, ignore_errors=True)
        self._subscriptions.publish(workflow.run)

    async def reserve(self, run: str) -> str:
        """Take this machine for one run: others start nothing, and it starts when nothing else runs."""
        holder = await in_thread(self._pool, self._state.reserve, run)
        if holder != run:
            raise BackendUnavailable(f"{self.host} is reserved for run {holder}")
        self._reserved = run
        return self.host

    async def release(self, node: str | None, run: str) -> None:
        """Give the machine back to all."""
        if node not in (self.host, None):
            return
        await in_thread(self._pool, self._state.release, run)
        self._reserved = await in_thread(self._pool, self._state.reserved)
        self._advance()

    async def queues(self) -> list[QueueState]:
        """Give the one queue of this machine."""
        capacity, reserved = self._capacity, self._reserved
        waiting = sum(
            len(names) for one in self._workflows.live.values() for names in one.ready.values()
        )
        return [
            QueueState(
                name=self.host,
                active=True,
                message=f"reserved for run {reserved}" if reserved else "",
                waiting=waiting,
                admitted=capacity.holders,
                resources={
                    "cpu": Quota(given=capacity.cpus, used=round(capacity.used_cpus, 6)),
                    "memory": Quota(given=capacity.memory, used=capacity.used_memory),
                },
            )
        ]

    async def logs(self, name: str, worker: str, attempt: int) -> AsyncIterator[bytes]:
        """Give the log of an attempt; of a harness that never came to have one, what it wrote to stderr."""
        workflow = await self._workflows.find(name)
        if workflow is None or worker not in workflow.workers:
            return
        pod = workflow.workers[worker].pod
        index = attempt - pod.attempt_base
        places = (
            self._orders.log(workflow.run, pod, index),
            self._orders.place(name, worker, index).errors,
        )
        for place in places:
            offset = 0
            while chunk := await in_thread(self._slow_pool, _read, place, offset):
                yield chunk
                offset += len(chunk)
            if offset:
                return

    def events(self) -> AsyncIterator[str]:
        """Yield ids of runs of which something changed, from now on until the engine is closed."""
        return self._subscriptions.subscribe()

    # --- inside ----------------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Start what may start now."""
        while not self._closing:
            pick = next_pick(self._workflows.live.values(), self._capacity, self._reserved)
            if pick is None:
                return
            self._attempts.start(pick)

    def _changed(self, workflow: Workflow) -> None:
        """Tell everybody that something of a workflow changed."""
        self._workflows.changed(workflow)
        self._subscriptions.publish(workflow.run)

    async def _be_present(self) -> None:
        """Show supervisors that an engine is there."""
        interval = min(_PRESENCE_MAX_S, self.config.orphan_s / 10)
        while True:
            await in_thread(self._pool, self._state.beat)
            await asyncio.sleep(interval)


def _check_system() -> None:
    """Raise BackendError where processes cannot be watched as this engine does it."""
    boot_id()  # read now, in a thread, and remembered
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        raise BackendError(
            f"the local engine needs Linux 5.3 or newer, with pidfd_open allowed: {error}"
        ) from error


def _read(path: Path, offset: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(_CHUNK)
    except FileNotFoundError:
        return b""
