"""What tasks used, and where their output is."""

from __future__ import annotations

from pathlib import Path

from simrun.cli import report
from simrun.model.report import MemoryUse
from simrun.model.workflow import Submission, Task, Workflow
from tests.cli.store import MIB, SUBMISSION, Runs


def test_a_task_is_summed_up_over_its_workers_and_attempts(runs: Runs) -> None:
    record = runs.add()
    killed = MemoryUse(limit=256 * MIB, peak_unreclaimable=255 * MIB)
    more = MemoryUse(limit=512 * MIB, peak_unreclaimable=300 * MIB)
    runs.report("01run", "sweep", "sweep-w0", ended=1_000_050.0)
    runs.report("01run", "sweep", "sweep-w1", reason="oom", memory=killed, started=1_000_005.0)
    runs.report("01run", "sweep", "sweep-w1", 1, memory=more)

    use = report.usage(runs.store, record)[0]

    assert (use.workers, use.attempts, use.retries) == (2, 3, 1)
    assert use.wall_s == 45.0
    assert (use.cpu_s, use.measured) == (45.0, 3)
    assert (use.peak_memory, use.given_memory) == (300 * MIB, 512 * MIB)


def test_a_bare_command_is_told_from_what_was_seen_and_nothing_unmeasured_is_a_zero(
    runs: Runs,
) -> None:
    record = runs.add()
    runs.evidence(
        "01run", "plot", "plot", started=10.0, ended=13.0, memory=64 * MIB, reason="completed"
    )

    use = report.usage(runs.store, record)[1]

    assert (use.wall_s, use.cpu_s, use.peak_memory, use.given_memory) == (3.0, None, None, 64 * MIB)
    assert report.usage_table([use]).splitlines()[1].split() == (
        ["plot", "done", "1", "3.0s", *2 * ["not", "measured"], "of", "64", "MiB", "0"]
    )


def test_a_report_and_what_was_seen_of_the_same_attempt_are_one_attempt(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0", memory=MemoryUse(peak_unreclaimable=MIB), node="")
    runs.evidence("01run", "sweep", "sweep-w0", memory=128 * MIB, node="n7", reason="completed")

    (use,) = report.attempts_of(runs.store, "01run", "sweep")

    assert (use.given_memory, use.peak_memory, use.node) == (128 * MIB, MIB, "n7")


def test_processor_time_of_a_part_of_the_attempts_says_so(runs: Runs) -> None:
    record = runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    runs.evidence("01run", "sweep", "sweep-w1", reason="lost")

    assert "15s (1 of 2)" in report.usage_table(report.usage(runs.store, record))


def test_attempts_stand_in_the_order_of_worker_numbers(runs: Runs) -> None:
    runs.add()
    for worker in ("sweep-w10", "sweep-w2", "sweep-w0"):
        runs.report("01run", "sweep", worker)

    found = [use.worker for use in report.attempts_of(runs.store, "01run", "sweep")]

    assert found == ["sweep-w0", "sweep-w2", "sweep-w10"]


def test_outputs_are_the_ports_that_are_there_or_the_directory_of_a_type_without_ports(
    runs: Runs,
) -> None:
    record = runs.add()
    table = runs.file("01run", "tasks", "sweep", "out", "table.csv")
    picture = runs.file("01run", "tasks", "plot", "out", "map.png")

    found = report.outputs(runs.store, record, SUBMISSION)

    assert found == [
        report.Output("sweep", "table", table),
        report.Output("plot", "", picture.parent),
    ]


def test_of_many_outputs_those_that_nothing_reads_are_shown() -> None:
    submission = Submission(
        workflow=Workflow(
            tasks={
                **{f"a{n}": Task(type="t") for n in range(30)},
                "last": Task(type="t", inputs={f"i{n}": f"a{n}.o" for n in range(30)}),
            }
        ),
        types=SUBMISSION.types | {"t": SUBMISSION.types["plot"]},
    )
    found = [report.Output(task, "o", Path(f"/r/{task}")) for task in submission.workflow.tasks]

    text = report.outputs_text(found, submission, Path("/r"))

    assert text.splitlines() == ["OUTPUT  PATH", "last.o  /r/last", "and 30 more below /r/tasks"]


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

    lost, done = report.attempts_of(runs.store, "01run", "sweep")

    assert [(use.attempt, use.reason) for use in (lost, done)] == [(0, "lost"), (0, "completed")]
    assert (done.started, done.peak_memory, lost.peak_memory) == (11.0, 85 * MIB, None)
    use = report.usage(runs.store, record)[0]
    assert (use.workers, use.attempts, use.retries, use.measured) == (1, 2, 1, 1)
