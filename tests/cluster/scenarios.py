"""What the scenarios on a real cluster share: a queue and a store of their own, and a service to drive in this process.

A scene has its own quota, so that what others run meanwhile takes nothing from it, and its own store, since one process at a time may
follow the runs of one. Whatever it submitted is gone when it is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import yaml

from simrun.aio.threads import Pool
from simrun.backends.base import Attempt, Backend, BackendStatus, Phase
from simrun.backends.kubernetes.backend import open_backend
from simrun.backends.kubernetes.facts import wall_seconds
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.clock import SystemClock
from simrun.base.ids import new_run_id
from simrun.model.cluster import ClusterConfig
from simrun.model.record import RunRecord
from simrun.model.report import AttemptEvidence
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Workflow
from simrun.service.attachments import attachments_of
from simrun.service.opening import open_session
from simrun.service.session import Session
from simrun.store.layout import StoreLayout, TaskDir
from simrun.store.runs import RunStore
from tests.scenario.campaign import Simrun

if TYPE_CHECKING:
    from conftest import Kubectl

CPU = 0.2
"""Processors of one pod of a scene."""
SMALL: dict[str, Any] = {"resources": {"cpu": CPU, "memory": "96Mi"}, "grace": 2}
GATE = "until [ -e $SIMRUN_TASK_DIR/go ]; do sleep 0.1; done"
"""A command that waits for `Scene.open_gate`."""

P = ParamSpec("P")
T = TypeVar("T")
Wrap = Callable[[Backend], Backend]
_ENDED = ("Succeeded", "Failed")


@dataclass
class Scene:
    """One place for runs on the cluster, and what was submitted there."""

    kubectl: Kubectl
    kubeconfig: Path
    config: ClusterConfig
    store: Path
    owner: tuple[int, int]
    runs: list[str] = field(default_factory=list)

    def new_run(self) -> str:
        """Give an id for a run; it is cleaned up with the scene."""
        self.runs.append(new_run_id(SystemClock().wall()))
        return self.runs[-1]

    def task(self, run: str, task: str) -> TaskDir:
        """Give the directory of a task of a run."""
        return StoreLayout(self.store).run(run).task(task)

    def open_gate(self, run: str, task: str) -> None:
        """Let the commands of a task go on."""
        (self.task(run, task).root / "go").touch()

    def attempts(self, run: str, task: str) -> dict[str, dict[str, Any]]:
        """Give the evidence that was kept of a task's attempts, by `<worker>-<attempt>`."""
        found = sorted(self.task(run, task).attempts.glob("*.json"))
        return {
            path.stem: AttemptEvidence.model_validate_json(path.read_bytes()).model_dump()
            for path in found
        }

    def record(self, run: str) -> RunRecord:
        """Read the record of a run, as whoever comes later does."""
        return RunStore(self.store).read(run)

    def cluster_file(self) -> Path:
        """Write the cluster's configuration for a command, and give its path."""
        path = self.store / "cluster.yaml"
        path.write_text(yaml.safe_dump(self.config.model_dump(mode="json", exclude_unset=True)))
        return path

    def simrun(self, kubeconfig: Path | None = None) -> Simrun:
        """Give the command, over this store and cluster."""
        access = ("--kubeconfig", str(kubeconfig or self.kubeconfig))
        where = ("--cluster", str(self.cluster_file()), *access)
        return Simrun(self.store, ("--backend", "kubernetes", *where))

    def service(
        self, *, kubeconfig: Path | None = None, wrap: Wrap | None = None
    ) -> AbstractAsyncContextManager[Service]:
        """Follow the runs of the store in this process, as `simrun serve` does."""
        return _service(self, kubeconfig or self.kubeconfig, wrap or (lambda backend: backend))

    def _clean_up(self) -> None:
        if self.runs:
            mine = f"simrun/run in ({', '.join(self.runs)})"
            self.kubectl("delete", "workflow,pod", "--selector", mine, "--wait=false")
        shutil.rmtree(self.store, ignore_errors=True)


