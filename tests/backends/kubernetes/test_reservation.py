"""Nodes for one run alone: which one is taken, and that nobody loses one to another."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from simrun.backends.kubernetes.reservation import Reservations
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendUnavailable
from simrun.model.cluster import ClusterConfig
from tests.backends.kubernetes.fake_api import FakeApi
from tests.backends.kubernetes.objects import pod

Json = dict[str, Any]

CONFIG = ClusterConfig(
    namespace="here",
    node_selector={"pool": "sims"},
    tolerations=[{"key": "dedicated", "operator": "Equal", "value": "sims", "effect": "NoSchedule"}],
)  # fmt: skip
RESERVED = {"key": "simrun/reserved", "value": "r1", "effect": "NoExecute"}


def node(*taints: Json, ready: str = "True", closed: bool = False, **labels: str) -> Json:
    marks = {"pool": "sims"} | {key.replace("_", "/"): value for key, value in labels.items()}
    return {
        "metadata": {"labels": marks},
        "spec": {"taints": list(taints), "unschedulable": closed},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


@pytest.fixture
def reservations(kube: KubeSession) -> Reservations:
    return Reservations(kube, CONFIG)


@pytest.fixture
def nodes(server: FakeApi) -> Any:
    async def put(**nodes: Json) -> None:
        for name, one in nodes.items():
            await server.put(f"/api/v1/nodes/{name}", one)

    return put


def reserved_for(server: FakeApi, name: str) -> tuple[str | None, list[str]]:
    """Label, and values of the taints."""
    there = server.read(f"/api/v1/nodes/{name}")
    assert there is not None
    taints = there["spec"].get("taints") or []
    return there["metadata"]["labels"].get("simrun/reserved"), [
        one["value"] for one in taints if one["key"] == "simrun/reserved"
    ]


async def test_a_node_gets_label_and_taint_and_keeps_its_others(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(taint("dedicated", "sims")))

    assert await reservations.reserve("r1") == "a"

    there = server.read("/api/v1/nodes/a")
    assert there is not None
    assert there["spec"]["taints"] == [taint("dedicated", "sims"), RESERVED]
    assert there["metadata"]["labels"] == {"pool": "sims", "simrun/reserved": "r1"}


async def test_reserving_again_finds_the_node_and_takes_no_second(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node())

    first = await reservations.reserve("r1")
    patches = len([request for request in server.requests if request.method == "PATCH"])

    assert await reservations.reserve("r1") == first
    assert len([request for request in server.requests if request.method == "PATCH"]) == patches


async def test_two_runs_have_two_nodes_and_a_third_has_to_wait(
    reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node())

    assert {await reservations.reserve("r1"), await reservations.reserve("r2")} == {"a", "b"}
    with pytest.raises(BackendUnavailable, match="no node is free"):
        await reservations.reserve("r3")


async def test_only_nodes_that_runs_may_use_are_taken(
    reservations: Reservations, nodes: Any
) -> None:
    await nodes(
        a=node(ready="False"),
        b=node(ready="Unknown"),
        c=node(closed=True),
        d=node(taint("node-role.kubernetes.io/control-plane")),
        e=node(taint("dedicated", "others")),
        f=node(taint("dedicated", "sims", "NoExecute")),
        g=node(pool="web"),
        h=node(taint("simrun/reserved", "r9", "NoExecute")),
        i=node(taint("soft", effect="PreferNoSchedule"), taint("dedicated", "sims")),
    )

    assert await reservations.reserve("r1") == "i"


async def test_a_toleration_of_everything_opens_tainted_nodes(
    kube: KubeSession, nodes: Any
) -> None:
    await nodes(a=node(taint("gpu", "yes")))
    config = CONFIG.model_copy(update={"tolerations": [{"operator": "Exists"}]})

    assert await Reservations(kube, config).reserve("r1") == "a"


async def test_a_node_without_pods_of_other_runs_is_preferred(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node(), c=node())
    pods = "/api/v1/namespaces/here/pods"
    for uid, host, run, phase in (
        ("1", "a", "r2", "Running"),
        ("2", "b", "r2", "Succeeded"),
        ("3", "b", "r1", "Running"),
        ("4", "c", "r3", "Pending"),
    ):
        one = pod(uid=uid, run=run, phase=phase)
        one["spec"]["nodeName"] = host
        await server.put(f"{pods}/{uid}", one)

    assert await reservations.reserve("r1") == "b"


async def test_a_half_made_reservation_is_completed(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node(simrun_reserved="r1"))

    assert await reservations.reserve("r1") == "b"
    assert reserved_for(server, "b") == ("r1", ["r1"])


async def test_a_node_that_another_service_took_meanwhile_is_left_to_it(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node())
    taken = taint("simrun/reserved", "r2", "NoExecute")

    def take(request: web.Request) -> bool:
        if request.method == "PATCH" and reserved_for(server, "a") == (None, []):
            there = server.read("/api/v1/nodes/a")
            assert there is not None
            there["spec"]["taints"] = [taken]
            there["metadata"]["labels"]["simrun/reserved"] = "r2"
            there["metadata"]["resourceVersion"] = "9999"
        return False

    server.fail(500, matches=take)

    assert await reservations.reserve("r1") == "b"
    assert reserved_for(server, "a") == ("r2", ["r2"])


async def test_a_node_is_given_back_and_keeps_its_other_taints(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(taint("dedicated", "sims")))
    await reservations.reserve("r1")

    await reservations.release("a", "r1")

    there = server.read("/api/v1/nodes/a")
    assert there is not None
    assert there["spec"]["taints"] == [taint("dedicated", "sims")]
    assert there["metadata"]["labels"] == {"pool": "sims"}


async def test_a_node_of_another_run_is_left_alone(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node())
    await reservations.reserve("r2")

    await reservations.release("a", "r1")

    assert reserved_for(server, "a") == ("r2", ["r2"])


async def test_without_a_name_whatever_the_run_has_is_released(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(), b=node())
    mine = await reservations.reserve("r1")
    others = await reservations.reserve("r2")

    await reservations.release(None, "r1")

    assert reserved_for(server, mine) == (None, [])
    assert reserved_for(server, others) == ("r2", ["r2"])


async def test_of_a_mixed_up_node_only_the_own_part_is_released(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node(RESERVED, simrun_reserved="r2"))

    await reservations.release("a", "r1")

    assert reserved_for(server, "a") == ("r2", [])


async def test_an_unknown_node_and_a_free_one_count_as_released(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node())

    await reservations.release("nowhere", "r1")
    await reservations.release("a", "r1")

    assert not [request for request in server.requests if request.method == "PATCH"]


async def test_a_node_that_changes_meanwhile_is_released_all_the_same(
    server: FakeApi, reservations: Reservations, nodes: Any
) -> None:
    await nodes(a=node())
    await reservations.reserve("r1")
    changes = iter(range(2))

    def change(request: web.Request) -> bool:
        if request.method == "PATCH" and next(changes, None) is not None:
            there = server.read("/api/v1/nodes/a")
            assert there is not None
            there["metadata"]["resourceVersion"] += "0"
        return False

    server.fail(500, matches=change)
    await reservations.release("a", "r1")

    assert reserved_for(server, "a") == (None, [])
