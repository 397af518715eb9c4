from __future__ import annotations

from pathlib import Path

import pytest

from simrun.worker import environment, settings, staging
from simrun.worker.endings import BadSettingsError, StoreError
from simrun.worker.environment import Environment
from simrun.worker.log import Log
from simrun.worker.settings import TaskSettings
from simrun.worker.stopping import Stopper


def told(root: Path, snapshots: Path | None = None) -> Environment:
    variables = {
        "SIMRUN_RUN": "r",
        "SIMRUN_TASK": "t",
        "SIMRUN_WORKER": "t",
        "SIMRUN_ATTEMPT": "0",
        "SIMRUN_TASK_DIR": str(root / "runs" / "r" / "tasks" / "t"),
    }
    if snapshots is not None:
        variables["SIMRUN_SNAPSHOTS"] = str(snapshots)
    return environment.read(variables, "exec")


def task(**inputs: dict[str, object]) -> TaskSettings:
    least = {"schema": 1, "run": "r", "task": "t", "type": "ty", "command": ["true"]}
    return settings.parse({**least, "inputs": inputs, "stage": list(inputs)})


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_inputs_are_found_below_the_run_and_below_the_snapshots(tmp_path: Path) -> None:
    mine = put(tmp_path / "runs" / "r" / "tasks" / "u" / "out" / "a")
    shared = put(tmp_path / "snapshots" / "s" / "b")
    wanted = task(a={"run": "tasks/u/out/a"}, b={"snapshot": "s/b"})
    found = staging.find_inputs(wanted, told(tmp_path, tmp_path / "snapshots"))
    assert found == {"a": mine, "b": shared}


def test_an_optional_input_may_be_missing(tmp_path: Path) -> None:
    assert staging.find_inputs(task(a={"run": "no", "optional": True}), told(tmp_path)) == {}


def test_a_missing_input_is_named_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"input 'a' is not there: .*/runs/r/no"):
        staging.find_inputs(task(a={"run": "no"}), told(tmp_path))


def test_a_snapshot_needs_the_directory_of_snapshots(tmp_path: Path) -> None:
    with pytest.raises(BadSettingsError, match="SIMRUN_SNAPSHOTS is not set"):
        staging.find_inputs(task(a={"snapshot": "s/b"}), told(tmp_path))


def test_staged_inputs_are_copies_under_their_port_and_name(tmp_path: Path) -> None:
    case = tmp_path / "case"
    put(case / "system" / "dict", "1")
    log = Log(tmp_path / "log")
    staged = staging.stage(
        task(mesh={"run": "case"}), {"mesh": case}, tmp_path / "scratch", Stopper(grace_s=1), log
    )
    log.close()
    assert staged == {"mesh": tmp_path / "scratch" / "stage" / "mesh" / "case"}
    assert (staged["mesh"] / "system" / "dict").read_text() == "1"
