"""What a run used, summed up: from reports, from what was seen, and of how many."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrun.model.record import TaskState
from simrun.model.report import MemoryUse, UnitCounts
from simrun.service.attemptuse import AttemptUse, attempts_of
from simrun.service.progress import TaskProgress
from simrun.service.runreport import run_report, task_report
from tests.cli.store import MIB, SUBMISSION, Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "store")


def use(worker: str = "sweep-w0", attempt: int = 0, **fields: object) -> AttemptUse:
    values: dict[str, object] = {
        "reason": "completed",
        "exit_code": 0,
        "node": "n",
        "created": 100.0,
        "started": 110.0,
        "ended": 130.0,
        "cpu_s": 10.0,
        "given_cpus": 2.0,
        "peak_memory": 50 * MIB,
        "given_memory": 100 * MIB,
    }
    return AttemptUse(worker=worker, attempt=attempt, **{**values, **fields})  # type: ignore[arg-type]  # fields of it


def test_a_task_is_summed_up_over_its_workers_and_attempts(runs: Runs) -> None:
    record = runs.add()
    killed = MemoryUse(limit=256 * MIB, peak_unreclaimable=255 * MIB)
    more = MemoryUse(limit=512 * MIB, peak_unreclaimable=300 * MIB)
    runs.report("01run", "sweep", "sweep-w0", ended=1_000_050.0)
    runs.report("01run", "sweep", "sweep-w1", reason="oom", memory=killed, started=1_000_005.0)
    runs.report("01run", "sweep", "sweep-w1", 1, memory=more)
    for unit in ("0", "1"):
        runs.file("01run", "tasks", "sweep", "done", unit)

    report = run_report(runs.store, record, SUBMISSION)

    task = report.tasks[0]
    assert (task.task, task.type, task.state) == ("sweep", "sweep", TaskState.DONE)
    assert (task.workers, task.attempts, task.retries, task.retries_by) == (2, 3, 1, {"oom": 1})
    assert task.wall_s == 45.0
    assert (task.cpu_s, task.given_cpu_s, task.measured) == (45.0, 85.0, 3)
    assert (task.peak_memory, task.given_memory) == (300 * MIB, 512 * MIB)
    assert (task.units_done, task.units_failed, task.units_total) == (2, 0, None)
    assert task.wasted_cpu_s == 25.0
    assert (report.attempts, report.measured, report.cpu_s) == (3, 3, 45.0)
    assert (report.wall_s, report.wasted_cpu_s) == (100.0, 25.0)


def test_a_bare_command_is_told_from_what_was_seen_and_nothing_unmeasured_is_a_zero(
    runs: Runs,
) -> None:
    record = runs.add()
    runs.evidence(
        "01run", "plot", "plot", started=10.0, ended=13.0, memory=64 * MIB, reason="completed"
    )

    task = run_report(runs.store, record, SUBMISSION).tasks[1]

    assert (task.wall_s, task.cpu_s, task.given_cpu_s) == (3.0, None, None)
    assert (task.peak_memory, task.given_memory, task.memory_measured) == (None, 64 * MIB, 0)
    assert (task.queued_s, task.cpu_efficiency, task.memory_efficiency) == (None, None, None)
    assert (task.units_done, task.units_total) == (None, None)


def test_a_ratio_has_both_of_its_sides_of_the_same_attempts() -> None:
    task = task_report("sweep", TaskState.DONE, [use(), use("sweep-w1", cpu_s=None, given_cpus=99)])

    assert (task.cpu_s, task.given_cpu_s, task.measured, task.attempts) == (10.0, 40.0, 1, 2)
    assert task.cpu_efficiency == 0.25
    assert task.memory_efficiency == 0.5
    unknown = task_report("sweep", TaskState.DONE, [use(), use("sweep-w1", given_cpus=None)])
    assert (unknown.cpu_s, unknown.given_cpu_s, unknown.cpu_efficiency) == (20.0, None, None)


def test_queued_is_the_longest_wait_of_a_pod_and_clocks_that_disagree_give_no_negative() -> None:
    waits = [use(started=117.0), use("sweep-w1", created=140.0), use("sweep-w2", created=None)]

    assert task_report("sweep", TaskState.DONE, waits).queued_s == 17.0
    assert use(created=140.0).queued_s == 0.0
    assert use(started=None).queued_s is None


def test_retries_are_counted_by_what_ended_the_attempt_before() -> None:
    attempts = [
        use(reason="evicted", units_done=3),
        use(attempt=1, reason="oom", units_done=0),
        use(attempt=2),
        use("sweep-w1", reason="error"),
    ]

    task = task_report("sweep", TaskState.FAILED, attempts)

    assert task.retries_by == {"evicted": 1, "oom": 1}
    assert task.retries == 2
    # What an attempt has committed is kept, whatever became of it then
    assert task.wasted_cpu_s == 80.0


def test_units_that_another_had_committed_first_are_told(runs: Runs) -> None:
    record = runs.add()
    runs.report("01run", "sweep", "sweep-w0", units=UnitCounts(done=3, lost=2))

    assert run_report(runs.store, record, SUBMISSION).tasks[0].units_lost == 2


def test_units_are_those_that_progress_counts() -> None:
    progress = TaskProgress(task="sweep", state=TaskState.DONE, split=True, done=7, total=8)

    task = task_report("sweep", TaskState.DONE, [use()], progress=progress)

    assert (task.units_done, task.units_failed, task.units_total) == (7, 0, 8)


def test_a_report_and_what_was_seen_of_the_same_attempt_are_one_attempt(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0", memory=MemoryUse(peak_unreclaimable=MIB), node="")
    runs.evidence("01run", "sweep", "sweep-w0", memory=128 * MIB, node="n7", reason="completed")

    (found,) = attempts_of(runs.store, "01run", "sweep")

    assert (found.given_memory, found.peak_memory, found.node) == (128 * MIB, MIB, "n7")


def test_attempts_stand_in_the_order_of_worker_numbers(runs: Runs) -> None:
    runs.add()
    for worker in ("sweep-w10", "sweep-w2", "sweep-w0"):
        runs.report("01run", "sweep", worker)

    found = [item.worker for item in attempts_of(runs.store, "01run", "sweep")]

    assert found == ["sweep-w0", "sweep-w2", "sweep-w10"]


def test_every_pod_of_one_number_is_told_with_the_report_that_is_its_own(runs: Runs) -> None:
    record = runs.add()
    runs.evidence(
        "01run", "sweep", "sweep-w0", reason="lost", pod_uid="first-pod", created=1.0, started=2.0
    )
    runs.evidence(
        "01run",
        "sweep",
        "sweep-w0",
        pod_uid="second-pod",
        created=9.0,
        started=10.0,
        memory=64 * MIB,
    )
    runs.report("01run", "sweep", "sweep-w0", pod_uid="second-pod", started=11.0, ended=21.0)

    lost, done = attempts_of(runs.store, "01run", "sweep")

    assert [(item.attempt, item.reason) for item in (lost, done)] == [
        (0, "lost"),
        (0, "completed"),
    ]
    assert (done.started, done.peak_memory, lost.peak_memory) == (11.0, 85 * MIB, None)
    task = run_report(runs.store, record, SUBMISSION).tasks[0]
    assert (task.workers, task.attempts, task.retries, task.measured) == (1, 2, 1, 1)
