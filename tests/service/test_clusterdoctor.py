"""`simrun doctor` on a cluster, against a server that answers as Kubernetes does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.cluster import ClusterConfig
from simrun.model.record import RunState
from simrun.service.clusterdoctor import cluster_remains, examine_cluster
from simrun.service.doctor import repair
from tests.backends.kubernetes.fake_api import FakeApi, furnished_api
from tests.cli.store import Runs

CONFIG = ClusterConfig(namespace="here")
WORKFLOWS = "/apis/argoproj.io/v1alpha1/namespaces/here/workflows"
PODS = "/api/v1/namespaces/here/pods"
NODES = "/api/v1/nodes"


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with furnished_api() as api:
        yield api


@pytest.fixture
async def kube(server: FakeApi) -> AsyncIterator[KubeSession]:
    async with KubeSession(Access(server=server.url)) as session:
        yield session


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "store")


def named(run: str, **more: Any) -> dict[str, Any]:
    labels = {"simrun/run": run, "app.kubernetes.io/managed-by": "simrun"}
    return {"metadata": {"labels": labels, **more}}


def reserved(run: str) -> dict[str, Any]:
    taint = {"key": "simrun/reserved", "value": run, "effect": "NoExecute"}
    return {"metadata": {"labels": {"simrun/reserved": run}}, "spec": {"taints": [taint]}}


async def test_a_cluster_that_has_all_is_told_so(kube: KubeSession) -> None:
    found = await examine_cluster(kube, CONFIG)

    assert {item.level for item in found} == {"ok"}, found
    assert "Argo Workflows is there" in found[0].text


async def test_what_is_not_allowed_or_missing_is_told_with_its_remedy(
    server: FakeApi, kube: KubeSession
) -> None:
    server.denied |= {"create workflows", "patch nodes"}

    found = await examine_cluster(
        kube, CONFIG.model_copy(update={"local_queue": "nix", "base_priority": "odd"})
    )

    problems = [item for item in found if item.level == "problem"]
    assert "create workflows.argoproj.io" in problems[0].text
    assert "bind a Role" in problems[0].remedy
    assert [item.text.partition(":")[0] for item in problems[1:]] == [
        "local_queue",
        "base_priority",
        "base_priority",
    ]
    notes = [item.text for item in found if item.level == "note"]
    assert notes == ["not allowed: patch nodes, so no run can have a node of its own"]


async def test_a_cluster_that_is_away_is_one_problem(kube: KubeSession, server: FakeApi) -> None:
    server.fail(lambda _request: True, 401)

    (problem,) = await examine_cluster(kube, CONFIG)

    assert problem.level == "problem"


async def test_only_what_belonged_to_a_run_of_this_store_that_is_gone_is_removed(
    kube: KubeSession, server: FakeApi, runs: Runs
) -> None:
    runs.add("going", state=RunState.RUNNING)
    runs.add("ended")
    runs.store.layout.tombstone("deleted").write_text("")
    for run in ("going", "ended", "deleted", "stranger"):
        workflow = await server.put(f"{WORKFLOWS}/simrun-{run}", named(run))
        owner = {"uid": workflow["metadata"]["uid"], "kind": "Workflow", "name": f"simrun-{run}"}
        await server.put(f"{PODS}/{run}-owned", named(run, ownerReferences=[owner]))
        await server.put(f"{PODS}/{run}-alone", named(run))
        await server.put(f"{NODES}/for-{run}", reserved(run))

    found = await cluster_remains(kube, CONFIG, runs.store)

    assert [item.text for item in found if item.repair] == [
        "workflow simrun-deleted of run deleted, which was deleted",
        "pod deleted-alone of run deleted, which was deleted",
        "pod ended-alone of run ended, which has ended (succeeded)",
        "node for-deleted of run deleted, which was deleted",
        "node for-ended of run ended, which has ended (succeeded)",
    ]
    (note,) = [item for item in found if item.level == "note"]
    assert (
        "workflow simrun-stranger, pod stranger-alone, node for-stranger of run stranger"
        in note.text
    )
    assert note.repair is None

    assert [error for _, error in await repair(found)] == [None] * 5
    for path in (
        f"{WORKFLOWS}/simrun-deleted",
        f"{PODS}/deleted-owned",
        f"{PODS}/deleted-alone",
        f"{PODS}/ended-alone",
    ):
        assert server.read(path) is None, path
    for run in ("going", "stranger"):
        for path in (f"{WORKFLOWS}/simrun-{run}", f"{PODS}/{run}-owned", f"{PODS}/{run}-alone"):
            assert server.read(path) is not None, path
        assert (server.read(f"{NODES}/for-{run}") or {})["metadata"]["labels"][
            "simrun/reserved"
        ] == run
    assert server.read(f"{WORKFLOWS}/simrun-ended") is not None
    for run in ("ended", "deleted"):
        node = server.read(f"{NODES}/for-{run}") or {}
        assert "simrun/reserved" not in node["metadata"]["labels"]
        assert not node["spec"].get("taints")


async def test_a_run_that_was_retried_meanwhile_keeps_its_things(
    kube: KubeSession, server: FakeApi, runs: Runs
) -> None:
    record = runs.add("mine")
    await server.put(f"{PODS}/mine-alone", named("mine"))
    found = await cluster_remains(kube, CONFIG, runs.store)
    runs.store.write_if_unchanged(record, record.changed(state=RunState.RUNNING))

    ((_, error),) = await repair(found)

    assert "goes on" in str(error)
    assert server.read(f"{PODS}/mine-alone") is not None
