"""`simrun logs`: bytes as they are, of the right worker, from inside of the run only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.store import Runs, simrun


@pytest.fixture
def logged(runs: Runs) -> Runs:
    runs.add()
    for name, text in {
        "sweep-w0-0": "w0 first\n",
        "sweep-w0-1": "w0 again\n",
        "sweep-w1-0": "w1\n",
        "sweep-w10-0": "w10\n",
    }.items():
        runs.file("01run", "tasks", "sweep", "logs", f"{name}.log", content=text.encode())
    return runs


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["sweep/sweep-w1"], "w1\n"),
        (["sweep/w1"], "w1\n"),
        (["sweep/w0"], "w0 again\n"),
        (["sweep/w0", "--attempt", "0"], "w0 first\n"),
        (["sweep/w0", "--attempt", "all"], "w0 first\nw0 again\n"),
        (["sweep"], "w0 again\nw1\nw10\n"),
    ],
)
def test_logs_are_chosen_by_worker_and_attempt(
    logged: Runs, arguments: list[str], printed: str
) -> None:
    result = simrun("logs", "01run", *arguments, "--store", logged.root)

    assert (result.exit_code, result.stdout) == (0, printed)


def test_several_logs_are_told_apart_on_stderr(logged: Runs) -> None:
    result = simrun("logs", "01run", "sweep", "--store", logged.root)

    assert result.stderr.split("\n\n")[0] == "==> sweep-w0-1 <=="


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sweep/w7"], "no log of a worker 'w7' of task 'sweep'; there are logs of sweep-w0"),
        (["plot"], "task 'plot' has no logs yet"),
        (["sweep/w1", "--attempt", "9"], "no log of attempt 9"),
        (["swep"], "did you mean 'sweep'?"),
        (["sweep/../../../etc/passwd"], "no log of a worker"),
    ],
)
def test_logs_that_are_not_there_are_told(logged: Runs, arguments: list[str], text: str) -> None:
    result = simrun("logs", "01run", *arguments, "--store", logged.root)

    assert result.exit_code == 6
    assert text in result.stderr


def test_an_attempt_that_is_no_number_is_a_usage_error(logged: Runs) -> None:
    assert simrun("logs", "01run", "sweep", "--attempt", "x", "--store", logged.root).exit_code == 2


def test_bytes_that_are_no_text_come_out_as_they_are(runs: Runs) -> None:
    runs.add()
    content = b"\x80\x00 no newline " + bytes(range(256)) * 5000
    runs.file("01run", "tasks", "plot", "logs", "plot-0.log", content=content)

    done = subprocess.run(
        [sys.executable, "-m", "simrun.cli.main", "logs", "01run", "plot", "--store", runs.root],
        capture_output=True,
        check=True,
    )

    assert done.stdout == content


@pytest.mark.parametrize(
    ("content", "lines", "printed"),
    [
        (b"a\nb\nc\n", 2, "b\nc\n"),
        (b"a\nb\nc", 2, "b\nc"),
        (b"a\nb\n", 9, "a\nb\n"),
        (b"a\nb\n", 0, ""),
        (b"", 3, ""),
        (b"\n\n\n", 2, "\n\n"),
        (b"x" * 3_000_000 + b"\nend\n", 1, "end\n"),
        (b"head\n" + b"x" * 3_000_000, 1, "x" * 3_000_000),
    ],
)
def test_a_tail_is_the_last_lines_however_long(
    runs: Runs, content: bytes, lines: int, printed: str
) -> None:
    runs.add()
    runs.file("01run", "tasks", "plot", "logs", "plot-0.log", content=content)

    result = simrun("logs", "01run", "plot", "--tail", str(lines), "--store", runs.root)

    assert result.stdout == printed


@pytest.mark.parametrize("make", ["link", "fifo", "directory link"])
def test_what_a_run_put_in_the_place_of_a_log_is_not_followed(
    runs: Runs, tmp_path: Path, make: str
) -> None:
    runs.add()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "plot-0.log").write_text("secret")
    logs = runs.file("01run", "tasks", "plot", "logs", "other").parent
    if make == "link":
        (logs / "plot-0.log").symlink_to(secret / "plot-0.log")
    elif make == "fifo":
        os.mkfifo(logs / "plot-0.log")
    else:
        (logs / "other").unlink()
        logs.rmdir()
        logs.symlink_to(secret)

    result = simrun("logs", "01run", "plot", "--store", runs.root)

    assert "secret" not in result.stdout
    assert result.exit_code == 6
