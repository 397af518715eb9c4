"""Rounds: a run is retried, and only what is not done runs again."""

from __future__ import annotations

import json

import pytest

from simrun.backends.base import Attempt, Phase
from simrun.base.errors import Conflict
from simrun.model.record import RunState, TaskState
from simrun.service.rounds import prepare_round
from simrun.worker import files
from simrun.worker.claims import Holder
from simrun.worker.ledger import Ledger
from simrun.worker.protocol import TaskDir
from tests.service.world import World

MIB = 2**20


async def failed_run(world: World) -> None:
    """Let sweep be done and plot fail in its attempt 1."""
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    await world.look()
    lost = Attempt(n=0, phase=Phase.ERROR, reason="lost", pod_uid="uid-0")
    world.backend.attempt(name, "plot", lost, node=Phase.RUNNING)
    bad = Attempt(n=1, phase=Phase.FAILED, reason="error", exit_code=3, pod_uid="uid-1")
    world.backend.attempt(name, "plot", bad)
    assert (await world.look()).state is RunState.FAILED


async def test_the_next_round_keeps_what_is_done_and_numbers_attempts_on(world: World) -> None:
    await failed_run(world)

    after = prepare_round(world.store, world.record())

    assert after.round == 1
    assert after.tasks == {"sweep": TaskState.DONE, "plot": TaskState.WAITING}
    assert after.attempt_base == {"plot": 2}
    assert after.workflow_name == "simrun-run1-r1"
    assert after.state is RunState.SUBMITTING


async def test_a_retried_run_succeeds_without_touching_the_done_task(world: World) -> None:
    await failed_run(world)
    record = world.record()
    written = await world.controller.write(record, prepare_round(world.store, record))
    assert written is not None
    assert world.controller.resume is not None
    await world.controller.resume("run1")
    assert written.workflow_name is not None
    world.backend.succeed(written.workflow_name, "plot", 2)

    record = await world.look()

    assert record.state is RunState.SUCCEEDED
    assert record.tasks["sweep"] is TaskState.DONE


async def test_a_kill_of_an_earlier_round_raises_the_first_memory_and_is_no_second_kill(
    world: World,
) -> None:
    name = await world.start()
    for n, memory in enumerate((256 * MIB, 1024 * MIB)):
        kill = Attempt(
            n=n, phase=Phase.FAILED, reason="oom", exit_code=137, oom=True, memory=memory,
            pod_uid=f"uid-{n}",
        )  # fmt: skip
        world.backend.attempt(name, "sweep-w0", kill, node=Phase.RUNNING)
        record = await world.look()
    assert record.state is RunState.FAILED
    written = await world.controller.write(record, prepare_round(world.store, record))
    assert written is not None
    assert world.controller.resume is not None
    await world.controller.resume("run1")

    plan = world.record().plans["sweep"]
    assert plan.memory > 1024 * MIB
    assert plan.retry_memory is not None
    assert plan.retry_memory >= plan.memory
    first = Attempt(
        n=2,
        phase=Phase.FAILED,
        reason="oom",
        exit_code=137,
        oom=True,
        memory=plan.memory,
        pod_uid="u2",
    )
    world.backend.attempt(written.workflow_name or "", "sweep-w0", first, node=Phase.RUNNING)
    assert (await world.look()).state is RunState.RUNNING


async def test_failed_units_are_opened_again_and_never_deleted(world: World) -> None:
    name = await world.start()
    task_dir = TaskDir(world.task_dir("sweep"))
    ledger = Ledger(task_dir, Holder("sweep-w0", 0, "uid0", "n"), 5, tries=1, max_evictions=0)
    claim = ledger.claim_next()
    assert claim is not None
    record_file = task_dir.root / "record.json"
    record_file.write_text("{}")
    assert ledger.fault(claim, "error", "exit code 1", record_file) == "failed"
    bad = Attempt(n=0, phase=Phase.FAILED, reason="error", exit_code=3, pod_uid="uid0")
    world.backend.attempt(name, "sweep-w0", bad)
    record = await world.look()
    await world.controller.write(record, prepare_round(world.store, record))
    assert world.controller.resume is not None

    await world.controller.resume("run1")

    fresh = Ledger(task_dir, Holder("sweep-w0", 1, "uid1", "n"), 5, tries=1, max_evictions=0)
    assert fresh.state().failed == 0
    assert len(files.listing(task_dir.failed)) == 1


async def test_a_run_that_has_not_ended_or_has_succeeded_is_refused(world: World) -> None:
    name = await world.start()
    with pytest.raises(Conflict, match="has not ended"):
        prepare_round(world.store, world.record())
    for worker in ("sweep-w0", "plot"):
        world.backend.succeed(name, worker)
    world.merge("sweep")
    await world.look()
    with pytest.raises(Conflict, match="succeeded"):
        prepare_round(world.store, world.record())


async def test_a_harness_that_knows_no_rounds_is_told_to_be_resubmitted(world: World) -> None:
    await failed_run(world)
    reports = world.task_dir("plot") / "reports"
    old = {
        "schema": 1, "run": "run1", "task": "plot", "worker": "plot", "attempt": 1, "exit_code": 3,
        "reason": "error", "started": 1.0, "ended": 2.0,
    }  # fmt: skip
    (reports / "plot-1.json").write_text(json.dumps(old))

    with pytest.raises(Conflict, match="resubmit"):
        prepare_round(world.store, world.record())
