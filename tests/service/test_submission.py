"""From a submission to a running workflow."""

from __future__ import annotations

import json

import pytest

from simrun.base.errors import Conflict, InvalidInput
from simrun.model.record import RunState
from simrun.service.submission import create_run, new_record
from simrun.worker.protocol import TaskDir
from simrun.worker.units import UnitTable
from tests.service.world import SPLIT, SWEEP_THEN_PLOT, World, submission


async def test_settings_units_and_plans_stand_before_the_workflow_is_submitted(
    world: World,
) -> None:
    world.create()
    world.backend.fail_next("submit")
    assert world.controller.resume is not None

    with pytest.raises(Exception, match="as the script says"):
        await world.controller.resume("run1")

    settings = json.loads((world.task_dir("plot") / "settings.json").read_text())
    assert settings["inputs"] == {"table": {"run": "tasks/sweep/out/table.csv"}}
    table = UnitTable.load(TaskDir(world.task_dir("sweep")))
    assert table is not None
    assert [unit.params for unit in table] == [{"item": n} for n in range(1, 6)]
    assert len({unit.seed for unit in table}) == 5
    record = world.record()
    assert record.state is RunState.SUBMITTING
    assert record.plans["sweep"].pods == 3


async def test_a_job_that_runs_twice_ends_in_the_same_run(world: World) -> None:
    await world.start()
    before = world.record()
    assert world.controller.resume is not None

    await world.controller.resume("run1")

    assert world.record() == before
    assert len(world.backend.workflows) == 1


async def test_workers_are_no_more_than_units_and_an_empty_list_has_one(world: World) -> None:
    kind = {**SPLIT, "split": {"workers": 8, "units": {"list": []}}}
    await world.start(submission({"sweep": {"type": "split"}}, {"split": kind}))

    assert world.record().plans["sweep"].pods == 1
    table = UnitTable.load(TaskDir(world.task_dir("sweep")))
    assert table is not None
    assert table.count == 0


async def test_a_run_cancelled_while_it_is_submitted_has_its_workflow_stopped(world: World) -> None:
    world.create()
    real = world.backend.submit

    async def submit(*args: object) -> str:
        await world.controller.cancel("run1")
        return await real(*args)  # type: ignore[arg-type]

    world.backend.submit = submit  # type: ignore[method-assign]
    assert world.controller.resume is not None

    await world.controller.resume("run1")

    record = world.record()
    assert record.state is RunState.CANCELLED
    assert all(workflow.stopped for workflow in world.backend.workflows.values())


async def test_a_reserved_node_is_kept_in_the_record_and_released_at_the_end(world: World) -> None:
    what = submission(
        {"only": {"type": "plain"}}, {"plain": {"command": ["true"]}}, reserve_node=True
    )
    name = await world.start(what)
    assert world.record().node == "node0"
    world.backend.succeed(name, "only")

    await world.look()

    assert world.backend.reserved == {}


async def test_an_id_that_stands_for_another_submission_is_a_conflict(world: World) -> None:
    world.create()
    other = submission({"x": {"type": "plain"}}, {"plain": {"command": ["true"]}})

    with pytest.raises(Conflict, match="another submission"):
        world.create(other)


async def test_the_same_submission_under_the_same_id_is_the_same_run(world: World) -> None:
    first = world.create()

    again = create_run(world.store, new_record(SWEEP_THEN_PLOT, "run1", 5.0), SWEEP_THEN_PLOT, [])

    assert again == first


def test_an_id_that_cannot_be_one_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="-r1"):
        new_record(SWEEP_THEN_PLOT, "run-r1", 0.0)
