"""The Kubernetes backend: Argo Workflows runs the DAG of a run, Kueue admits its pods.

What is said of workflows comes from `watching`. Here are the calls that change something, each such that doing it again changes nothing more, and
each careful about whose a workflow is: names may be taken by others.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from simrun.argo import to_argo
from simrun.backends.base import Backend, BackendStatus, Identity, QueueState
from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.backoff import Timing
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import MAIN, PodFact
from simrun.backends.kubernetes.identity import review
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.podlogs import program_output
from simrun.backends.kubernetes.preflight import Preflight
from simrun.backends.kubernetes.queues import queue_state
from simrun.backends.kubernetes.reading import READ_S
from simrun.backends.kubernetes.reflector import ReflectorStatistics
from simrun.backends.kubernetes.reservation import Reservations
from simrun.backends.kubernetes.session import METADATA_LIST, KubeSession
from simrun.backends.kubernetes.status import attempt_number
from simrun.backends.kubernetes.watching import SWEEP_S, Watches, pods_path, workflows_path
from simrun.base.errors import BackendUnavailable, Conflict, InvalidInput
from simrun.model import labels
from simrun.model.cluster import ClusterConfig
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType

LOG_SILENCE_S = 60.0

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
        self._workflows_path = workflows_path(config.namespace)
        self._pods_path = pods_path(config.namespace)
        self._reservations = Reservations(kube, config)
        self._preflight = Preflight(kube, config)
        self._watches = Watches(
            kube,
            config,
            self._preflight.kueue_path,
            timing=timing or Timing(),
            sweep_s=sweep_s,
            read_s=read_s,
        )

    async def __aenter__(self) -> Self:
        await self._watches.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._watches.__aexit__(exc_type, exc, traceback)

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
            await self._preflight.placement(self._priorities(record, plans))
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
        return await self._watches.status(name)

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

    async def queues(self) -> list[QueueState]:
        """Give the queue that pods are admitted through, as Kueue tells it."""
        config = self._config
        kueue = await self._preflight.kueue_path()
        return [await queue_state(self._kube, kueue, config.namespace, config.local_queue)]

    async def logs(self, name: str, worker: str, attempt: int) -> AsyncIterator[bytes]:
        """Give what an attempt has written so far, in chunks; nothing once its pod is gone, or before it started."""
        before = self._watches.pods.uids(name)
        try:
            workflow = await self._kube.get(self._path(name))
        except errors.NotFound:
            return
        pods = await self._watches.listed_pods(name, before)
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

    def events(self) -> AsyncIterator[str]:
        """Yield ids of runs to look at, from now on, for as long as the backend lives."""
        return self._watches.events()

    async def check(self) -> None:
        """Ask for one workflow, and for what we may do; raises what stands between us and any work."""
        with suppress(errors.Forbidden):  # then the permissions tell it better
            await self._kube.get(self._workflows_path, {"limit": "1"}, METADATA_LIST)
        await self._preflight.permissions()

    async def synced(self) -> None:
        """Wait until everything that exists was seen once."""
        await self._watches.synced()

    async def review(self, token: str) -> Identity | None:
        """Say whose token it is; None for one that is not good, or was not made for simrun."""
        return await review(self._kube, token)

    def statistics(self) -> dict[str, ReflectorStatistics]:
        """Give what the watches have done, and how fresh their tables are, by resource."""
        return self._watches.statistics()

    def age_s(self) -> float | None:
        """Give the age of what is known of workflows and pods; about a minute where nothing happens, by bookmarks."""
        return self._watches.age_s()

    def trouble(self) -> list[str]:
        """Say what keeps the cluster from being followed; empty when nothing does."""
        return self._watches.trouble()

    # --- inside --------------------------------------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._workflows_path}/{name}"

    def _priorities(self, record: RunRecord, plans: Mapping[str, TaskPlan]) -> dict[str, str]:
        """The priority classes that the pods of a run have, by the field of the configuration that names them."""
        fields = self._config.priority_fields(record.priority)
        extra = any(plan.split and plan.pods > 1 for plan in plans.values())
        base, extras = zip(fields, self._config.priority(record.priority), strict=True)
        return dict([base, extras] if extra else [base])

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
