"""How seldom a workflow is read whole, and when it must be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.facts import PodFact, pod_fact
from simrun.backends.kubernetes.reading import WorkflowReader
from simrun.backends.kubernetes.tables import WorkflowTable
from tests.backends.kubernetes.objects import pod, retry, running, terminated

Json = dict[str, Any]

LIVES = pod("sim(0)", containers=(running(),))
ENDED = pod("sim(0)", phase="Failed", containers=(terminated("main", 3, "Error"),))


@dataclass
class World:
    """A workflow, what the table knows of it, and how often it was read."""

    every_s: float = 60.0
    settled_s: float = 60.0
    reads: int = 0
    there: Json | None = None
    rung: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pods: tuple[Json, ...] = ()
        self.table = WorkflowTable(
            lambda _run: None, lambda fact: self.reader.moved(fact, facts(self.pods))
        )
        self.reader = WorkflowReader(
            self,  # type: ignore[arg-type] # all that is asked of a session is get
            lambda name: name,
            self.table,
            self.rung.append,
            self.every_s,
            settled_s=self.settled_s,
        )
        self.write(1, [{"phase": "Running"}])

    async def get(self, _path: str) -> Json:
        self.reads += 1
        if self.there is None:
            raise errors.NotFound("gone")
        return self.there

    def write(self, version: int, attempts: list[Json], *, completed: bool = False) -> None:
        """What Argo does; the watch tells it at once."""
        nodes = {node["id"]: node for node in retry("sim", "Running", attempts)}
        marks = {"simrun/run": "r1"}
        if completed:
            marks["workflows.argoproj.io/completed"] = "true"
        metadata = {"name": "wf", "uid": LIVES["metadata"]["ownerReferences"][0]["uid"]}
        metadata |= {"resourceVersion": str(version), "labels": marks}
        self.there = {"metadata": metadata, "status": {"phase": "Running", "nodes": nodes}}
        self.table.upsert(self.there)

    async def look(self, *pods: Json) -> Json | None:
        self.pods = pods
        return await self.reader.read("wf", facts(pods))


def facts(pods: tuple[Json, ...]) -> list[PodFact]:
    return [pod_fact(one) for one in pods]


def attempts_in(workflow: Json | None) -> int:
    assert workflow is not None
    return sum(node["type"] == "Pod" for node in workflow["status"]["nodes"].values())


@pytest.fixture
async def world() -> World:
    return World()


async def test_a_workflow_that_did_not_change_is_read_once(world: World) -> None:
    for _ in range(3):
        await world.look(ENDED)

    assert world.reads == 1


async def test_changes_of_a_workflow_whose_pods_all_live_wake_nobody_and_are_not_read(
    world: World,
) -> None:
    await world.look(LIVES)
    for version in range(2, 5):
        world.write(version, [{"phase": "Running"}])
        await world.look(LIVES)
    world.reader.close()

    assert world.reads == 1
    assert world.rung == []


async def test_they_are_read_in_a_while_all_the_same_since_a_task_may_have_failed_without_a_pod() -> (
    None
):
    world = World(settled_s=0.05)
    await world.look(LIVES)
    world.write(2, [{"phase": "Running"}, {"phase": "Error"}])
    async with asyncio.timeout(20):
        while not world.rung:
            await asyncio.sleep(0.01)

    assert attempts_in(await world.look(LIVES)) == 2


async def test_changes_of_a_workflow_whose_pods_leave_something_open_wake_at_once(
    world: World,
) -> None:
    await world.look(LIVES)
    world.write(2, [{"phase": "Running"}])  # sets an alarm for later
    world.pods = (ENDED,)
    world.write(3, [{"phase": "Running"}])

    assert world.rung == ["r1"]
    world.reader.close()


async def test_of_two_alarms_the_earlier_rings() -> None:
    world = World(every_s=0.05)
    await world.look(LIVES)
    world.write(2, [{"phase": "Failed"}])
    await world.look(LIVES)
    assert world.rung == []

    await world.look(ENDED)
    async with asyncio.timeout(20):
        while not world.rung:
            await asyncio.sleep(0.01)

    assert world.reads == 1


@pytest.mark.parametrize(
    "pods",
    [
        (ENDED,),
        (),
        (LIVES, pod("later", uid="p2", containers=(running(),))),
    ],
    ids=["a pod ended", "a pod vanished", "a pod that no attempt explains"],
)
async def test_what_the_pods_leave_open_is_read_after_a_while(pods: tuple[Json, ...]) -> None:
    world = World(every_s=0.05)
    await world.look(LIVES)
    world.write(2, [{"phase": "Failed"}, {"phase": "Pending"}])

    assert attempts_in(await world.look(*pods)) == 1
    async with asyncio.timeout(20):
        while not world.rung:
            await asyncio.sleep(0.01)

    assert world.rung == ["r1"]
    assert attempts_in(await world.look(*pods)) == 2
    assert world.reads == 2


async def test_what_is_open_is_read_at_most_once_in_a_while_however_often_it_changes(
    world: World,
) -> None:
    for version in range(2, 50):
        world.write(version, [{"phase": "Running"}])
        await world.look(ENDED)
    world.reader.close()

    assert world.reads == 1
    assert set(world.rung) <= {"r1"}


async def test_completion_is_read_at_once(world: World) -> None:
    await world.look(LIVES)
    world.write(2, [{"phase": "Failed"}, {"phase": "Succeeded"}], completed=True)

    assert attempts_in(await world.look(LIVES)) == 2


async def test_a_workflow_that_the_table_lost_is_asked_for(world: World) -> None:
    await world.look(LIVES)
    world.table.replace([])
    assert await world.look(LIVES) is not None
    world.there = None

    assert await world.look(LIVES) is None
    assert world.reads == 3


async def test_a_workflow_made_anew_under_its_name_is_read(world: World) -> None:
    await world.look(LIVES)
    assert world.there is not None
    world.there["metadata"] = world.there["metadata"] | {"uid": "another", "resourceVersion": "9"}
    world.table.upsert(world.there)

    workflow = await world.look(LIVES)

    assert workflow is not None
    assert workflow["metadata"]["uid"] == "another"


async def test_without_a_watch_every_look_is_a_read(world: World) -> None:
    for _ in range(3):
        await world.reader.read("wf", None)

    assert world.reads == 3


async def test_what_was_read_is_forgotten_with_its_workflow(world: World) -> None:
    await world.look(LIVES)
    world.table.replace([])
    world.reader.forget_gone()
    world.write(1, [{"phase": "Running"}])

    await world.look(LIVES)

    assert world.reads == 2


async def test_only_what_is_asked_of_a_workflow_is_kept(world: World) -> None:
    assert world.there is not None
    for node in world.there["status"]["nodes"].values():
        node |= {
            "templateScope": "x" * 1000,
            "inputs": {"parameters": [{"name": "worker", "value": "a"}, {"name": "z"}]},
        }
    world.there["spec"] = {"templates": ["x" * 1000]}

    kept = await world.look(LIVES)

    assert "x" * 1000 not in str(kept)
    assert all(
        node["inputs"] == {"parameters": [{"name": "worker", "value": "a"}]}
        for node in (kept or {})["status"]["nodes"].values()
    )
