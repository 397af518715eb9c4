"""The Kubernetes backend on a real cluster: what it submits runs, and what it says of it is what happened."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simrun.backends.base import Attempt, BackendStatus, Phase
from simrun.backends.kubernetes.backend import KubernetesBackend
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendUnavailable, Conflict
from simrun.model.cluster import ClusterConfig
from simrun.model.quantities import MIB
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

PYTHON = ["python3", "-u", "-c"]
GREETING = "import os; print('hello from', os.environ['SIMRUN_WORKER'])"
# Every attempt says its number; the first ones die of memory
GREEDY = (
    "import os; print('attempt', os.environ['SIMRUN_ATTEMPT']); "
    "x = bytearray(96 * 2**20) if os.environ['SIMRUN_MEMORY_PER_WORKER_GB'] == '0.0625' else 0"
)
# Ends by itself on SIGTERM, a second later, and says so
PATIENT = """
import signal, sys, time
def end(*_):
    print("asked to end", flush=True)
    time.sleep(1)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


@pytest.fixture
def config(namespace: str, pod_uid: int, worker_image: str) -> ClusterConfig:
    """The tests' cluster."""
    claim = {"claimName": "simrun-snapshots", "readOnly": True}
    return ClusterConfig(
        namespace=namespace,
        local_queue="sims",
        snapshots={"persistentVolumeClaim": claim},
        snapshots_path="",
        image=worker_image,
        run_as_user=pod_uid,
        run_as_group=pod_uid,
    )


@pytest.fixture
async def backend(kubeconfig: Path, config: ClusterConfig) -> AsyncIterator[KubernetesBackend]:
    async with (
        await KubeSession.open(kubeconfig) as kube,
        KubernetesBackend(config, kube) as backend,
    ):
        yield backend


@pytest.fixture
def run_id(kubectl: Kubectl, store_dir: Path) -> Iterator[str]:
    run = f"backend-{uuid.uuid4().hex[:10]}"
    (store_dir / "runs" / run).mkdir(parents=True)
    yield run
    kubectl("delete", "workflow,pod", "--selector", f"simrun/run={run}", "--wait=false")


class Submitted:
    """A run of bare commands, by the name of its task."""

    def __init__(self, store: Path, run: str, commands: dict[str, str], **record: object) -> None:
        resources = {"cpu": 0.1, "memory": "64Mi", "retry_memory": "256Mi"}
        self.types = {
            name: TaskType(command=[*PYTHON, command], resources=resources, grace=5)
            for name, command in commands.items()
        }
        workflow = Workflow(tasks={name: Task(type=name) for name in commands})
        for name in commands:
            (store / "runs" / run / "tasks" / name / "out").mkdir(parents=True, exist_ok=True)
        values = {"fingerprint": "first", "times": RunTimes(created=0), **record}
        self.record = RunRecord.model_validate({"id": run, **values}).with_workflow(workflow)
        self.plans = plan_run(workflow, self.types, {}, {})

    async def to(self, backend: KubernetesBackend) -> str:
        return await backend.submit(self.record, self.plans, self.types)


async def follow(
    backend: KubernetesBackend, run: str, name: str, until: Callable[[BackendStatus], bool]
) -> BackendStatus:
    """Look at a workflow whenever an event says so, and only then, until it is as wanted."""
    async with asyncio.timeout(120):
        async for changed in backend.events():
            if changed == run:
                status = await backend.status(name)
                if status is not None and until(status):
                    return status
    raise AssertionError("unreachable")


def running(worker: str, attempt: int = 0) -> Callable[[BackendStatus], bool]:
    def holds(status: BackendStatus) -> bool:
        node = status.nodes.get(worker)
        return (
            node is not None
            and len(node.attempts) > attempt
            and node.attempts[attempt].phase is Phase.RUNNING
            and node.attempts[attempt].started is not None
        )

    return holds


def ended(status: BackendStatus) -> bool:
    return status.phase.ended


