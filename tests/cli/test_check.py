"""`simrun validate` and `simrun types`: the file, and what it names. The file part of C61 of the trial cases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.store import simrun

GOOD = """
types:
  sweep:
    plugin: code/sweep.py:compute
    split: {workers: 2, units: {grid: {x: [1, 2, 3], y: [1, 2]}}, replicates: 2}
    resources: {memory: 256Mi, retry_memory: 1Gi}
    params: {size: 1}
tasks:
  a: {type: sweep, inputs: {}}
  b: {command: "echo hello", inputs: {system: ./system.json}, after: [a]}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sweep.py").write_text("def compute(unit):\n    return None\n")
    (tmp_path / "system.json").write_text("{}")
    (tmp_path / "w.yaml").write_text(GOOD)
    return tmp_path


def test_a_right_file_is_told_on_stdout(here: Path) -> None:
    result = simrun("validate", here / "w.yaml")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{here}/w.yaml: 2 tasks of 2 types, no problems\n"


def test_a_right_file_is_told_as_json(here: Path) -> None:
    data = json.loads(simrun("validate", here / "w.yaml", "-o", "json").stdout)

    assert (data["tasks"], data["types"], data["problems"]) == (2, 2, [])


def test_a_file_is_read_from_stdin_relative_to_the_current_directory(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)

    assert simrun("validate", "-", input=GOOD).exit_code == 0


def test_c61_a_mistyped_key_is_exit_code_2_with_file_line_key_and_nearest(here: Path) -> None:
    file = here / "w.yaml"
    file.write_text(GOOD.replace("retry_memory", "retry_memmory"))

    result = simrun("validate", file)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {file}:6:32: types.sweep.resources.retry_memmory: is not known here\n"
        "  did you mean 'retry_memory'?\n"
    )


def test_problems_are_json_where_json_was_asked_for(here: Path) -> None:
    (here / "w.yaml").write_text(GOOD.replace("workers: 2", "workers: 0"))

    result = simrun("validate", here / "w.yaml", "-o", "json")

    error = json.loads(result.stderr)
    assert (result.exit_code, error["exit_code"]) == (2, 2)
    assert error["problems"][0]["field"] == "types.sweep.split.workers"
    assert error["problems"][0]["place"] == f"{here}/w.yaml:5:22"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("sweep.py:compute", "sweeep.py:compute"), "no such plugin file: code/sweeep.py"),
        (("sweep.py:compute", "sweeep.py:compute"), "did you mean 'sweep.py'?"),
        (("sweep.py:compute", "sweep.py:compote"), "code/sweep.py has no function 'compote'"),
        (("sweep.py:compute", "sweep.py:compote"), "did you mean 'compute'?"),
        (("./system.json", "./sistem.json"), "tasks.b.inputs.system: no such input file"),
        (("plugin: code/sweep.py:compute", "plugin: code.py:x"), "no such plugin file: code.py"),
    ],
)
def test_files_that_are_not_there_are_told_at_their_place(
    here: Path, change: tuple[str, str], text: str
) -> None:
    file = here / "w.yaml"
    file.write_text(GOOD.replace(*change))

    result = simrun("validate", file)

    assert result.exit_code == 2
    assert text in result.stderr
    assert f"error: {file}:" in result.stderr


def test_a_table_of_units_is_read_and_its_faults_are_told(here: Path) -> None:
    (here / "points.csv").write_text("x,x\n1,2\n")
    (here / "w.yaml").write_text(
        GOOD.replace("grid: {x: [1, 2, 3], y: [1, 2]}", "table: points.csv")
    )

    result = simrun("validate", here / "w.yaml")

    assert result.exit_code == 2
    assert "types.sweep.split.units.table" in result.stderr
    assert "the header names 'x' twice" in result.stderr


def test_a_plugin_that_python_can_not_read_is_told_with_its_line(here: Path) -> None:
    (here / "code" / "sweep.py").write_text("def compute(unit):\n    return (\n")

    result = simrun("validate", here / "w.yaml")

    assert result.exit_code == 2
    assert "code/sweep.py:2 is not Python that can be read" in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from elsewhere import compute",
        "from elsewhere import *",
        "import other as compute",
        "if True:\n    compute = lambda unit: None",
        "class compute:\n    pass",
    ],
)
def test_a_function_may_come_into_a_plugin_in_any_way(here: Path, code: str) -> None:
    (here / "code" / "sweep.py").write_text(code)

    assert simrun("validate", here / "w.yaml").exit_code == 0


def test_parameters_of_the_command_line_are_checked_too(here: Path) -> None:
    file = here / "w.yaml"

    assert simrun("validate", file, "--param", "a.size=3").exit_code == 0
    wrong = simrun("validate", file, "--param", "a.sise=3", "--param", "c.x=1")
    assert wrong.exit_code == 2
    assert "did you mean 'size'?" in wrong.stderr
    assert "no such task: 'c'" in wrong.stderr
    shape = simrun(
        "validate", file, "--param", "size=3", "--param", "a.size=[1", "--param", "a.b=yes"
    )
    assert shape.exit_code == 2
    assert len(shape.stderr.split("error: ")) == 4


@pytest.mark.parametrize(("name", "code"), [("nix.yaml", 6), (".", 2)])
def test_a_file_that_is_none_is_told(here: Path, name: str, code: int) -> None:
    result = simrun("validate", here / name)

    assert result.exit_code == code
    assert "Traceback" not in result.stderr


def test_types_are_listed_with_what_they_run_and_need(here: Path) -> None:
    lines = simrun("types", here / "w.yaml").stdout.splitlines()

    assert lines[1].split() == [
        "sweep",
        "code/sweep.py:compute",
        "2",
        "12",
        "1",
        "256",
        "MiB",
        "1",
        "GiB",
        "1",
    ]
    assert lines[2].startswith("b      echo hello ")


def test_types_as_json_say_what_differs_from_the_defaults(here: Path) -> None:
    data = json.loads(simrun("types", here / "w.yaml", "-o", "json").stdout)

    assert [(item["name"], item["tasks"]) for item in data] == [("sweep", 1), ("b", 1)]
    assert data[0]["resources"] == {"memory": 2**28, "retry_memory": 2**30}


def test_a_chain_of_ten_thousand_is_validated_by_the_command(tmp_path: Path) -> None:
    file = tmp_path / "chain.yaml"
    tasks = "".join(f"  t{n}: {{type: t, after: [t{n - 1}]}}\n" for n in range(1, 10_000))
    file.write_text("types: {t: {command: [x]}}\ntasks:\n  t0: {type: t}\n" + tasks)

    done = subprocess.run(
        [sys.executable, "-m", "simrun.cli.main", "validate", file],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.endswith("10000 tasks of 1 type, no problems\n")
