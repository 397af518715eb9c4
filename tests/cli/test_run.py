"""`simrun run`, as people call it: a process on this machine, with its exit codes, its output, and Ctrl-C (C61, C56)."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from simrun.base.errors import InvalidInput
from simrun.cli.workflowfile import read_workflow, submission_of
from tests.cli.store import simrun

SIMRUN = [sys.executable, "-m", "simrun.cli.main"]
QUICK = """
tasks:
  first: {command: "echo hello > {outputs.text}", outputs: {text: text.txt}, resources: {memory: 64Mi}}
  second: {command: "cat {inputs.text}", inputs: {text: first.text}, resources: {memory: 64Mi}}
"""
LONG = """
tasks:
  long:
    command: |
      trap '%s' TERM
      echo $$ > pid
      echo started
      while true; do sleep 0.1; done
    grace: %s
    resources: {memory: 64Mi}
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def write(directory: Path, text: str) -> Path:
    file = directory / "w.yaml"
    file.write_text(text)
    return file


def call(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SIMRUN, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=50
    )


@pytest.fixture
def long(tmp_path: Path, store: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on until it is told to end, and whose task does as it is told."""
    with running(write(tmp_path, LONG % ("exit 0", 20)), store) as process:
        yield process


class running:  # noqa: N801 - a context
    """A `simrun run` in the foreground of a session of its own, as a shell would start it."""

    def __init__(self, file: Path, store: Path) -> None:
        self._command = [*SIMRUN, "run", str(file), "--store", str(store)]

    def __enter__(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def read_until(stream: IO[str] | None, text: str) -> str:
    """Read lines until one holds `text`."""
    assert stream is not None
    seen = ""
    while text not in seen:
        line = stream.readline()
        assert line, seen
        seen += line
    return seen


def pid_of_task(store: Path) -> int:
    """Wait for the task's own word that it runs, and give its process id."""
    log = next(store.glob("runs/*/tasks/long/logs/*.log"), None)
    while log is None or "started" not in log.read_text():
        select.select([], [], [], 0.02)
        log = next(store.glob("runs/*/tasks/long/logs/*.log"), None)
    return int(next(store.glob("runs/*/tasks/long/out/pid")).read_text())


def test_a_run_that_succeeds_is_0_with_use_and_outputs_on_stdout_and_progress_on_stderr(
    tmp_path: Path, store: Path
) -> None:
    done = call("run", write(tmp_path, QUICK), "--store", store)

    assert done.returncode == 0, done.stderr
    path = re.search(r"first\.text +(\S+)", done.stdout)
    assert path is not None
    assert Path(path[1]).read_text() == "hello\n"
    assert f"store {store}" in done.stderr
    assert "first done" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_json_is_the_record_alone_on_stdout(tmp_path: Path, store: Path) -> None:
    done = call(
        "run",
        write(tmp_path, QUICK),
        "--store",
        store,
        "-o",
        "json",
        "--quiet",
        "--id",
        "my-run",
        "--name",
        "n",
        "--group",
        "g",
    )

    data = json.loads(done.stdout)
    assert (data["id"], data["name"], data["group"], data["state"]) == (
        "my-run",
        "n",
        "g",
        "succeeded",
    )
    assert data["tasks"] == {"first": "done", "second": "done"}
    assert done.stderr == ""


def test_a_run_that_fails_is_1_and_says_why_and_what_to_type(tmp_path: Path, store: Path) -> None:
    file = write(
        tmp_path, "tasks: {bad: {command: 'echo oh no; exit 7', resources: {memory: 64Mi}}}"
    )

    done = call("run", file, "--store", store)

    assert done.returncode == 1
    assert "error: run" in done.stderr
    assert "  | oh no\n" in done.stderr
    assert f"bad --store {store}" in done.stderr
    logs = call("logs", "@latest", "bad", "--store", store)
    assert logs.stdout == "oh no\n"


def test_wrong_input_is_2_and_makes_nothing(tmp_path: Path, store: Path) -> None:
    done = call("run", write(tmp_path, QUICK.replace("inputs", "imputs")), "--store", store)

    assert done.returncode == 2
    assert "did you mean 'inputs'?" in done.stderr
    assert not store.exists()


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--id", "No Id", "error: --id: must be lower-case letters"),
        ("--id", "x-r1", "error: --id: must not end in '-r1'"),
        ("--group", "a:b", "error: --group: must not contain ':'"),
        ("--name", "n" * 201, "error: --name: has 201 characters, at most 200 are allowed"),
        ("--name", "\udcff", "error: --name: is not UTF-8"),
        ("--param", "first.x=1", "is no parameter of the task"),
    ],
)
def test_a_wrong_option_is_named(
    tmp_path: Path, store: Path, option: str, value: str, text: str
) -> None:
    result = simrun("run", write(tmp_path, QUICK), "--store", store, option, value)

    assert result.exit_code == 2
    assert text in result.stderr