async def log_of(backend: KubernetesBackend, name: str, worker: str, attempt: int) -> str:
    return b"".join([chunk async for chunk in backend.logs(name, worker, attempt)]).decode()


async def test_a_run_is_followed_by_events_to_its_end_through_a_kill_for_memory(
    backend: KubernetesBackend, store_dir: Path, run_id: str
) -> None:
    commands = {"greet": GREETING, "greedy": GREEDY}
    run = Submitted(store_dir, run_id, commands, attempt_base={"greedy": 5})

    name = await run.to(backend)
    status = await follow(backend, run_id, name, ended)

    assert (status.phase, status.message) == (Phase.SUCCEEDED, "")
    assert set(status.nodes) == {"greet", "greedy"}
    assert status.nodes["greet"].phase is Phase.SUCCEEDED
    (greet,) = status.nodes["greet"].attempts
    assert (greet.n, greet.phase, greet.reason, greet.exit_code) == (
        0,
        Phase.SUCCEEDED,
        "completed",
        0,
    )
    killed, saved = status.nodes["greedy"].attempts
    assert (killed.n, killed.reason, killed.exit_code, killed.oom) == (5, "oom", 137, True)
    assert (saved.n, saved.reason, saved.exit_code, saved.oom) == (6, "completed", 0, False)
    assert (killed.memory, saved.memory) == (64 * MIB, 256 * MIB)
    for attempt in (greet, killed, saved):
        check_whole(attempt)
    assert await log_of(backend, name, "greet", 0) == "hello from greet\n"
    assert await log_of(backend, name, "greedy", 5) == "attempt 0\n"
    assert await log_of(backend, name, "greedy", 6) == "attempt 1\n"
    assert await log_of(backend, name, "greedy", 7) == ""


def check_whole(attempt: Attempt) -> None:
    """Everything that is to be known of an attempt that ran and ended."""
    assert len(attempt.pod_uid) == 36
    assert attempt.node
    assert attempt.created is not None
    assert attempt.started is not None
    assert attempt.ended is not None
    assert attempt.created <= attempt.started <= attempt.ended


async def test_submitting_again_finds_the_workflow_and_another_runs_is_a_conflict(
    backend: KubernetesBackend, store_dir: Path, run_id: str, kubectl: Kubectl
) -> None:
    run = Submitted(store_dir, run_id, {"patient": PATIENT})
    name = await run.to(backend)
    uid = kubectl.get("workflow", name)["metadata"]["uid"]

    assert await run.to(backend) == name
    assert kubectl.get("workflow", name)["metadata"]["uid"] == uid
    other = Submitted(store_dir, run_id, {"patient": PATIENT}, fingerprint="second")
    with pytest.raises(Conflict, match="belongs to another run"):
        await other.to(backend)


async def test_stopping_gives_the_pods_their_grace_and_deleting_leaves_nothing(
    backend: KubernetesBackend, store_dir: Path, run_id: str, kubectl: Kubectl
) -> None:
    run = Submitted(store_dir, run_id, {"patient": PATIENT})
    name = await run.to(backend)
    await follow(backend, run_id, name, running("patient"))

    await backend.stop(name)
    status = await follow(backend, run_id, name, ended)
    kubectl.wait(
        f"pod/{kubectl.get('pods', '-l', f'simrun/run={run_id}')['items'][0]['metadata']['name']}",
        "jsonpath={.status.phase}=Failed",
        30,
    )
    final = await backend.status(name)
    log = await log_of(backend, name, "patient", 0)
    await backend.stop(name)
    await backend.delete(name)
    async with asyncio.timeout(60):
        while await backend.status(name) is not None:
            await asyncio.sleep(0.5)

    assert status.phase is Phase.FAILED
    assert final is not None
    (attempt,) = final.nodes["patient"].attempts
    assert (attempt.phase, attempt.reason) == (Phase.FAILED, "cancelled")
    assert log.startswith("up\nasked to end\n")
    assert kubectl.get("pods", "-l", f"simrun/run={run_id}")["items"] == []
    await backend.stop(name)
    await backend.delete(name)
    assert await log_of(backend, name, "patient", 0) == ""