@dataclass
class Service:
    """A service that runs in this process."""

    scene: Scene
    session: Session
    backend: Backend
    kube: KubeSession

    async def submit(
        self, tasks: dict[str, Any], types: dict[str, Any], base: Path | None = None, **request: Any
    ) -> str:
        """Submit a run; `base` is where its plugin files are."""
        what = submission(tasks, types, **request)
        attachments = [] if base is None else attachments_of(what, base)
        return await self.session.submit(what, attachments, self.scene.new_run())

    async def status(self, run: str) -> BackendStatus | None:
        """Ask the backend how the workflow of a run is."""
        name = (await self.session.record(run)).workflow_name
        return None if name is None else await self.backend.status(name)

    async def pods(self, run: str) -> list[dict[str, Any]]:
        """List the pods of a run that have not ended."""
        path = f"/api/v1/namespaces/{self.scene.config.namespace}/pods"
        found = await self.kube.get(path, {"labelSelector": f"simrun/run={run}"})
        pods: list[dict[str, Any]] = found["items"]
        return [pod for pod in pods if pod["status"].get("phase") not in _ENDED]

    async def pod(self, run: str, worker: str) -> dict[str, Any]:
        """Give the one pod of a worker that has not ended."""
        (pod,) = [
            pod
            for pod in await self.pods(run)
            if pod["metadata"]["labels"]["simrun/worker"] == worker
            and "deletionTimestamp" not in pod["metadata"]
        ]
        return pod

    async def when(
        self, run: str, holds: Callable[[BackendStatus], bool], seconds: float = 90
    ) -> BackendStatus:
        """Wait until the workflow of a run is as wanted."""
        status: BackendStatus | None = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    status = await self.status(run)
                    if status is not None and holds(status):
                        return status
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s; the last was {status}") from None

    async def recorded(
        self, run: str, holds: Callable[[RunRecord], bool], seconds: float = 90
    ) -> RunRecord:
        """Wait until the record of a run is as wanted."""
        record: RunRecord | None = None
        try:
            async with asyncio.timeout(seconds):
                while not holds(record := await self.session.record(run)):
                    await asyncio.sleep(0.1)
                return record
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s; the last was {record}") from None

    async def ended(self, run: str, seconds: float = 120) -> RunRecord:
        """Wait for the end of a run, and until nothing of it is pending."""
        return await self.recorded(
            run, lambda record: record.state.terminal and not record.pending, seconds
        )

    async def no_longer_young(self, run: str) -> None:
        """Wait until Argo counts pods that vanish as attempts: those that vanish in their first 10 s it makes anew in silence."""
        born = [wall_seconds(pod["metadata"]["creationTimestamp"]) for pod in await self.pods(run)]
        youngest = max((at for at in born if at is not None), default=0.0)
        await asyncio.sleep(max(0.0, youngest + 11.5 - SystemClock().wall()))

    async def nothing_left(self, run: str, seconds: float = 60) -> None:
        """Wait until no pod of a run lives and its workflow, where there is one, has ended."""
        left: Any = None
        try:
            async with asyncio.timeout(seconds):
                while left := await self._left(run):
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(f"after {seconds} s there still was {left}") from None

    async def _left(self, run: str) -> list[str]:
        status = await self.status(run)
        living = [] if status is None or status.phase.ended else [f"a workflow: {status}"]
        pods = await self.pods(run)
        return living + [f"{pod['metadata']['name']}: {pod['status']}" for pod in pods]


