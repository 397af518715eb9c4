"""The workflows that an engine knows: those that live, those that ended, and those it must read again when asked."""

from __future__ import annotations

import logging
import signal

from simrun.aio.threads import Pool, in_thread
from simrun.backends.local.attempts import Attempts
from simrun.backends.local.dag import Workflow
from simrun.backends.local.orders import Orders
from simrun.backends.local.settling import Restored, restore
from simrun.backends.local.state import EngineState
from simrun.base.errors import DamagedRecord

logger = logging.getLogger(__name__)


class Registry:
    """Workflows by name. `live` are those that have not ended, which alone are looked at when something may start."""

    def __init__(
        self, state: EngineState, orders: Orders, attempts: Attempts, *, pool: Pool, host: str
    ) -> None:
        self._state, self._orders, self._attempts = state, orders, attempts
        self._pool, self._host = pool, host
        self.live: dict[str, Workflow] = {}
        self._known: dict[str, Workflow] = {}
        self._damaged: dict[str, str] = {}

    async def load(self, now: float) -> None:
        """Take up everything that is on disk, and set aside what has ended; `now` is the wall time."""
        for restored in await in_thread(self._pool, self._read_all, now):
            self._take_up(restored)
        ended = [name for name in self._known if name not in self.live]
        await in_thread(self._pool, self._state.set_aside, ended)
        for name in ended:
            del self._known[name]

    def _read_all(self, now: float) -> list[Restored]:
        loaded = self._state.load(now)
        self._damaged = dict(loaded.damaged)
        return [restore(workflow, self._orders.place) for workflow in loaded.workflows]

    def _take_up(self, restored: Restored) -> None:
        stored = restored.workflow
        workflow = Workflow(
            stored.name,
            stored.run,
            stored.uid,
            stored.pods,
            host=self._host,
            fingerprint=stored.fingerprint,
            priority=stored.priority,
        )
        for worker, outcomes in restored.outcomes.items():
            if worker in workflow.workers:
                self._attempts.restore(workflow, worker, outcomes)
            else:
                logger.error("Workflow %s has records of %s, which it has not", stored.name, worker)
        if stored.stopped:
            self.stop(workflow, signal.SIGTERM)
        self.add(workflow)

    async def find(self, name: str) -> Workflow | None:
        """Give a workflow, from disk if it was set aside; None when there is none. Raises DamagedRecord."""
        if name not in self._known and self._state.is_set_aside(name):
            try:
                stored = await in_thread(self._pool, self._state.read, name)
            except (ValueError, KeyError, TypeError) as error:
                self._damaged[name] = str(error)
                stored = None
            if stored is not None:
                restored = await in_thread(self._pool, restore, stored, self._orders.place)
                if name not in self._known:  # nobody else asked meanwhile
                    self._take_up(restored)
        if name in self._damaged:
            raise DamagedRecord(
                f"workflow {name} of the local engine cannot be read: {self._damaged[name]}"
            )
        return self._known.get(name)

    def add(self, workflow: Workflow) -> Workflow:
        """Add a workflow unless one of its name is known; the one that is known then."""
        there = self._known.setdefault(workflow.name, workflow)
        if there is workflow and not workflow.ended:
            self.live[workflow.name] = workflow
        return there

    def changed(self, workflow: Workflow) -> None:
        """Look at a workflow no more that has ended."""
        if workflow.ended:
            self.live.pop(workflow.name, None)

    def stop(self, workflow: Workflow, number: signal.Signals) -> None:
        """Start nothing more of a workflow, and end what runs: SIGTERM with its grace, SIGUSR1 without."""
        workflow.stop()
        self._attempts.signal(workflow, number)

    def drop(self, name: str) -> bool:
        """Forget a workflow that was removed; whether nothing else is known of its run."""
        self._damaged.pop(name, None)
        workflow = self._known.pop(name, None)
        return workflow is not None and all(
            other.run != workflow.run for other in self._known.values()
        )
