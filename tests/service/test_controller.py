"""The controller over a scripted backend: every sentence of its reference by name."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from simrun.backends.base import Attempt, Phase
from simrun.base.errors import NotFound
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.service import controller as controller_module
from simrun.service.controller import MERGE_MARKER_GRACE_S, Controller, attempt_of, closed
from simrun.service.jobs import UNATTENDED_S
from simrun.store.runs import RunStore
from tests.service.world import SWEEP_THEN_PLOT, FakeClock, World, make_world, submission

GIB = 2**30
ONE = submission({"only": {"type": "plain"}}, {"plain": {"command": ["true"]}})


def killed(n: int, memory: int, worker: str = "sweep-w0") -> Attempt:
    return Attempt(
        n=n,
        phase=Phase.FAILED,
        reason="oom",
        exit_code=137,
        oom=True,
        memory=memory,
        pod_uid=f"{worker}-{n}-uid",
        message="main: OOMKilled (exit code 137)",
    )


def running(n: int) -> Attempt:
    return Attempt(n=n, phase=Phase.RUNNING, pod_uid=f"uid-{n}", started=1_800_000_000.0)


# --- the life of a run ------------------------------------------------------------------------------------------------


async def test_a_run_succeeds_when_its_tasks_are_done_and_its_workflow_is_stopped(
    world: World,
) -> None:
    name = await world.start()
    assert world.record().state is RunState.RUNNING
    world.backend.attempt(name, "sweep-w0", running(0))
    assert (await world.look()).tasks == {"sweep": TaskState.RUNNING, "plot": TaskState.WAITING}
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    assert (await world.look()).tasks["sweep"] is TaskState.DONE
    world.backend.succeed(name, "plot")

    record = await world.look()

    assert record.state is RunState.SUCCEEDED
    assert record.times.ended is not None
    assert not record.pending
    assert world.backend.workflows[name].stopped
    assert world.store.live_ids() == []


async def test_extra_workers_still_running_after_the_last_merge_are_stopped_and_the_run_is_succeeded(
    world: World,
) -> None:
    what = submission(
        {"sweep": {"type": "split"}},
        {"split": {"command": ["true"], "split": {"workers": 3, "units": {"list": [1, 2, 3]}}}},
    )
    name = await world.start(what)
    world.backend.attempt(name, "sweep-w1", running(0))
    world.backend.attempt(name, "sweep-w2", killed(0, GIB, "sweep-w2"), node=Phase.FAILED)
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")

    record = await world.look()

    assert record.state is RunState.SUCCEEDED
    assert world.backend.workflows[name].nodes["sweep-w1"].phase is Phase.FAILED


async def test_a_failed_task_fails_the_run_with_its_reason_and_skips_the_rest(world: World) -> None:
    name = await world.start()
    bad = Attempt(n=0, phase=Phase.FAILED, reason="error", exit_code=3, message="main: Error")
    world.backend.attempt(name, "sweep-w0", bad)

    record = await world.look()

    assert record.state is RunState.FAILED
    assert record.tasks == {"sweep": TaskState.FAILED, "plot": TaskState.SKIPPED}
    assert "sweep (sweep-w0): main: Error (exit code 3)" in (record.message or "")


async def test_the_controllers_own_loop_follows_the_events_of_the_backend(world: World) -> None:
    world.create(ONE)
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(world.controller.run())
        assert world.controller.resume is not None
        world.controller.start_submission("run1", world.controller.resume)
        record = await world.until("run1", RunState.RUNNING)
        world.backend.succeed(record.workflow_name or "", "only")
        await world.until("run1", RunState.SUCCEEDED)
        loop.cancel()


# --- the marker of a merge ----------------------------------------------------------------------------------------------


async def test_a_coordinator_without_the_marker_is_awaited_for_the_grace_and_then_fails(
    world: World,
) -> None:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    record = await world.look()
    assert record.tasks["sweep"] is TaskState.RUNNING
    assert record.merge_pending == {"sweep": world.clock.wall()}

    world.clock.advance(MERGE_MARKER_GRACE_S - 1)
    assert (await world.look()).state is RunState.RUNNING
    world.clock.advance(1)

    record = await world.look()
    assert record.state is RunState.FAILED
    assert "does not merge" in (record.message or "")


async def test_a_step_of_the_wall_clock_does_not_prolong_the_wait_for_the_marker(
    world: World,
) -> None:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    await world.look()
    await world.look()
    world.clock.advance(MERGE_MARKER_GRACE_S / 2)
    world.clock.step(-3600)
    assert (await world.look()).state is RunState.RUNNING
    world.clock.advance(MERGE_MARKER_GRACE_S / 2)

    assert (await world.look()).state is RunState.FAILED


async def test_a_run_whose_workflow_ended_is_not_failed_while_a_marker_is_awaited(
    world: World,
) -> None:
    what = submission(
        {"sweep": {"type": "split"}},
        {"split": {"command": ["true"], "split": {"workers": 2, "units": {"list": [1]}}}},
    )
    name = await world.start(what)
    world.backend.succeed(name, "sweep-w0")
    world.backend.end(name, Phase.SUCCEEDED)
    assert (await world.look()).state is RunState.RUNNING

    world.merge("sweep")

    assert (await world.look()).state is RunState.SUCCEEDED


# --- kills for memory ---------------------------------------------------------------------------------------------------


async def test_a_first_kill_for_memory_is_retried_and_known_in_the_record(world: World) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", killed(0, GIB // 4), node=Phase.RUNNING)

    record = await world.look()

    assert record.state is RunState.RUNNING
    assert record.tasks["sweep"] is TaskState.RETRYING
    assert record.oom_kills == {"sweep-w0": [0]}
    assert (world.task_dir("sweep") / "memory" / "sweep-w0-0").exists()


async def test_a_second_kill_with_the_retry_memory_fails_the_run_at_that_pass_and_names_it(
    world: World,
) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", killed(0, GIB // 4), node=Phase.RUNNING)
    await world.look()
    world.backend.attempt(name, "sweep-w0", killed(1, GIB), node=Phase.RUNNING)

    record = await world.look()

    assert record.state is RunState.FAILED
    assert "1 GiB" in (record.message or "")
    assert "retry_memory" in (record.message or "")


async def test_a_kill_without_a_report_is_an_observation_at_the_limit(world: World) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", killed(0, GIB // 4), node=Phase.RUNNING)
    await world.look()
    world.backend.succeed(name, "sweep-w0", 1)
    world.merge("sweep")
    await world.look()

    seen = world.resources.of_type("split")

    assert [(item.attempt, item.oom, item.peak_memory) for item in seen] == [(0, True, GIB // 4)]


async def test_an_observation_is_stored_once_though_the_mark_was_lost(world: World) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", killed(0, GIB // 4), node=Phase.RUNNING)
    await world.look()
    world.backend.succeed(name, "sweep-w0", 1)
    world.merge("sweep")
    before = world.record()
    await world.look()
    # A crash after the observation and before its mark, and before the record was written
    (world.task_dir("sweep") / "recorded" / "sweep-w0-0.json").unlink()
    after = world.record()
    assert await world.controller.write_if_unchanged(after, before.changed(revision=after.revision))

    await world.look()

    assert len(world.resources.of_type("split")) == 1


# --- evictions ------------------------------------------------------------------------------------------------------------


async def test_evictions_beyond_the_budget_fail_the_run_and_say_so(world: World) -> None:
    what = submission(
        {"only": {"type": "plain"}}, {"plain": {"command": ["true"]}}, max_evictions=1
    )
    name = await world.start(what)
    for n in range(2):
        gone = Attempt(n=n, phase=Phase.ERROR, reason="evicted", pod_uid=f"uid-{n}")
        world.backend.attempt(name, "only", gone, node=Phase.RUNNING)
        record = await world.look()

    assert record.state is RunState.FAILED
    assert "evicted 2 times" in (record.message or "")


# --- submissions --------------------------------------------------------------------------------------------------------


async def test_a_submission_job_that_raises_fails_the_run_and_cancels_its_possible_workflow(
    world: World,
) -> None:
    world.create()

    async def job(run_id: str) -> None:
        raise ValueError("no image")

    world.controller.start_submission("run1", job)
    assert world.controller.in_flight("run1")
    record = await world.until("run1", RunState.FAILED)

    assert "no image" in (record.message or "")
    assert record.pending_cancel
    await world.look()
    assert ("stop", record.workflow_name) in world.backend.calls
    assert not world.record().pending


async def test_close_takes_no_more_submissions_and_does_not_wait(world: World) -> None:
    world.create()
    began = asyncio.Event()

    async def job(run_id: str) -> None:
        began.set()
        await asyncio.Event().wait()

    world.controller.start_submission("run1", job)
    await began.wait()

    world.controller.close()

    assert world.record().state is RunState.SUBMITTING


async def test_recover_resumes_what_was_submitting_and_leaves_later_submissions_alone(
    world: World,
) -> None:
    world.create(ONE, "old")
    world.clock.advance(10)
    again = make_world(world.store.layout.root, world.clock, world.backend)
    world.clock.advance(10)
    again.create(ONE, "new")
    seen: list[str] = []

    async def resume(run_id: str) -> None:
        seen.append(run_id)

    again.controller.resume = resume
    await again.controller.recover()
    await asyncio.sleep(0)

    assert seen == ["old"]
    again.pool.close()


async def test_a_submission_that_nobody_is_at_is_taken_up_after_a_minute(world: World) -> None:
    # Created by a service that died, before the clock was set back: it looks as if made since this start
    world.create(ONE)
    world.clock.step(-3600)
    again = make_world(world.store.layout.root, world.clock, world.backend)
    await again.controller.recover()
    await again.look()
    again.clock.advance(UNATTENDED_S - 1)
    await again.look()
    assert not again.controller.in_flight("run1")
    again.clock.advance(1)
    await again.look()

    assert again.controller.in_flight("run1")
    assert (await again.until("run1", RunState.RUNNING)).round == 0
    again.pool.close()


async def test_recover_fails_a_record_without_a_workflow_name(world: World) -> None:
    record = world.create(ONE)
    await world.controller.write_if_unchanged(
        record, record.changed(workflow_name=None, state=RunState.RUNNING)
    )

    await world.controller.recover()

    assert world.record().state is RunState.FAILED


async def test_a_workflow_that_was_created_before_a_crash_is_taken_as_submitted(
    world: World,
) -> None:
    record = world.create(ONE)
    await world.backend.submit(record, {}, {})
    again = make_world(world.store.layout.root, FakeClock(), world.backend)

    await again.controller.recover()
    record = await again.until("run1", RunState.RUNNING)

    assert list(world.backend.workflows) == [record.workflow_name]
    assert len(world.backend.workflows) == 1
    again.pool.close()


# --- a workflow that is gone ------------------------------------------------------------------------------------------------


async def test_a_vanished_workflow_fails_only_the_undetermined_tasks(world: World) -> None:
    name = await world.start()
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    await world.look()
    world.backend.forget(name)

    record = await world.look()

    assert record.state is RunState.FAILED
    assert record.tasks == {"sweep": TaskState.DONE, "plot": TaskState.FAILED}


async def test_a_vanished_workflow_whose_merge_left_its_marker_is_done(world: World) -> None:
    what = submission(
        {"sweep": {"type": "split"}},
        {"split": {"command": ["true"], "split": {"workers": 2, "units": {"list": [1]}}}},
    )
    name = await world.start(what)
    world.merge("sweep")
    world.backend.forget(name)

    assert (await world.look()).state is RunState.SUCCEEDED


# --- cancelling and settling --------------------------------------------------------------------------------------------


async def test_cancel_writes_the_record_first_and_then_stops_the_workflow(world: World) -> None:
    name = await world.start()
    world.backend.fail_next("stop")

    await world.controller.cancel("run1")

    record = world.record()
    assert record.state is RunState.CANCELLED
    assert record.pending_cancel
    await world.controller.settle("run1")
    assert world.backend.workflows[name].stopped
    assert not world.record().pending


async def test_cancel_of_an_unknown_run_is_a_key_error_and_of_an_ended_one_a_value_error(
    world: World,
) -> None:
    with pytest.raises(KeyError):
        await world.controller.cancel("nobody")
    await world.start()
    await world.controller.cancel("run1")
    with pytest.raises(ValueError, match="has ended"):
        await world.controller.cancel("run1")


async def test_an_unknown_workflow_counts_as_cancelled_and_an_unknown_node_as_released(
    world: World,
) -> None:
    record = world.create()
    end = closed(record.changed(node="elsewhere"), RunState.FAILED, record.tasks, "why")
    assert await world.controller.write_if_unchanged(record, end)

    await world.controller.settle("run1")

    assert not world.record().pending


async def test_only_ones_own_reservation_is_released(world: World) -> None:
    assert await world.backend.reserve("other") == "node0"
    record = world.create()
    end = closed(record.changed(node="node0"), RunState.FAILED, record.tasks, "why")
    await world.controller.write_if_unchanged(record, end)

    await world.controller.settle("run1")

    assert world.backend.reserved == {"node0": "other"}


async def test_a_deleted_run_is_ignored(world: World) -> None:
    await world.controller.settle("gone")
    await world.controller.reconcile_run("gone")


async def test_a_terminal_run_with_something_pending_gets_nothing_else_done(world: World) -> None:
    await world.start()
    world.backend.fail_next("stop", 2)
    await world.controller.cancel("run1")
    world.backend.calls.clear()

    await world.look()

    assert [call for call, _ in world.backend.calls] == ["stop"]


async def test_logs_are_kept_before_the_workflow_is_stopped(world: World) -> None:
    name = await world.start(ONE)
    world.backend.output[name, "only", 0] = b"hello\n"
    world.backend.succeed(name, "only")

    await world.look()

    assert (world.task_dir("only") / "logs" / "only-0.log").read_bytes() == b"hello\n"
    calls = [call for call, _ in world.backend.calls]
    assert calls.index("logs") < calls.index("stop")


async def test_a_damaged_record_is_skipped_and_stops_no_other_run(world: World) -> None:
    await world.start(ONE, "good")
    await world.start(ONE, "bad")
    world.store.layout.run("bad").record.write_bytes(b"{")
    world.backend.succeed(world.record("good").workflow_name or "", "only")

    await world.controller.reconcile()

    assert world.record("good").state is RunState.SUCCEEDED
    assert world.store.layout.run("bad").record.read_bytes() == b"{"


async def test_a_submission_that_is_damaged_is_told_in_a_line_and_without_a_trace(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(ONE, "bad")
    world.store.layout.run("bad").submission.write_bytes(b"{")
    again = Controller(
        RunStore(world.store.layout.root),
        world.resources,
        world.backend,
        pool=world.pool,
        clock=world.clock,
    )
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        loop = group.create_task(again.run())
        while not (told := [item for item in caplog.records if "run bad" in item.getMessage()]):
            await asyncio.sleep(0.01)
        loop.cancel()

    assert told[0].exc_info is None
    assert "submission.json" in told[0].getMessage()


async def test_write_if_unchanged_refuses_a_record_that_changed_meanwhile(world: World) -> None:
    record = world.create()
    assert await world.controller.write_if_unchanged(record, record.changed(message="one"))

    assert not await world.controller.write_if_unchanged(record, record.changed(message="two"))

    assert world.record().message == "one"


async def test_no_call_of_the_backend_is_made_under_the_record_lock(world: World) -> None:
    name = await world.start()
    held: list[bool] = []
    real = world.backend.status

    async def status(which: str):  # type: ignore[no-untyped-def]
        held.append(world.store._locks.locked("run1"))
        return await real(which)

    world.backend.status = status  # type: ignore[method-assign]
    world.backend.succeed(name, "sweep-w0")
    world.merge("sweep")
    for _ in range(3):  # one after the other: whoever holds the lock then is the pass itself
        await world.look()

    assert held
    assert not any(held)


async def test_run_json_holds_what_decide_needs_and_not_the_workflow(world: World) -> None:
    await world.start(SWEEP_THEN_PLOT)

    data = json.loads(world.store.layout.run("run1").record.read_bytes())

    assert "workflow" not in data
    assert data["schema"] == 1


def test_the_names_of_the_reference_are_there() -> None:
    for name in controller_module.__all__:
        assert getattr(controller_module, name) is not None
    assert attempt_of("sweep-w0-3.json") == 3
    assert attempt_of("odd.json") == 0


async def test_not_found_is_told_with_the_place(world: World) -> None:
    with pytest.raises(NotFound, match="no run 'nobody'"):
        world.record("nobody")


async def test_a_resync_finds_what_no_event_told_and_counts_it_as_drift(world: World) -> None:
    name = await world.start(ONE)
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(world.controller.run())
        world.backend.attempt(name, "only", running(0))
        while world.record().tasks["only"] is not TaskState.RUNNING:
            await world.changed.wait()
            world.changed.clear()
        assert world.controller.statistics().drift == 0
        tell, world.backend._tell = world.backend._tell, lambda _run: None  # type: ignore[method-assign]
        world.backend.succeed(name, "only")
        world.backend._tell = tell  # type: ignore[method-assign]
        world.controller.wake()

        await world.until("run1", RunState.SUCCEEDED)
        async with asyncio.timeout(10):
            while world.controller.statistics().drift == 0:
                await asyncio.sleep(0.01)
        loop.cancel()
    assert world.controller.statistics().drift == 1


# --- what is remembered -------------------------------------------------------------------------------------------------


def count_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the submissions and records that are read besides the comparison of a write."""
    reads: list[str] = []
    load = world.controller._view.load

    def counted(run_id: str) -> object:
        reads.append(run_id)
        return load(run_id)

    monkeypatch.setattr(world.controller._view, "load", counted)
    return reads


