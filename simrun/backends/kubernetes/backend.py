"""The Kubernetes backend: Argo Workflows runs the DAG of a run, Kueue admits its pods.

Watches keep tables of workflows, pods and Kueue's workloads. They tell which run to look at, so that nobody polls; a sweep names every run
with a workflow or a pod every 10 minutes besides. They remember what pods said before they went, since no later read brings it back. And
what is said of a workflow comes from them, with a read of the workflow itself where the pods leave something open (`reading`). While a watch
is not alive, it comes from consistent reads; and that a workflow does not exist always does.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from simrun.argo import to_argo
from simrun.backends.base import Backend, BackendStatus
from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.attempts import Surroundings
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import MAIN, PodFact
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.podlogs import program_output
from simrun.backends.kubernetes.preflight import Preflight
from simrun.backends.kubernetes.reading import READ_S, WorkflowReader
from simrun.backends.kubernetes.reflector import Reflector, ReflectorStatistics, Resource, Timing
from simrun.backends.kubernetes.reservation import Reservations
from simrun.backends.kubernetes.session import METADATA_LIST, KubeSession
from simrun.backends.kubernetes.status import attempt_number, status_of
from simrun.backends.kubernetes.tables import Hints, PodTable, WorkflowTable
from simrun.backends.kubernetes.workloads import WorkloadTable
from simrun.base.errors import BackendUnavailable, Conflict, InvalidInput
from simrun.model import labels
from simrun.model.cluster import ClusterConfig
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType

_log = logging.getLogger(__name__)

SWEEP_S = 600.0
LOG_SILENCE_S = 60.0
FRESH_S = 75.0
"""Age of a table up to which it is relied on: bookmarks come each minute."""
FAILING_S = 20.0
"""An API server that is restarted is back sooner."""
STALE_S = 150.0
"""Age of a table at which it counts as not followed any more; two silences of a watch."""
NO_WORKLOAD = "Kueue has not made a workload of it: either it does so right now, or the WorkloadPriorityClass of the pod does not exist"

_ENDED = ("Succeeded", "Failed", "Error")


class KubernetesBackend:
    """Runs the pods of runs on one cluster, in one namespace. Use as a context manager, for as long as it is followed."""

    def __init__(
        self,
        config: ClusterConfig,
        kube: KubeSession,
        *,
        timing: Timing | None = None,
        sweep_s: float = SWEEP_S,
        read_s: float = READ_S,
    ) -> None:
        self._config = config
        self._kube = kube
        self._sweep_s = sweep_s
        self._workflows_path = f"/apis/argoproj.io/v1alpha1/namespaces/{config.namespace}/workflows"
        self._pods_path = f"/api/v1/namespaces/{config.namespace}/pods"
        self._reservations = Reservations(kube, config)
        self._preflight = Preflight(kube, config)
        self._listeners: set[Hints] = set()
        self._workflows = WorkflowTable(self._notify)
        self._pods = PodTable(self._notify)
        managed = f"{labels.MANAGED_BY}={labels.MANAGER}"
        self._reflectors = (
            Reflector(
                kube,
                Resource(path=self._workflows_path, labels=managed, metadata_only=True),
                self._workflows,
                timing,
            ),
            Reflector(kube, Resource(path=self._pods_path, labels=labels.RUN), self._pods, timing),
        )
        self._timing = timing or Timing()
        self._workloads = WorkloadTable()
        self._queues: Reflector | None = None
        """Follows the workloads once it is known which version of them the cluster has."""
        self._reader = WorkflowReader(kube, self._path, self._workflows, self._notify, read_s)
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

    # --- workflows ---------------------------------------------------------------------------------------------------

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        """Make the workflow of a run; one that exists and is this run's counts as made.

        Raises Conflict when it is another's, InvalidInput when the cluster lacks what the workflow would wait for in vain.
        """
        manifest = to_argo(record, plans, types, self._config)
        manifest["metadata"].setdefault("annotations", {}).update(
            {
                labels.FINGERPRINT: record.fingerprint,
                labels.ATTEMPT_BASE: json.dumps(record.attempt_base, sort_keys=True),
            }
        )
        name = str(manifest["metadata"]["name"])
        try:
            await self._preflight.placement(_priorities(plans))
        except InvalidInput:
            if not await self._is_there(name):  # what was made before can't be refused any more
                raise
        try:
            await self._kube.create(self._workflows_path, manifest)
        except errors.AlreadyExists:
            self._check_ours(await self._existing(name), record)
        return name

    async def status(self, name: str) -> BackendStatus | None:
        """Give the state of a workflow; None when it does not exist."""
        before = self._pods.uids(name)
        pods = self._pods.of(name) if self._followed() else None
        workflow = await self._reader.read(name, pods)
        if workflow is None:
            return None
        # Again, since a read takes its time; where they aren't followed, asked for
        pods = await self._pods_of(name, before) if pods is None else self._pods.of(name)
        return status_of(workflow, pods, self._around(pods))

    async def stop(self, name: str, *, now: bool = False) -> None:
        """End all pods of a workflow, with their grace (`now`: without); one that does not exist counts as stopped.

        Terminate, not Stop: it also ends a workflow that Argo holds back by its own limits, and neither runs anything more.
        """
        try:
            workflow = self._checked_managed(await self._kube.get(self._path(name)))
            # Argo calls a workflow ended as soon as it asked its pods to end
            if not _has_ended(workflow):
                patch = {
                    "metadata": {"uid": workflow["metadata"]["uid"]},
                    "spec": {"shutdown": "Terminate"},
                }
                await self._kube.patch(self._path(name), patch)
        except errors.NotFound:
            return
        if now:
            await self._kill_pods(name)

    async def delete(self, name: str) -> None:
        """Remove a workflow with its pods.

        It is stopped before, or Argo would answer the deletion of its pods with new attempts. In the foreground, so that
        it exists until its last pod is gone: another workflow of its name would have pods of the same names.
        """
        await self.stop(name)
        try:
            workflow = await self._kube.get(self._path(name))
            uid = self._checked_managed(workflow)["metadata"]["uid"]
            await self._kube.delete(self._path(name), uid=uid, propagation="Foreground")
        except errors.NotFound:
            return

    # --- nodes, logs, events -----------------------------------------------------------------------------------------

    async def reserve(self, run: str) -> str:
        """Take a node for one run alone and give its name."""
        return await self._reservations.reserve(run)

    async def release(self, node: str | None, run: str) -> None:
        """Give a node back, if it is reserved for this run."""
        await self._reservations.release(node, run)

    async def logs(self, name: str, worker: str, attempt: int) -> AsyncIterator[bytes]:
        """Give what an attempt has written so far, in chunks; nothing once its pod is gone, or before it started."""
        before = self._pods.uids(name)
        try:
            workflow = await self._kube.get(self._path(name))
        except errors.NotFound:
            return
        pods = await self._pods_of(name, before)
        pod = _pod_of_attempt(workflow, pods, worker, attempt)
        if pod is None:
            return
        path = f"{self._pods_path}/{pod.name}/log"
        chunks = self._kube.stream(path, {"container": MAIN}, silence_s=LOG_SILENCE_S)
        try:
            async with aclosing(chunks):
                async for chunk in program_output(chunks):
                    yield chunk
        except (errors.NotFound, errors.Invalid):
            return  # the pod went meanwhile, or its container has not started

    async def events(self) -> AsyncIterator[str]:
        """Yield ids of runs to look at, from now on, for as long as the backend lives."""
        hints = Hints()
        self._listeners.add(hints)
        # What was known before anyone listened
        for run in sorted(self._workflows.runs() | self._pods.runs()):
            hints.add(run)
        try:
            async for run in hints:
                yield run
        finally:
            self._listeners.discard(hints)

    async def check(self) -> None:
        """Ask for one workflow, and for what we may do; raises what stands between us and any work."""
        with suppress(errors.Forbidden):  # then the permissions tell it better
            await self._kube.get(self._workflows_path, {"limit": "1"}, METADATA_LIST)
        await self._preflight.permissions()

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
            for hints in self._listeners:
                hints.add(run)

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
        return self._pods.whose(fact.pod_uid) or f"pod {fact.pod} of queue {fact.queue}"

    async def _follow_queues(self) -> NoReturn:
        """Follow Kueue's workloads, in the version that this cluster has."""
        while self._queues is None:
            try:
                kueue = await self._preflight.kueue_path()
            except errors.ApiError as error:
                _log.warning("Kueue can't be asked what pods wait for", extra={"error": str(error)})
                await asyncio.sleep(self._timing.longest_s)
                continue
            path = f"{kueue}/namespaces/{self._config.namespace}/workloads"
            self._queues = Reflector(self._kube, Resource(path=path), self._workloads, self._timing)
        await self._queues.run()

    async def _sweep(self) -> None:
        """Name every run now and then: whatever the watches missed, is missed for so long at most."""
        while True:
            await asyncio.sleep(self._sweep_s)
            for run in sorted(self._workflows.runs() | self._pods.runs()):
                self._notify(run)
            if self._workflows.synced:
                self._pods.forget_without(self._workflows.exists)
                self._reader.forget_gone()

    def _path(self, name: str) -> str:
        return f"{self._workflows_path}/{name}"

    async def _pods_of(self, name: str, before: frozenset[str]) -> list[PodFact]:
        """All that is known of the pods of a workflow, after a consistent list of them."""
        listed = await list_all(self._kube, self._pods_path, f"{labels.ARGO_WORKFLOW}={name}")
        return self._pods.learn(name, listed, before)

    async def _kill_pods(self, name: str) -> None:
        """End what still runs of a workflow at once. Not in zero seconds: then the API would forget pods that still run."""
        for pod in await list_all(self._kube, self._pods_path, f"{labels.ARGO_WORKFLOW}={name}"):
            if (pod.get("status") or {}).get("phase") not in _ENDED:
                metadata = pod["metadata"]
                path = f"{self._pods_path}/{metadata['name']}"
                with suppress(errors.NotFound, errors.Conflict):
                    await self._kube.delete(path, uid=metadata["uid"], grace_s=1)

    async def _is_there(self, name: str) -> bool:
        try:
            await self._kube.get(self._path(name))
        except errors.NotFound:
            return False
        return True

    async def _existing(self, name: str) -> JsonObject:
        try:
            return await self._kube.get(self._path(name))
        except errors.NotFound as error:
            raise BackendUnavailable(f"workflow {name} existed and is gone: try again") from error

    def _check_ours(self, workflow: JsonObject, record: RunRecord) -> None:
        """Check that a workflow that exists was made from this very run. Raises Conflict."""
        metadata = self._checked_managed(workflow)["metadata"]
        name, marks = metadata["name"], metadata["labels"]
        fingerprint = (metadata.get("annotations") or {}).get(labels.FINGERPRINT, "")
        if marks.get(labels.RUN) != record.id or fingerprint != record.fingerprint:
            raise Conflict(
                f"workflow {name} in namespace {self._config.namespace} belongs to another run,"
                f" {marks.get(labels.RUN)!r} of group {marks.get(labels.GROUP)!r}, perhaps of another store"
            )
        if record.workflow_uid not in (None, metadata["uid"]):
            raise Conflict(f"workflow {name} was made anew by somebody else")
        if "deletionTimestamp" in metadata:
            raise BackendUnavailable(f"workflow {name} is being deleted: try again")

    def _checked_managed(self, workflow: JsonObject) -> JsonObject:
        """Give back a workflow of simrun's. Raises Conflict for one of somebody else."""
        metadata = workflow["metadata"]
        if (metadata.get("labels") or {}).get(labels.MANAGED_BY) != labels.MANAGER:
            raise Conflict(
                f"workflow {metadata['name']} in namespace {self._config.namespace} is not simrun's:"
                f" its label {labels.MANAGED_BY} is not {labels.MANAGER}"
            )
        return workflow


