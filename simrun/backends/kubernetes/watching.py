"""What is known of workflows and pods: three watches, the tables they keep, and who is told of what changes.

The tables tell which run to look at, so that nobody polls; a sweep names every run with a workflow or a pod every 10 minutes besides. They
remember what pods said before they went, since no later read brings it back. And what is said of a workflow comes from them, with a read of
the workflow itself where the pods leave something open (`reading`). While a watch is not alive, it comes from consistent reads; and that a
workflow does not exist always does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import NoReturn, Self

from simrun.backends.base import BackendStatus
from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.attempts import Surroundings
from simrun.backends.kubernetes.backoff import Timing
from simrun.backends.kubernetes.facts import PodFact, WorkflowFact
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.reading import READ_S, WorkflowReader
from simrun.backends.kubernetes.reflector import Reflector, ReflectorStatistics, Resource
from simrun.backends.kubernetes.session import KubeSession
from simrun.backends.kubernetes.status import status_of
from simrun.backends.kubernetes.tables import Hints, PodTable, WorkflowTable
from simrun.backends.kubernetes.workloads import WorkloadTable
from simrun.model import labels
from simrun.model.cluster import ClusterConfig

_log = logging.getLogger(__name__)

SWEEP_S = 600.0
FRESH_S = 75.0
"""Age of a table up to which it is relied on: bookmarks come each minute."""
FAILING_S = 20.0
"""An API server that is restarted is back sooner."""
STALE_S = 150.0
"""Age of a table at which it counts as not followed any more; two silences of a watch."""
NO_WORKLOAD = "Kueue has not made a workload of it: either it does so right now, or the WorkloadPriorityClass of the pod does not exist"


def workflows_path(namespace: str) -> str:
    """Give where the workflows of a namespace are."""
    return f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows"


def pods_path(namespace: str) -> str:
    """Give where the pods of a namespace are."""
    return f"/api/v1/namespaces/{namespace}/pods"


class Watches:
    """Follows one namespace. Use as a context manager, for as long as it is followed."""

    def __init__(
        self,
        kube: KubeSession,
        config: ClusterConfig,
        kueue_path: Callable[[], Awaitable[str]],
        *,
        timing: Timing,
        sweep_s: float = SWEEP_S,
        read_s: float = READ_S,
    ) -> None:
        self._kube = kube
        self._namespace = config.namespace
        self._kueue_path = kueue_path
        self._timing = timing
        self._sweep_s = sweep_s
        self.listeners: set[Hints] = set()
        self.workflows = WorkflowTable(self._notify, self._moved)
        self.pods = PodTable(self._notify)
        self._workloads = WorkloadTable()
        workflows, pods = workflows_path(config.namespace), pods_path(config.namespace)
        managed = f"{labels.MANAGED_BY}={labels.MANAGER}"
        self._reflectors = (
            Reflector(
                kube,
                Resource(path=workflows, labels=managed, metadata_only=True),
                self.workflows,
                timing,
            ),
            Reflector(kube, Resource(path=pods, labels=labels.RUN), self.pods, timing),
        )
        self._queues: Reflector | None = None
        """Follows the workloads once it is known which version of them the cluster has."""
        self._reader = WorkflowReader(
            kube, lambda name: f"{workflows}/{name}", self.workflows, self._notify, read_s
        )
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for reflector in self._reflectors:
            self._tasks.append(self._group.create_task(reflector.run(), name="reflector"))
        self._tasks.append(self._group.create_task(self._follow_queues(), name="queues"))
        self._tasks.append(self._group.create_task(self._sweep(), name="sweep"))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._reader.close()
        for task in self._tasks:
            task.cancel()
        if isinstance(exc, Exception):
            # What failed in here is nobody's but the caller's: it passes as it is, not in a group of exceptions
            await self._group.__aexit__(None, None, None)
        else:
            await self._group.__aexit__(exc_type, exc, traceback)

    async def status(self, name: str) -> BackendStatus | None:
        """Give the state of a workflow; None when it does not exist."""
        before = self.pods.uids(name)
        pods = self.pods.of(name) if self._followed() else None
        workflow = await self._reader.read(name, pods)
        if workflow is None:
            return None
        # Again, since a read takes its time; where they aren't followed, asked for
        pods = await self.listed_pods(name, before) if pods is None else self.pods.of(name)
        return status_of(workflow, pods, self._around(pods))

    async def listed_pods(self, name: str, before: frozenset[str]) -> list[PodFact]:
        """Give all that is known of the pods of a workflow, after a consistent list of them."""
        listed = await list_all(
            self._kube, pods_path(self._namespace), f"{labels.ARGO_WORKFLOW}={name}"
        )
        return self.pods.learn(name, listed, before)

    async def events(self) -> AsyncIterator[str]:
        """Yield ids of runs to look at, from now on, for as long as the backend lives."""
        hints = Hints()
        self.listeners.add(hints)
        # What was known before anyone listened
        for run in sorted(self.workflows.runs() | self.pods.runs()):
            hints.add(run)
        try:
            async for run in hints:
                yield run
        finally:
            self.listeners.discard(hints)

    async def synced(self) -> None:
        """Wait until everything that exists was seen once."""
        for reflector in self._reflectors:
            await reflector.synced.wait()

    def statistics(self) -> dict[str, ReflectorStatistics]:
        """Give what the watches have done, and how fresh their tables are, by resource."""
        known = (*self._reflectors, self._queues) if self._queues else self._reflectors
        return {one.resource.path.rpartition("/")[2]: one.statistics() for one in known}

    def age_s(self) -> float | None:
        """Give the age of what is known of workflows and pods; about a minute where nothing happens, by bookmarks."""
        ages = [reflector.statistics().age_s for reflector in self._reflectors]
        return None if None in ages else max(age for age in ages if age is not None)

    def _followed(self) -> bool:
        """Whether the tables of workflows and pods may be relied on now."""
        for reflector in self._reflectors:
            age = reflector.statistics().age_s
            if not reflector.synced.is_set() or age is None or age > FRESH_S:
                return False
        return True

    def trouble(self) -> list[str]:
        """Say what keeps the cluster from being followed; empty when nothing does.

        The queues are left out: without them it is only not known what pods wait for.
        """
        found = []
        for reflector in self._reflectors:
            what, seen = reflector.resource.path.rpartition("/")[2], reflector.statistics()
            if seen.failing_s is not None and (seen.age_s is None or seen.failing_s > FAILING_S):
                found.append(f"{what} can't be followed for {seen.failing_s:.0f} s: {seen.failure}")
            elif seen.age_s is None:
                found.append(f"{what} were not listed yet")
            elif seen.age_s > STALE_S:
                found.append(f"{what} are {seen.age_s:.0f} s old: the API server does not answer")
        return found

    # --- inside --------------------------------------------------------------------------------------------------------

    def _notify(self, run: str) -> None:
        if run:
            for hints in self.listeners:
                hints.add(run)

    def _moved(self, fact: WorkflowFact) -> None:
        """Take that Argo wrote a workflow whose metadata say nothing new."""
        if self._followed():
            self._reader.moved(fact, self.pods.of(fact.name))
        else:
            self._notify(fact.run)

    def _around(self, pods: Iterable[PodFact]) -> Surroundings:
        """What Kueue and the other pods say of these."""
        waits = {}
        known = self._queues is not None and self._queues.synced.is_set()
        for pod in pods:
            if known and pod.gated and not pod.gone:
                wait = self._workloads.wait_of(pod.uid)
                waits[pod.uid] = NO_WORKLOAD if wait is None else wait
        return Surroundings(waits=waits, whose=self._whose)

    def _whose(self, workload_uid: str) -> str:
        fact = self._workloads.get(workload_uid)
        if fact is None:
            return ""
        return self.pods.whose(fact.pod_uid) or f"pod {fact.pod} of queue {fact.queue}"

    async def _follow_queues(self) -> NoReturn:
        """Follow Kueue's workloads, in the version that this cluster has."""
        while self._queues is None:
            try:
                kueue = await self._kueue_path()
            except errors.ApiError as error:
                _log.warning("Kueue can't be asked what pods wait for", extra={"error": str(error)})
                await asyncio.sleep(self._timing.longest_s)
                continue
            path = f"{kueue}/namespaces/{self._namespace}/workloads"
            self._queues = Reflector(self._kube, Resource(path=path), self._workloads, self._timing)
        await self._queues.run()

    async def _sweep(self) -> None:
        """Name every run now and then: whatever the watches missed, is missed for so long at most."""
        while True:
            await asyncio.sleep(self._sweep_s)
            for run in sorted(self.workflows.runs() | self.pods.runs()):
                self._notify(run)
            if self.workflows.synced:
                self.pods.forget_without(self.workflows.exists)
                self._reader.forget_gone()
