"""Attempts that outlive their run get an end, too."""

from __future__ import annotations

from typing import Any

from simrun.backends.base import Attempt, Phase
from simrun.model.record import RunState
from simrun.model.report import AttemptEvidence
from simrun.service.leftovers import note_stopped
from tests.service.world import World, make_world, submission

SWEEP = submission(
    {"sweep": {"type": "split"}},
    {"split": {"command": ["true"], "image": "i", "split": {"workers": 3, "units": {"list": [1]}}}},
)


async def extra_workers_outlive_the_merge(world: World) -> str:
    """The coordinator is done and has merged; two extra workers run."""
    name = await world.start(SWEEP)
    for worker in ("sweep-w1", "sweep-w2"):
        world.backend.attempt(name, worker, runs(worker, world))
    await world.look()
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    assert (await world.look()).state is RunState.SUCCEEDED
    return name


def runs(worker: str, world: World, **more: Any) -> Attempt:
    values = {"phase": Phase.RUNNING, "pod_uid": f"uid-{worker}", "started": world.clock.wall()}
    return Attempt(**{"n": 0, **values, **more})


def evidence(world: World) -> dict[str, AttemptEvidence]:
    return {item.worker: item for item in world.store.evidence("run1", "sweep")}


async def test_extra_workers_that_are_stopped_with_their_run_get_a_reason_and_an_end(
    world: World,
) -> None:
    await extra_workers_outlive_the_merge(world)

    stopped = evidence(world)["sweep-w1"]
    assert (stopped.reason, stopped.ended) == ("cancelled", world.clock.wall())
    assert stopped.message == "stopped when its run ended (succeeded)"
    assert evidence(world)["sweep-w0"].reason == "completed"


async def test_attempts_of_a_cancelled_run_and_those_told_to_leave_before_it_keep_their_reason(
    world: World,
) -> None:
    name = await world.start(SWEEP)
    world.backend.attempt(name, "sweep-w0", runs("sweep-w0", world))
    world.backend.attempt(name, "sweep-w1", runs("sweep-w1", world, leaving="preempted"))
    await world.look()
    await world.controller.cancel("run1")

    assert {worker: item.reason for worker, item in evidence(world).items()} == {
        "sweep-w0": "cancelled",
        "sweep-w1": "preempted",
    }


async def test_a_service_that_died_before_the_stop_notes_it_at_its_next_start(
    world: World,
) -> None:
    name = await world.start(SWEEP)
    world.backend.attempt(name, "sweep-w0", runs("sweep-w0", world))
    await world.look()
    world.backend.fail_next("stop")
    await world.controller.cancel("run1")
    assert evidence(world)["sweep-w0"].reason is None

    again = make_world(world.store.layout.root, world.clock, world.backend)
    await again.look()
    again.pool.close()

    assert evidence(world)["sweep-w0"].reason == "cancelled"


async def test_it_is_noted_once_however_often_the_end_is_settled(world: World) -> None:
    await extra_workers_outlive_the_merge(world)
    before = evidence(world)
    world.clock.advance(100)
    await world.controller.settle("run1")
    await world.look()

    assert evidence(world) == before


async def test_what_was_deleted_before_the_stop_came_through_does_not_come_back(
    world: World,
) -> None:
    await extra_workers_outlive_the_merge(world)
    record = world.record()
    world.store.delete("run1")

    note_stopped(world.store, record, world.clock.wall())

    assert not world.store.layout.run("run1").root.exists()