async def test_stopping_now_waits_for_no_grace(
    backend: KubernetesBackend, store_dir: Path, run_id: str, kubectl: Kubectl
) -> None:
    run = Submitted(store_dir, run_id, {"deaf": DEAF})
    run.types["deaf"] = run.types["deaf"].model_copy(update={"grace": 600.0})
    name = await run.to(backend)
    await follow(backend, run_id, name, running("deaf"))
    await backend.stop(name)
    await follow(backend, run_id, name, ended)
    (pod,) = kubectl.get("pods", "-l", f"simrun/run={run_id}")["items"]
    assert pod["status"]["phase"] == "Running"

    await backend.stop(name, now=True)

    kubectl.wait(f"pod/{pod['metadata']['name']}", "delete", 30)


async def test_a_pod_that_was_deleted_or_evicted_is_told_as_evicted_and_tried_again(
    backend: KubernetesBackend, store_dir: Path, run_id: str, kubectl: Kubectl
) -> None:
    run = Submitted(store_dir, run_id, {"patient": PATIENT})
    name = await run.to(backend)

    status = await follow(backend, run_id, name, running("patient"))
    await no_longer_young(status.nodes["patient"].attempts[0])
    pod = kubectl.get("pods", "-l", f"simrun/run={run_id}")["items"][0]["metadata"]["name"]
    kubectl("delete", "pod", pod, "--wait=false")
    status = await follow(backend, run_id, name, running("patient", 1))
    (deleted, second) = status.nodes["patient"].attempts
    await no_longer_young(second)
    evict(kubectl, second, run_id)
    status = await follow(backend, run_id, name, running("patient", 2))
    (first, evicted, third) = status.nodes["patient"].attempts

    assert (deleted.reason, first.reason, evicted.reason) == ("evicted",) * 3
    assert "EvictionByEvictionAPI" in evicted.message
    assert (third.n, third.phase) == (2, Phase.RUNNING)
    assert len({attempt.pod_uid for attempt in (first, evicted, third)}) == 3
    assert status.nodes["patient"].phase is Phase.RUNNING


async def no_longer_young(attempt: Attempt) -> None:
    """Wait until Argo would count the attempt as ended; it makes a pod that vanished in its first 10 s anew in silence."""
    assert attempt.created is not None
    await asyncio.sleep(max(0.0, attempt.created + 11 - time.time()))


def evict(kubectl: Kubectl, attempt: Attempt, run: str) -> None:
    """Evict a pod as a drain does."""
    pods = kubectl.get("pods", "-l", f"simrun/run={run}")["items"]
    (name,) = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == attempt.pod_uid]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": kubectl.namespace},
    }
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{name}/eviction"
    kubectl("create", "--raw", path, "-f", "-", text=json.dumps(body))


async def test_a_node_is_reserved_for_one_run_and_given_back_by_it_alone(
    backend: KubernetesBackend, kubectl: Kubectl, run_id: str
) -> None:
    before = kubectl.get("nodes")["items"]
    assert len(before) == 1, "a NoExecute taint is to be tried on a node of the tests' own"

    node = await backend.reserve(run_id)
    reserved = kubectl.get("node", node)
    again = await backend.reserve(run_id)
    with pytest.raises(BackendUnavailable, match="no node is free"):
        await backend.reserve("another")
    await backend.release(node, "another")
    still = kubectl.get("node", node)
    await backend.release(node, run_id)
    await backend.release(node, run_id)
    await backend.release("no-such-node", run_id)
    after = kubectl.get("node", node)

    assert again == node
    taint = {"key": "simrun/reserved", "value": run_id, "effect": "NoExecute"}
    for seen in (reserved, still):
        assert seen["metadata"]["labels"]["simrun/reserved"] == run_id
        assert taint in seen["spec"]["taints"]
    assert after["metadata"]["labels"] == before[0]["metadata"]["labels"]
    assert after["spec"].get("taints") == before[0]["spec"].get("taints")