def test_a_store_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, QUICK)

    result = simrun("run", file, "--store", file / "store")

    assert result.exit_code == 2
    assert "error: --store: can't be made: Not a directory" in result.stderr


def test_what_the_command_line_says_goes_over_what_the_file_says(tmp_path: Path) -> None:
    loaded = read_workflow(str(write(tmp_path, QUICK + "run: {group: lab, labels: {a: b}}\n")))

    request = submission_of(loaded, group=None, name="given", run_id=None).request

    assert (request.group, request.name, request.labels) == ("lab", "given", {"a": "b"})
    with pytest.raises(InvalidInput):
        submission_of(loaded, group="", name=None, run_id=None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_c61_ctrl_c_cancels_waits_for_the_workers_and_ends_with_3(
    long: subprocess.Popen[str], store: Path, number: signal.Signals
) -> None:
    pid = pid_of_task(store)

    long.send_signal(number)
    stdout, stderr = long.communicate(timeout=40)

    assert long.returncode == 3, stderr
    assert not Path(f"/proc/{pid}").exists()
    assert "cancelled" in stdout
    assert "Ctrl-C again kills them" in stderr
    assert (
        json.loads(call("list", "--store", store, "-o", "json").stdout)[0]["state"] == "cancelled"
    )


def test_c61_a_terminals_ctrl_c_does_not_reach_the_workers_behind_the_runners_back(
    long: subprocess.Popen[str], store: Path
) -> None:
    pid = pid_of_task(store)

    assert os.getsid(pid) != os.getsid(long.pid)
    os.killpg(long.pid, signal.SIGINT)
    _, stderr = long.communicate(timeout=40)

    assert long.returncode == 3, stderr


def test_c61_the_second_ctrl_c_kills_workers_that_do_not_end(tmp_path: Path, store: Path) -> None:
    with running(write(tmp_path, LONG % ("", 600)), store) as process:
        pid = pid_of_task(store)
        process.send_signal(signal.SIGINT)
        read_until(process.stderr, "Ctrl-C again kills them")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=40)

        assert process.returncode == 3, stderr
        assert not Path(f"/proc/{pid}").exists()


def test_c56_no_units_succeed_at_once_as_a_leaf_and_in_the_middle(
    tmp_path: Path, store: Path
) -> None:
    file = write(
        tmp_path,
        """
        types:
          none:
            command: ["false"]
            inputs: {before: {optional: true}}
            outputs: {table: table.csv}
            split: {workers: 2, units: {list: []}}
            resources: {memory: 128Mi}
        tasks:
          middle: {type: none}
          after: {command: "cat {inputs.t} > copy", inputs: {t: middle.table}, resources: {memory: 64Mi}}
          leaf: {type: none, after: [after]}
        """,
    )  # fmt: skip

    done = call("run", file, "--store", store)

    assert done.returncode == 0, done.stderr
    assert list(store.glob("runs/*/tasks/leaf/out/.simrun-merged"))
    assert list(store.glob("runs/*/tasks/middle/out/.simrun-merged"))


def test_parameters_of_the_command_line_reach_the_task(tmp_path: Path, store: Path) -> None:
    file = write(
        tmp_path,
        "tasks: {a: {command: 'echo {params.x}', params: {x: 1}, resources: {memory: 64Mi}}}",
    )

    call("run", file, "--store", store, "--param", "a.x=[2, yes please]")

    assert call("logs", "@latest", "a", "--store", store).stdout == "[2, yes please]\n"