@asynccontextmanager
async def open_backend(
    config: ClusterConfig, kubeconfig: Path | None = None, context: str | None = None
) -> AsyncIterator[Backend]:
    """Connect to a cluster and follow it until left.

    Asks it something first. Once open, a cluster that is away is waited for; one that was never there, that has no Argo, or
    that lets us do nothing had better be told at once. Raises BackendError and BackendUnavailable.
    """
    async with await KubeSession.open(kubeconfig, context) as kube:
        backend = KubernetesBackend(config, kube)
        await backend.check()
        async with backend:
            yield backend


def _priorities(plans: Mapping[str, TaskPlan]) -> list[str]:
    """The fields of the priorities that the pods of these plans have."""
    extra = any(plan.split and plan.pods > 1 for plan in plans.values())
    return ["base_priority", "extra_priority"] if extra else ["base_priority"]


def _has_ended(workflow: JsonObject) -> bool:
    return (workflow.get("status") or {}).get("phase") in _ENDED


def _pod_of_attempt(
    workflow: JsonObject, pods: list[PodFact], worker: str, attempt: int
) -> PodFact | None:
    """The pod that stands for an attempt now: the youngest, since one may be made anew under its number."""
    uid = workflow["metadata"].get("uid")
    found = [
        pod
        for pod in pods
        if pod.owner == uid
        and pod.worker == worker
        and not pod.gone
        and attempt_number(workflow, pod) == attempt
    ]
    return max(found, key=lambda pod: pod.created or 0.0, default=None)