async def test_a_run_that_this_process_knows_is_decided_on_without_reading_it_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(world, monkeypatch)
    name = await world.start()
    await world.controller.reconcile_run("run1")
    world.backend.attempt(name, "sweep-w0", running(0))

    await world.controller.reconcile_run("run1")
    await world.controller.reconcile_run("run1")

    assert world.record().tasks["sweep"] is TaskState.RUNNING
    assert reads == []  # it was submitted here


async def test_what_another_writer_wrote_is_never_overwritten_by_what_was_remembered(
    world: World,
) -> None:
    name = await world.start()
    await world.look()
    other = RunStore(world.store.layout.root)
    now = other.read("run1")
    ours = other.write_if_unchanged(now, now.changed(labels={"by": "another"}, epoch=now.epoch))
    assert ours is not None
    world.backend.attempt(name, "sweep-w0", running(0))

    await world.controller.reconcile_run("run1")
    assert other.read("run1") == ours
    record = await world.look()

    assert record.tasks["sweep"] is TaskState.RUNNING
    assert record.labels == {"by": "another"}
    assert record.revision == ours.revision + 1


async def test_a_look_that_changes_nothing_sees_that_another_writer_ended_the_run(
    world: World,
) -> None:
    await world.start()
    await world.look()
    other = RunStore(world.store.layout.root)
    now = other.read("run1")
    end = closed(now, RunState.CANCELLED, now.tasks, "by another")
    assert other.write_if_unchanged(now, end) is not None

    async with asyncio.TaskGroup() as group:
        loop = group.create_task(world.controller.run())
        await world.until("run1", RunState.CANCELLED)
        async with asyncio.timeout(20):
            while world.store.read("run1").pending:
                world.changed.clear()
                await world.changed.wait()
        loop.cancel()

    assert world.record().message == "by another"


