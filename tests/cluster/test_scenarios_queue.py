"""Quota that is scarce: extra workers that are driven out, that never get any, that are still there at the end; runs cancelled anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.base import Backend
from simrun.model.cluster import PriorityClasses
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.tasktype import TaskType
from tests.cluster.scenarios import GATE, Scene, running, sweep

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

FLOWS = Path(__file__).parent / "flows"


async def test_an_extra_worker_driven_out_by_another_runs_coordinator_is_tried_again_and_the_merge_does_not_wait_for_it(
    scene: Scene,
) -> None:
    async with scene.service() as service:
        first = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=3, units=5)},
        )
        await service.when(first, running("sweep-w0", "sweep-w1", "sweep-w2"))
        second = await service.submit(
            {"urgent": {"type": "urgent"}}, {"urgent": {"command": GATE, "harness": True}}
        )
        await service.when(second, running("urgent"))
        preemptor = (await service.pod(second, "urgent"))["metadata"]["uid"]
        await service.recorded(first, lambda record: bool(record.evictions))
        # Its next attempt waits for the quota that the other run holds
        (victim,) = scene.record(first).evictions
        await service.when(first, lambda status: len(status.nodes[victim].attempts) == 2)
        scene.open_gate(first, "sweep")

        record = await service.ended(first)
        other = await service.session.record(second)
        await service.nothing_left(first)
        scene.open_gate(second, "urgent")
        last = await service.ended(second)

    assert record.state is RunState.SUCCEEDED, record.message
    assert len(list(scene.task(first, "sweep").done.iterdir())) == 5
    # The next one counts as the same attempt when its predecessor was only seconds old
    evidence = scene.attempts(first, "sweep")
    (driven_out,) = [one for one in evidence.values() if one["reason"] == "preempted"]
    assert driven_out["worker"] == victim
    assert "Preempted to accommodate a workload" in driven_out["message"]
    assert preemptor in driven_out["message"]
    assert evidence["sweep-w0-0"]["reason"] == "completed"
    started = [one for one in evidence.values() if one["worker"] == victim and one["started"]]
    assert started == [driven_out]
    assert (other.state, other.evictions) == (RunState.RUNNING, {})
    assert last.state is RunState.SUCCEEDED


async def test_a_run_ends_without_the_extra_workers_that_never_got_quota_and_stops_the_one_that_still_works(
    scene: Scene,
) -> None:
    """Two runs at once: of one only the coordinator fits, of the other an extra worker has not got to its first unit when all are merged."""
    alone = {"cpu": 0.35, "memory": "96Mi"}
    slow = {
        "plugin": "slow_extra.py:compute",
        "split": {"workers": 2, "units": {"plugin": "slow_extra.py:units"}},
        "resources": {"cpu": 0.12, "memory": "96Mi"},
    }
    async with scene.service() as service:
        late = await service.submit({"late": {"type": "late"}}, {"late": slow}, base=FLOWS)
        await service.when(late, running("late-w0", "late-w1"))
        lonely = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(GATE, workers=4, units=3, resources=alone)},
        )
        status = await service.when(lonely, running("sweep-w0"))
        scene.open_gate(lonely, "sweep")
        ends = await asyncio.gather(service.ended(late), service.ended(lonely))
        await asyncio.gather(service.nothing_left(late), service.nothing_left(lonely))

    assert [end.state for end in ends] == [RunState.SUCCEEDED] * 2, [end.message for end in ends]
    assert not any(running(f"sweep-w{number}")(status) for number in (1, 2, 3))
    assert scene.attempts(lonely, "sweep")["sweep-w0-0"]["reason"] == "completed"
    assert len(list(scene.task(late, "late").done.iterdir())) == 3
    assert scene.attempts(late, "late")["late-w0-0"]["reason"] == "completed"
    extra = scene.attempts(late, "late")["late-w1-0"]
    assert extra["started"] is not None
    assert extra["reason"] == "cancelled"
    assert "stopped when its run ended (succeeded)" in extra["message"]
    assert extra["ended"] >= extra["started"]


async def test_a_run_of_low_priority_makes_room_for_one_of_normal_priority_and_goes_on_after_it(
    scene: Scene,
) -> None:
    low = {"low": PriorityClasses(base=scene.config.extra_priority)}
    scene.config = scene.config.model_copy(update={"priorities": low})
    whole = {
        "whole": {"command": GATE, "harness": True, "resources": {"cpu": 0.6, "memory": "96Mi"}}
    }
    async with scene.service() as service:
        idle = await service.submit({"idle": {"type": "whole"}}, whole, priority="low")
        await service.when(idle, running("idle"))
        urgent = await service.submit({"urgent": {"type": "whole"}}, whole)
        await service.when(urgent, running("urgent"))
        scene.open_gate(urgent, "urgent")
        scene.open_gate(idle, "idle")
        ends = [await service.ended(urgent), await service.ended(idle)]

    assert [end.state for end in ends] == [RunState.SUCCEEDED] * 2, [end.message for end in ends]
    assert [end.evictions for end in ends] == [{}, {"idle": 1}]
    reasons = {one["reason"] for one in scene.attempts(idle, "idle").values()}
    assert reasons == {"preempted", "completed"}


class HeldBackend:
    """A backend whose submission of one run begins when it is told to."""

    def __init__(self, backend: Backend, run: str) -> None:
        self._backend, self._run = backend, run
        self.reached, self.release = asyncio.Event(), asyncio.Event()

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        if record.workflow is not None and self._run in record.workflow.tasks:
            self.reached.set()
            await self.release.wait()
        return await self._backend.submit(record, plans, types)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


async def test_a_run_that_is_cancelled_before_its_workflow_exists_gated_starting_or_running_leaves_nothing_behind(
    scene: Scene,
) -> None:
    held: list[HeldBackend] = []

    def hold(backend: Backend) -> Backend:
        held.append(HeldBackend(backend, "before"))
        return held[0]

    kinds = {
        "running": {"command": GATE, "harness": True},
        "starting": {"command": GATE, "harness": True, "image": "registry.test/no-such-image:1"},
        "gated": {"command": GATE, "harness": True, "resources": {"cpu": 0.6, "memory": "96Mi"}},
        "before": {"command": GATE, "harness": True},
    }
    async with scene.service(wrap=hold) as service:

        async def submit(name: str) -> str:
            tasks = {name: {"type": name}, "after": {"type": name, "after": [name]}}
            return await service.submit(tasks, {name: kinds[name]})

        runs = {name: await submit(name) for name in ("running", "starting", "before")}
        await held[0].reached.wait()
        await service.when(runs["running"], running("running"))
        await service.when(
            runs["starting"],
            lambda status: "no-such-image" in _message(status.nodes.get("starting")),
        )
        # It needs all of the quota, so the others have to have theirs before
        runs["gated"] = await submit("gated")
        await service.when(runs["gated"], lambda status: "gated" in status.nodes)
        gates = (await service.pod(runs["gated"], "gated"))["spec"]["schedulingGates"]
        for run in runs.values():
            await service.session.cancel(run)
        held[0].release.set()

        ends = [await service.ended(run) for run in runs.values()]
        await asyncio.gather(*(service.nothing_left(run) for run in runs.values()))

    assert gates
    for end in ends:
        assert end.state is RunState.CANCELLED
        assert TaskState.DONE not in end.tasks.values()
        assert end.tasks["after"] is TaskState.SKIPPED
    assert scene.attempts(runs["before"], "before") == {}
    (stopped,) = scene.attempts(runs["running"], "running").values()
    assert (stopped["reason"], stopped["ended"] is None) == ("cancelled", False)


def _message(node: Any) -> str:
    return " ".join(attempt.message for attempt in node.attempts) if node is not None else ""
