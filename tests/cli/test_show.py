"""`simrun show`, `simrun list` and finding a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from simrun.cli import show
from simrun.model.record import RunState, TaskState
from tests.cli.store import MIB, Runs, simrun


def test_show_tells_state_use_and_outputs(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    table = runs.file("01run", "tasks", "sweep", "out", "table.csv")

    result = simrun("show", "01run", "--store", runs.root)

    assert result.exit_code == 0
    assert "state    succeeded" in result.stdout
    assert "85 MiB of 256 MiB" in result.stdout
    assert f"sweep.table  {table}" in result.stdout


def test_show_as_json_is_the_record_with_use_and_outputs(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    table = runs.file("01run", "tasks", "sweep", "out", "table.csv")

    data = json.loads(simrun("show", "01run", "--store", runs.root, "-o", "json").stdout)

    assert (data["id"], data["state"], data["schema"]) == ("01run", "succeeded", 1)
    assert data["usage"][0]["peak_memory"] == 85 * MIB
    assert data["outputs"] == [{"task": "sweep", "port": "table", "path": str(table)}]


def test_show_of_a_task_has_every_attempt_and_the_last_lines_of_what_failed(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")
    runs.report(
        "01run", "sweep", "sweep-w1", reason="error", message="exit code 1", tail=["boom\x1b[0m"]
    )

    text = simrun("show", "01run", "sweep", "--store", runs.root).stdout

    assert "2 x 1 cpu, 256 MiB, 512 MiB after a kill for memory" in text
    assert "sweep-w1, attempt 0: error\n  exit code 1\n  | boom\ufffd[0m" in text


def test_show_of_a_task_as_json(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")

    result = simrun("show", "01run", "sweep", "--store", runs.root, "-o", "json")

    data = json.loads(result.stdout)
    assert data["attempts"][0]["worker"] == "sweep-w0"
    assert data["plan"]["pods"] == 2


@pytest.mark.parametrize("text", ["01run-b", "01run-b1", "@latest"])
def test_a_run_is_found_by_id_by_its_beginning_and_as_the_latest(runs: Runs, text: str) -> None:
    runs.add("01run-a1")
    runs.add("01run-b1")

    assert json.loads(simrun("show", text, "--store", runs.root, "-o", "json").stdout)["id"] == (
        "01run-b1"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nix"], 6, "error: no run 'nix' in "),
        (["01rum-a1"], 6, "did you mean '01run-a1'?"),
        (["01run"], 2, "2 runs begin so"),
        (["01run-a1", "swep"], 6, "run 01run-a1 has no task 'swep'; did you mean 'sweep'?"),
        (["../../etc"], 6, "no run"),
    ],
)
def test_what_is_not_there_has_an_exit_code_and_a_text(
    runs: Runs, arguments: list[str], code: int, text: str
) -> None:
    runs.add("01run-a1")
    runs.add("01run-b1")

    result = simrun("show", *arguments, "--store", runs.root)

    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr


def test_a_store_that_is_none_is_told_with_the_remedy(tmp_path: Path) -> None:
    result = simrun("list", "--store", tmp_path / "nowhere")

    assert result.exit_code == 6
    assert "no run store in" in result.stderr
    assert "--store" in result.stderr
    assert not (tmp_path / "nowhere").exists()


def test_the_store_is_named_by_option_else_variable_else_the_current_directory(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.add()
    empty = Runs(tmp_path / ".simrun")
    monkeypatch.chdir(tmp_path)

    assert "no runs" in simrun("list").stderr
    assert "01run" in simrun("list", env={"SIMRUN_STORE": str(runs.root)}).stdout
    assert "no runs" in (
        simrun("list", "--store", empty.root, env={"SIMRUN_STORE": str(runs.root)}).stderr
    )


def test_list_has_the_newest_first_and_filters_by_state(runs: Runs) -> None:
    runs.add("01a")
    runs.add("01b", state=RunState.RUNNING, tasks={"sweep": TaskState.RUNNING})
    runs.add("01c", state=RunState.FAILED)

    lines = simrun("list", "--store", runs.root).stdout.splitlines()
    failed = simrun("list", "--store", runs.root, "--state", "failed", "-o", "json")

    assert [line.split()[0] for line in lines] == ["RUN", "01c", "01b", "01a"]
    assert [run["id"] for run in json.loads(failed.stdout)] == ["01c"]


def test_list_stops_at_its_limit_and_says_so(runs: Runs) -> None:
    for number in range(5):
        runs.add(f"01r{number}")

    result = simrun("list", "--store", runs.root, "-n", "2")

    assert len(result.stdout.splitlines()) == 3
    assert "--limit" in result.stderr


def test_list_goes_by_the_time_of_creation_whatever_ids_are(runs: Runs) -> None:
    for number, run_id in enumerate(("k9", "01a", "f00")):
        runs.add(run_id)
        submission = runs.store.layout.run(run_id).submission
        os.utime(submission, (1_000_000 + number, 1_000_000 + number))

    result = simrun("list", "--store", runs.root, "-o", "json")

    assert [run["id"] for run in json.loads(result.stdout)] == ["f00", "01a", "k9"]


def test_a_task_tells_its_type_and_its_units_as_the_report_does(runs: Runs) -> None:
    runs.add()
    runs.report("01run", "sweep", "sweep-w0")

    told = json.loads(simrun("show", "01run", "sweep", "--store", runs.root, "-o", "json").stdout)
    report = json.loads(simrun("report", "01run", "--store", runs.root, "-o", "json").stdout)

    assert told["usage"] == report["tasks"][0]
    assert told["usage"]["type"] == "sweep"
    assert "units    0/?" in simrun("show", "01run", "sweep", "--store", runs.root).stdout


def test_the_states_that_list_takes_are_those_of_runs() -> None:
    from simrun.cli.listing import STATES

    assert list(STATES) == list(RunState)


def test_a_damaged_record_is_told_and_stops_nothing(runs: Runs) -> None:
    runs.add("01a")
    runs.file("01b", "run.json", content=b"{")

    result = simrun("list", "--store", runs.root, "-o", "json")

    assert [run["id"] for run in json.loads(result.stdout)] == ["01a"]
    assert "damaged" in result.stderr
    assert "01b" in result.stderr


def test_a_failed_run_says_why_where_and_what_to_type(runs: Runs) -> None:
    record = runs.add(
        state=RunState.FAILED,
        tasks={"sweep": TaskState.FAILED, "plot": TaskState.SKIPPED},
        message="sweep failed",
    )
    runs.report("01run", "sweep", "sweep-w0", reason="error", tail=["No module named 'rebound'"])

    lines = show.failure_lines(runs.store, record)

    assert lines[0] == "error: run 01run failed: sweep failed"
    assert "  | No module named 'rebound'" in lines
    assert f"  simrun logs 01run sweep --store {runs.root}" in lines


def test_what_a_failed_run_has_said_its_attempt_does_not_repeat(runs: Runs) -> None:
    record = runs.add(
        state=RunState.FAILED,
        tasks={"sweep": TaskState.FAILED, "plot": TaskState.SKIPPED},
        message="task sweep (sweep-w0): 2 units failed",
    )
    runs.report("01run", "sweep", "sweep-w0", reason="error", message="2 units failed")

    text = "\n".join(show.failure_lines(runs.store, record))

    assert text.count("2 units failed") == 1
    assert "sweep-w0, attempt 0: error" in text
