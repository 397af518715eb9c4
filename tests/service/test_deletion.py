"""Workflows of ended runs: there for an hour, then deleted."""

from __future__ import annotations

from simrun.service.effects import WORKFLOW_KEPT_S
from tests.service.world import World, make_world


async def ended(world: World) -> str:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    await world.look()
    world.backend.succeed(name, "plot")
    record = await world.look()
    assert record.state == "succeeded"
    assert not record.pending
    return name


async def test_the_workflow_of_an_ended_run_is_left_for_an_hour_and_then_deleted(
    world: World,
) -> None:
    name = await ended(world)
    world.clock.advance(WORKFLOW_KEPT_S - 1)
    await world.look()
    assert name in world.backend.workflows

    world.clock.advance(1)
    await world.look()

    assert name not in world.backend.workflows
    assert world.record().state == "succeeded"


async def test_a_service_that_was_away_deletes_what_it_finds(world: World) -> None:
    name = await ended(world)
    world.clock.advance(2 * WORKFLOW_KEPT_S)
    anew = make_world(world.store.layout.root, world.clock, world.backend)

    await anew.look()

    assert name not in anew.backend.workflows


async def test_nothing_is_deleted_while_something_is_pending(world: World) -> None:
    name = await world.start()
    world.backend.fail_next("stop", 100)
    await world.controller.cancel("run1")
    world.clock.advance(2 * WORKFLOW_KEPT_S)

    await world.look()

    assert world.record().pending
    assert name in world.backend.workflows


async def test_deleting_what_is_gone_already_is_nothing(world: World) -> None:
    name = await ended(world)
    world.backend.forget(name)
    world.clock.advance(WORKFLOW_KEPT_S)

    await world.look()

    assert world.record().state == "succeeded"