@asynccontextmanager
async def _service(scene: Scene, kubeconfig: Path, wrap: Wrap) -> AsyncIterator[Service]:
    made: list[Backend] = []

    @asynccontextmanager
    async def backend(_store: RunStore, _pool: Pool) -> AsyncIterator[Backend]:
        async with open_backend(scene.config, kubeconfig) as opened:
            made.append(wrap(opened))
            yield made[0]

    # To ask the cluster itself, past whatever stands before this service's API server
    async with (
        await KubeSession.open(scene.kubeconfig) as kube,
        open_session(scene.store, backend, command="run", owner=scene.owner) as session,
    ):
        yield Service(scene, session, made[0], kube)


async def aside(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what blocks, such as kubectl, beside the event loop, which a service needs meanwhile."""
    pool = Pool("scenario", 1)
    try:
        return await pool.run(function, *args, **kwargs)
    finally:
        pool.close()


def submission(tasks: dict[str, Any], types: dict[str, Any], **request: Any) -> Submission:
    """Give a submission of small pods."""
    return Submission(
        workflow=Workflow.model_validate({"tasks": tasks}),
        types={
            name: TaskType.model_validate({"name": name, **SMALL, **kind})
            for name, kind in types.items()
        },
        request=RunRequest.model_validate(request),
    )


def sweep(command: str, *, workers: int, units: int, **more: Any) -> dict[str, Any]:
    """Give a type that is split."""
    split = {"workers": workers, "units": {"list": list(range(units))}}
    return {"command": command, "split": split, **more}


def running(*workers: str, attempt: int = 0) -> Callable[[BackendStatus], bool]:
    """Whether the programs of these workers run, in this attempt."""

    def runs(status: BackendStatus, worker: str) -> bool:
        node = status.nodes.get(worker)
        seen = [] if node is None else [one for one in node.attempts if one.n == attempt]
        return any(one.phase is Phase.RUNNING and one.started is not None for one in seen)

    return lambda status: all(runs(status, worker) for worker in workers)


def successor(status: BackendStatus, worker: str, uid: str) -> Attempt | None:
    """Give the attempt of a worker that runs in another pod than `uid`; Argo may count it as the same one, made again."""
    for attempt in status.nodes[worker].attempts:
        if attempt.pod_uid not in ("", uid) and attempt.started is not None:
            return attempt
    return None


@contextmanager
def scene(
    kubectl: Kubectl, kubeconfig: Path, store_dir: Path, image: str, pod_uid: int, pods: float
) -> Iterator[Scene]:
    """Make a queue with quota for so many small pods, and a store; leave nothing of it."""
    name = f"scene-{uuid.uuid4().hex[:8]}"
    store = store_dir / name
    store.mkdir()
    os.chown(store, pod_uid, pod_uid)
    claim = {"claimName": "simrun-snapshots", "readOnly": True}
    config = ClusterConfig(
        namespace=kubectl.namespace,
        local_queue=name,
        topology=None,
        image=image,
        run_as_user=pod_uid,
        run_as_group=pod_uid,
        store_path=name,
        snapshots={"persistentVolumeClaim": claim},
        snapshots_path="",
    )
    queue = _queue(name, kubectl.namespace, f"{round(pods * CPU * 1000)}m")
    kubectl("apply", "--filename=-", text=json.dumps(queue))
    made = Scene(kubectl, kubeconfig, config, store, (pod_uid, pod_uid))
    try:
        kubectl.wait(f"localqueue/{name}", "condition=Active", 30)
        yield made
    finally:
        made._clean_up()
        kubectl(
            "delete", f"localqueue/{name}", f"clusterqueue/{name}", f"resourceflavor/{name}",
            "--wait=false",
        )  # fmt: skip


def _queue(name: str, namespace: str, cpu: str) -> dict[str, Any]:
    """Give a LocalQueue with a ClusterQueue of its own, in which pods of higher priority drive out others."""
    api = "kueue.x-k8s.io/v1beta2"
    quota = [
        {"name": "cpu", "nominalQuota": cpu},
        {"name": "memory", "nominalQuota": "8Gi"},
    ]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quota}]}
    items = [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [group],
            },
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}