async def test_a_run_that_was_deleted_by_another_process_is_forgotten(world: World) -> None:
    name = await world.start()
    await world.look()
    shutil.rmtree(world.store.layout.run("run1").root)
    world.backend.attempt(name, "sweep-w0", running(0))

    await world.controller.reconcile_run("run1")
    await world.controller.reconcile_run("run1")

    assert world.store.remembered("run1") is None
    assert not world.store.layout.run("run1").root.exists()


async def test_an_end_is_kept_before_the_record_says_so_and_that_an_attempt_runs_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await world.start(ONE)
    kept: list[list[str]] = []
    write = world.store.write_if_unchanged

    def noted(before: RunRecord, after: RunRecord) -> RunRecord | None:
        found = world.store.evidence("run1", "only")
        kept.append([item.reason or "runs" for item in found])
        return write(before, after)

    monkeypatch.setattr(world.store, "write_if_unchanged", noted)
    world.backend.attempt(name, "only", running(0))
    await world.look()
    assert kept == [[]]
    assert [item.reason for item in world.store.evidence("run1", "only")] == [None]
    world.backend.succeed(name, "only")
    await world.look()
    assert kept[1] == ["completed"]


async def test_what_a_backend_forgot_of_a_workflow_that_ended_the_store_still_knows(
    world: World,
) -> None:
    name = await world.start()
    world.backend.attempt(name, "sweep-w0", running(0))
    await world.look()
    world.merge("sweep")
    world.backend.workflows[name].nodes.clear()  # its nodes can't be read, and its pods are gone
    world.backend.end(name, Phase.FAILED, "told from its pods")

    record = await world.look()

    assert record.state is RunState.FAILED
    assert record.tasks == {"sweep": TaskState.DONE, "plot": TaskState.SKIPPED}
    assert "plot" in (record.message or "")


async def test_evidence_that_could_not_be_kept_after_the_record_is_kept_with_the_next_look(
    world: World,
) -> None:
    name = await world.start(ONE)
    attempts = world.task_dir("only") / "attempts"
    attempts.write_text("in the way")
    world.backend.attempt(name, "only", running(0))

    with pytest.raises(NotADirectoryError):
        await world.look()

    assert world.record().tasks["only"] is TaskState.RUNNING
    assert world.changes[-1] == world.record()
    attempts.unlink()
    await world.look()
    assert [item.attempt for item in world.store.evidence("run1", "only")] == [0]
