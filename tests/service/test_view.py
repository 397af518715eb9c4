"""What is known of a run: the marker of a merge through stale caches, and how long it has been awaited."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from blockbuster import BlockingError

from simrun.aio.threads import Pool
from simrun.backends.base import Phase
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.service.controller import MERGE_MARKER_GRACE_S, has_merge_marker
from simrun.service.view import ViewReader
from simrun.store.runs import RunStore
from tests.mounts import two_views
from tests.service.world import FakeClock, World, make_world


def test_a_merge_is_known_by_its_marker_in_out(tmp_path: Path) -> None:
    assert not has_merge_marker(tmp_path / "no-such-task")
    (tmp_path / "out").mkdir()
    assert not has_merge_marker(tmp_path)
    (tmp_path / "out" / "table.csv").write_text("")
    assert not has_merge_marker(tmp_path)
    (tmp_path / "out" / ".simrun-merged").write_text("{}")
    assert has_merge_marker(tmp_path)


def test_the_marker_is_seen_though_lookups_of_it_and_of_out_were_answered_no_before() -> None:
    with two_views() as (service, pod):
        marker = service / "out" / ".simrun-merged"
        assert not marker.exists()
        assert not has_merge_marker(service)
        (pod / "out").mkdir()
        (pod / "out" / ".simrun-merged").write_text("{}")
        assert not marker.exists()
        assert has_merge_marker(service)


@pytest.fixture
def reader(tmp_path: Path, clock: FakeClock) -> ViewReader:
    return ViewReader(RunStore(tmp_path), Pool("files", 1), clock)


def awaiting(**since: float) -> RunRecord:
    return RunRecord(id="run1", times=RunTimes(created=0)).changed(merge_pending=since)


def test_a_wait_goes_on_from_what_the_record_says_and_then_by_the_monotonic_clock(
    reader: ViewReader, clock: FakeClock
) -> None:
    record = awaiting(sweep=clock.wall() - 30)
    assert reader.waited(record) == {"sweep": 30}
    clock.advance(5)
    clock.step(3600)
    assert reader.waited(record) == {"sweep": 35}
    clock.step(-7200)
    clock.advance(1)
    assert reader.waited(record) == {"sweep": 36}


def test_a_wait_that_lies_ahead_of_the_wall_clock_begins_now(
    reader: ViewReader, clock: FakeClock
) -> None:
    assert reader.waited(awaiting(sweep=clock.wall() + 500)) == {"sweep": 0}


def test_a_wait_that_ended_is_forgotten_and_the_next_one_of_the_task_begins_anew(
    reader: ViewReader, clock: FakeClock
) -> None:
    reader.waited(awaiting(sweep=clock.wall()))
    clock.advance(50)
    assert reader.waited(awaiting()) == {}
    assert reader.waited(awaiting(sweep=clock.wall())) == {"sweep": 0}


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_step_of_the_wall_clock_moves_the_end_of_a_wait_in_no_direction(
    world: World, step: float
) -> None:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    await world.look()
    world.clock.step(step)
    world.clock.advance(MERGE_MARKER_GRACE_S - 1)
    assert (await world.look()).tasks["sweep"] is TaskState.RUNNING
    world.clock.advance(1)
    assert (await world.look()).tasks["sweep"] is TaskState.FAILED


async def test_a_service_that_starts_again_goes_on_with_the_wait_of_the_record(
    world: World,
) -> None:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    await world.look()
    world.clock.advance(MERGE_MARKER_GRACE_S - 1)
    again = make_world(world.store.layout.root, world.clock, world.backend)
    assert (await again.look()).state is RunState.RUNNING
    world.clock.advance(1)
    assert (await again.look()).state is RunState.FAILED
    again.pool.close()


async def test_passes_over_a_run_from_start_to_end_never_block_the_event_loop(
    world: World, loop_guard: Callable[[], AbstractContextManager[None]]
) -> None:
    name = await world.start()
    for worker in ("sweep-w0", "plot"):
        world.backend.succeed(name, worker)
    world.merge("sweep")
    with loop_guard():
        await world.controller.reconcile_run("run1")
        await world.controller.reconcile()
    assert world.record().state is RunState.SUCCEEDED
    assert world.backend.workflows[name].phase is not Phase.PENDING


async def test_the_guard_of_the_loop_sees_a_blocking_call(
    world: World, loop_guard: Callable[[], AbstractContextManager[None]]
) -> None:
    world.create()
    with loop_guard(), pytest.raises(BlockingError):
        world.store.read("run1")
    with loop_guard(), pytest.raises(BlockingError):
        world.store.mark_live("run1")
