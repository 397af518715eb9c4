"""Attempts that outlive their run get an end, too."""

from __future__ import annotations

from typing import Any

import pytest

from simrun.backends.base import Attempt, Phase
from simrun.base.errors import BackendUnavailable
from simrun.model.record import RunState
from simrun.model.report import AttemptEvidence
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


def ends(worker: str, world: World, **more: Any) -> Attempt:
    at = world.clock.wall()
    values = {"phase": Phase.FAILED, "reason": "evicted", "exit_code": 143, "ended": at}
    return runs(worker, world, **{**values, **more})


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


async def test_what_is_seen_of_their_end_later_is_noted(world: World) -> None:
    name = await extra_workers_outlive_the_merge(world)
    world.clock.advance(5)
    world.backend.attempt(name, "sweep-w1", ends("sweep-w1", world, message="main: Error"))
    world.backend.attempt(
        name, "sweep-w2", ends("sweep-w2", world, reason="completed", exit_code=0)
    )
    await world.look()

    one, other = evidence(world)["sweep-w1"], evidence(world)["sweep-w2"]
    assert (one.reason, one.exit_code, one.ended) == ("cancelled", 143, world.clock.wall())
    assert one.message == "stopped when its run ended (succeeded); main: Error"
    assert (other.reason, other.exit_code) == ("completed", 0)


async def test_an_attempt_that_is_called_ended_before_it_is_has_not_ended(world: World) -> None:
    name = await extra_workers_outlive_the_merge(world)
    stopped_at = world.clock.wall()
    world.clock.advance(5)
    early = ends("sweep-w1", world, reason="cancelled", exit_code=None, ended=None)
    world.backend.attempt(name, "sweep-w1", early)
    await world.look()
    assert evidence(world)["sweep-w1"].ended == stopped_at

    world.backend.attempt(name, "sweep-w1", ends("sweep-w1", world))
    await world.look()

    assert evidence(world)["sweep-w1"].ended == world.clock.wall()


async def test_nobody_is_asked_again_once_all_have_ended(world: World) -> None:
    name = await extra_workers_outlive_the_merge(world)
    for worker in ("sweep-w1", "sweep-w2"):
        world.backend.attempt(name, worker, ends(worker, world))
    await world.look()
    asked = len(world.backend.calls)
    await world.look()

    assert world.backend.calls[asked:] == []


async def test_a_backend_that_is_away_is_asked_again(world: World) -> None:
    name = await extra_workers_outlive_the_merge(world)
    world.backend.attempt(name, "sweep-w1", ends("sweep-w1", world))
    world.backend.fail_next("status")
    with pytest.raises(BackendUnavailable):
        await world.look()
    await world.look()

    assert evidence(world)["sweep-w1"].exit_code == 143


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


async def test_what_ended_by_itself_just_before_its_run_keeps_its_own_reason(world: World) -> None:
    name = await world.start(SWEEP)
    world.backend.attempt(name, "sweep-w1", runs("sweep-w1", world))
    await world.look()
    before = world.clock.wall()
    world.clock.advance(60)
    await world.controller.cancel("run1")
    world.backend.attempt(
        name, "sweep-w1", ends("sweep-w1", world, reason="error", exit_code=3, ended=before)
    )
    await world.look()

    assert evidence(world)["sweep-w1"].reason == "error"
