"""What tasks used as text, and where their output is."""

from __future__ import annotations

import json
from pathlib import Path

from simrun.cli import usage
from simrun.model.record import RunState, TaskState
from simrun.model.report import MemoryUse
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service.runreport import run_report
from tests.cli.store import MIB, SUBMISSION, Runs, simrun


def test_what_was_not_measured_is_said_and_no_zero(runs: Runs) -> None:
    record = runs.add()
    runs.evidence(
        "01run", "plot", "plot", started=10.0, ended=13.0, memory=64 * MIB, reason="completed"
    )

    text = usage.usage_table(run_report(runs.store, record, SUBMISSION).tasks[1:])

    assert text.splitlines()[1].split() == (
        ["plot", "done", "1", "3.0s", *2 * ["not", "measured"], "of", "64", "MiB", "0"]
    )


def test_processor_time_of_a_part_of_the_attempts_says_so(runs: Runs) -> None:
    record = runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    runs.evidence("01run", "sweep", "sweep-w1", reason="lost")

    assert "15s (1 of 2)" in usage.usage_table(run_report(runs.store, record, SUBMISSION).tasks)


def test_report_shows_both_sides_of_every_ratio(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    killed = MemoryUse(limit=256 * MIB, peak_unreclaimable=192 * MIB)
    runs.report("01run", "sweep", "sweep-w1", reason="oom", memory=killed)
    runs.evidence("01run", "sweep", "sweep-w1", 1, reason="lost", created=5.0, started=8.0)

    result = simrun("report", "@latest", "--store", runs.root)

    assert result.exit_code == 0, result.stderr
    assert [" ".join(line.split()) for line in result.stdout.splitlines()[1:3]] == [
        "sweep done 3.0s 11d13h 30s of 40s = 75% (2 of 3 measured) 192 MiB of 256 MiB = 75% 0/? 1 oom",
        "plot done - - - - - 0",
    ]
    assert "run 01run succeeded, 1m40s from its creation to its end" in result.stdout
    assert "processor time: 30s of 40s = 75% (2 of 3 attempts measured)" in result.stdout
    assert "wasted: 20s given to attempts that ended badly with nothing done" in result.stdout


def test_the_report_of_a_run_that_goes_on_claims_no_end(runs: Runs) -> None:
    runs.add(state=RunState.RUNNING, tasks={"sweep": TaskState.RUNNING, "plot": TaskState.WAITING})

    result = simrun("report", "01run", "--store", runs.root)

    assert "run 01run running, not ended yet\n" in result.stdout


def test_report_is_a_document_for_programs(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")

    result = simrun("report", "01", "--store", runs.root, "-o", "json")

    data = json.loads(result.stdout)
    assert (data["run"], data["group"], data["attempts"], data["cpu_s"]) == (
        "01run",
        "lab",
        1,
        15.0,
    )
    assert data["tasks"][0]["given_cpu_s"] == 20.0


def test_outputs_are_the_ports_that_are_there_or_the_directory_of_a_type_without_ports(
    runs: Runs,
) -> None:
    record = runs.add()
    table = runs.file("01run", "tasks", "sweep", "out", "table.csv")
    picture = runs.file("01run", "tasks", "plot", "out", "map.png")

    found = usage.outputs(runs.store, record, SUBMISSION)

    assert found == [
        usage.Output("sweep", "table", table),
        usage.Output("plot", "", picture.parent),
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
    found = [usage.Output(task, "o", Path(f"/r/{task}")) for task in submission.workflow.tasks]

    text = usage.outputs_text(found, submission, Path("/r"))

    assert text.splitlines() == ["OUTPUT  PATH", "last.o  /r/last", "and 30 more below /r/tasks"]
