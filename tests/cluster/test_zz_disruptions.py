"""What disturbs everybody on the cluster: processes of it that end, a node that goes or is reserved. Runs last, and mends what it broke."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from onenode import cluster, daemons, layout, shell

from simrun.argo import to_argo
from simrun.model import labels
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.planning import plan_run
from simrun.service.submission import new_record
from tests.cluster.proxy import through_proxy
from tests.cluster.scenarios import (
    GATE,
    Scene,
    Service,
    aside,
    running,
    submission,
    successor,
    sweep,
)

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.usefixtures("mended")]

ETCD = "http://127.0.0.1:2379/v3/kv"


@pytest.fixture
def mended(kubeconfig: Path) -> Iterator[None]:
    """A cluster whose processes may be killed, and which is as it was afterwards."""
    if os.environ.get("SIMRUN_TEST_KUBECONFIG"):
        pytest.fail("this kills processes of the cluster: run it on the tests' own", pytrace=False)
    yield
    for name in ("kube-apiserver", "kubelet", "workflow-controller"):
        if not daemons.find(name):
            restart(name)
    shell.wait_for("the cluster", lambda: cluster.trouble() is None)


def restart(name: str, *environment: str) -> None:
    """Kill a process of the cluster and start it again."""
    shell.run(layout.HERE / "restart", name, *environment)


async def test_a_run_is_followed_to_its_end_through_cut_watches_a_compacted_etcd_and_a_restart_of_the_api_server(
    scene: Scene, tmp_path: Path
) -> None:
    access = tmp_path / "kubeconfig"
    kind = sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=1)
    tasks = {"first": {"type": "sweep"}, "second": {"type": "sweep", "after": ["first"]}}
    async with (
        through_proxy(scene.kubeconfig, access) as proxy,
        scene.service(kubeconfig=access) as service,
    ):
        run = await service.submit(tasks, {"sweep": kind})
        await service.when(run, running("first-w0"))
        proxy.cut()
        scene.open_gate(run, "first")
        await harness_runs(service, run, "second-w0")
        await compact_etcd()
        proxy.mend()
        middle = await service.recorded(
            run, lambda record: record.tasks["first"] is TaskState.DONE, 100
        )
        daemons.kill("kube-apiserver")
        scene.open_gate(run, "second")
        await aside(restart, "kube-apiserver")
        end = await service.ended(run)

    assert middle.state is RunState.RUNNING
    assert end.state is RunState.SUCCEEDED, end.message
    assert end.evictions == {}
    for task in tasks:
        assert {one["reason"] for one in scene.attempts(run, task).values()} == {"completed"}


async def harness_runs(service: Service, run: str, worker: str) -> None:
    """Wait until a worker runs, past the connections of the service."""
    async with asyncio.timeout(90):
        while not any(
            pod["metadata"]["labels"]["simrun/worker"] == worker
            and pod["status"].get("phase") == "Running"
            for pod in await service.pods(run)
        ):
            await asyncio.sleep(0.2)


async def compact_etcd() -> None:
    """Have etcd forget all revisions but the last."""
    key = {"key": base64.b64encode(b"\0").decode(), "keys_only": True}
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{ETCD}/range", json=key) as answer:
            revision = (await answer.json())["header"]["revision"]
        body = {"revision": revision, "physical": True}
        async with session.post(f"{ETCD}/compaction", json=body) as answer:
            assert answer.status == 200, await answer.text()


async def test_a_status_that_argo_compresses_is_read_and_the_run_cancelled(
    scene: Scene, kubectl: Kubectl
) -> None:
    """Forty tasks, of which as many run as there is quota for."""
    tasks = {f"task-{number}": {"type": "wait"} for number in range(39)} | {
        "done": {"type": "quick"}
    }
    types = {"wait": {"command": GATE, "harness": True}, "quick": {"command": ["true"]}}
    # Enough for the manifest, not for the status beside it
    limit = size(tasks, types, scene) + 35_000
    try:
        await aside(restart, "workflow-controller", f"MAX_WORKFLOW_SIZE={limit}")
        async with scene.service() as service:
            run = await service.submit(tasks, types)
            status = await service.when(run, lambda status: len(status.nodes) == 40)
            record = await service.recorded(run, all_have_begun)
            workflow = await aside(kubectl.get, "workflow", f"simrun-{run}")
            await service.session.cancel(run)
            end = await service.ended(run)
            await service.nothing_left(run)
    finally:
        await aside(restart, "workflow-controller")

    assert workflow["status"].get("compressedNodes")
    assert "nodes" not in workflow["status"]
    assert set(status.nodes) == set(tasks)
    assert record.state is RunState.RUNNING
    assert (end.state, end.tasks["done"]) == (RunState.CANCELLED, TaskState.DONE)
    assert {end.tasks[task] for task in tasks if task != "done"} == {TaskState.SKIPPED}


def size(tasks: dict[str, Any], types: dict[str, Any], scene: Scene) -> int:
    """Give the bytes of the manifest of a run."""
    what = submission(tasks, types)
    plans = plan_run(what.workflow, what.types, {}, {})
    record = new_record(what, scene.new_run(), 0).with_workflow(what.workflow)
    return len(json.dumps(to_argo(record, plans, what.types, scene.config)))


def all_have_begun(record: RunRecord) -> bool:
    """Whether the record has the task that is done, two or three that run and all others in the queue."""
    states = [record.tasks[task] for task in record.tasks]
    return (
        states.count(TaskState.DONE) == 1
        and states.count(TaskState.RUNNING) >= 2
        and states.count(TaskState.QUEUED) >= 36
    )


async def test_a_reserved_node_is_used_by_its_run_alone_and_given_back_at_its_end(
    scene: Scene,
) -> None:
    types = {"wait": {"command": GATE, "harness": True}}
    async with scene.service() as service:
        other = await service.submit({"other": {"type": "wait"}}, types)
        await service.when(other, running("other"))
        await service.no_longer_young(other)
        run = await service.submit({"alone": {"type": "wait"}}, types, reserve_node=True)
        await service.when(run, running("alone"))
        reserved = await node_of(service, run)
        await service.recorded(other, lambda record: record.evictions == {"other": 1})
        beside = await neighbours(service, run)
        scene.open_gate(run, "alone")
        end = await service.ended(run)
        released = await service.kube.get(f"/api/v1/nodes/{end.node}")
        await service.when(other, running("other", attempt=1))
        scene.open_gate(other, "other")
        last = await service.ended(other)

    taint = {"key": labels.RESERVED, "value": run, "effect": "NoExecute"}
    assert taint.items() <= reserved["spec"]["taints"][-1].items()
    assert reserved["metadata"]["labels"][labels.RESERVED] == run
    assert beside == []
    assert (end.state, end.pending_release) == (RunState.SUCCEEDED, False)
    assert labels.RESERVED not in released["metadata"]["labels"]
    assert labels.RESERVED not in json.dumps(released["spec"].get("taints", []))
    assert last.state is RunState.SUCCEEDED, last.message
    evicted, *_ = scene.attempts(other, "other").values()
    assert evicted["reason"] == "evicted"
    assert "taint" in evicted["message"].lower()


async def node_of(service: Service, run: str) -> dict[str, Any]:
    name = (await service.session.record(run)).node
    return await service.kube.get(f"/api/v1/nodes/{name}")


async def neighbours(service: Service, run: str) -> list[str]:
    """The pods of other runs, in all namespaces, that are on the node of a run and were not told to leave."""
    node = (await service.session.record(run)).node
    pods = (await service.kube.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}))[
        "items"
    ]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["labels"].get(labels.RUN) != run
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") in ("Pending", "Running")
    ]


async def test_a_run_outlives_the_loss_of_its_node_and_says_that_it_was_lost(
    scene: Scene, kubectl: Kubectl
) -> None:
    """The kubelet ends, the cluster takes the node for lost, and the kubelet comes back, with the old pods still running on it."""
    async with scene.service() as service:
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=2)},
        )
        await service.when(run, running("sweep-w0"))
        old = (await service.pod(run, "sweep-w0"))["metadata"]["uid"]
        daemons.kill("kubelet")
        await aside(kubectl, "delete", "node", layout.NODE)
        await service.recorded(run, lambda record: record.evictions == {"sweep-w0": 1}, 180)
        await aside(restart, "kubelet")
        await service.when(run, lambda status: successor(status, "sweep-w0", old) is not None)
        scene.open_gate(run, "sweep")
        record = await service.ended(run)

    assert record.state is RunState.SUCCEEDED, record.message
    evidence = {one["pod_uid"]: one for one in scene.attempts(run, "sweep").values()}
    lost = evidence.pop(old)
    assert lost["reason"] == "lost"
    assert "node no longer exists" in lost["message"]
    assert [one["reason"] for one in evidence.values()] == ["completed"]
    assert {path.name for path in scene.task(run, "sweep").done.iterdir()} == {"0", "1"}
