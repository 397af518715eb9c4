"""Files that travel with a submission."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simrun.base.errors import InvalidInput
from simrun.service.attachments import attach, attachments_of
from simrun.store.layout import RunDir
from tests.service.world import submission


def test_plugins_tables_and_inputs_are_found_and_copied(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("import json, deeper\n")
    (tmp_path / "deeper.py").write_text("")
    (tmp_path / "points.csv").write_text("a\n1\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mesh.txt").write_text("mesh")
    what = submission(
        {"sweep": {"type": "t", "inputs": {"data": "./data"}}},
        {
            "t": {
                "plugin": "code.py:run",
                "inputs": ["data"],
                "split": {"workers": 1, "units": {"table": "points.csv"}},
            }
        },
    )
    run = RunDir(tmp_path / "run")

    attach(run, attachments_of(what, tmp_path))

    copied = {str(p.relative_to(run.root)) for p in run.root.rglob("*") if p.is_file()}
    assert copied == {
        "code/code.py",
        "code/helper.py",
        "code/deeper.py",
        "code/points.csv",
        "tasks/sweep/in/data/mesh.txt",
    }


def test_all_that_is_missing_is_told_at_once_with_its_field(tmp_path: Path) -> None:
    what = submission(
        {"a": {"type": "t", "inputs": {"data": "./none"}}},
        {"t": {"plugin": "gone.py:run", "inputs": ["data"]}},
    )

    with pytest.raises(InvalidInput) as caught:
        attachments_of(what, tmp_path)

    assert [problem.field for problem in caught.value.problems] == [
        "types.t.plugin",
        "tasks.a.inputs.data",
    ]


def test_a_plugin_outside_of_the_workflows_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("")
    (tmp_path / "flow").mkdir()
    what = submission({"a": {"type": "t"}}, {"t": {"plugin": "../code.py:run"}})

    with pytest.raises(InvalidInput, match="outside"):
        attachments_of(what, tmp_path / "flow")


def test_nothing_stays_of_a_creation_that_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("whole")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mesh.txt").write_text("mesh")
    what = submission(
        {"sweep": {"type": "t", "inputs": {"data": "./data"}}},
        {"t": {"plugin": "code.py:run", "inputs": ["data"]}},
    )
    run = RunDir(tmp_path / "run")
    for name in ("code/code.py", "code/json.py", "tasks/sweep/in/data/old.txt", "tasks/x/in/a"):
        (run.root / name).parent.mkdir(parents=True, exist_ok=True)
        (run.root / name).write_text("hal")

    attach(run, attachments_of(what, tmp_path))

    copied = {str(p.relative_to(run.root)): p for p in run.root.rglob("*") if p.is_file()}
    assert set(copied) == {"code/code.py", "tasks/sweep/in/data/mesh.txt"}
    assert copied["code/code.py"].read_text() == "whole"


def test_a_package_comes_once_whoever_names_it_and_what_may_be_executed_stays_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "code.py").write_text("import package\n")
    (tmp_path / "package").mkdir()
    for name in ("__init__.py", "inner.py"):
        (tmp_path / "package" / name).write_text("")
    tool = tmp_path / "tool.sh"
    tool.write_text("#!/bin/sh")
    tool.chmod(0o700)
    what = submission(
        {"a": {"type": "t", "inputs": {"tool": "./tool.sh"}}, "b": {"type": "inner"}},
        {
            "t": {"plugin": "code.py:run", "inputs": ["tool"]},
            "inner": {"plugin": "package/inner.py:run"},
        },
    )
    run = RunDir(tmp_path / "run")

    attach(run, attachments_of(what, tmp_path))

    assert {str(p.relative_to(run.root)) for p in run.root.rglob("*") if p.is_file()} == {
        "code/code.py",
        "code/package/__init__.py",
        "code/package/inner.py",
        "tasks/a/in/tool",
    }
    assert (run.root / "tasks/a/in/tool").stat().st_mode & 0o777 == 0o755


def test_every_file_is_on_the_disk_before_the_run_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code.py").write_text("")
    synced: list[str] = []
    sync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}").removeprefix(f"{tmp_path}/run/"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noted)

    attach(
        RunDir(tmp_path / "run"),
        attachments_of(
            submission({"a": {"type": "t"}}, {"t": {"plugin": "code.py:run"}}), tmp_path
        ),
    )

    assert synced == ["code/code.py", "code"]


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "pipe")
    what = submission(
        {"a": {"type": "t", "inputs": {"data": "./data"}}},
        {"t": {"command": ["true"], "inputs": ["data"]}},
    )

    with pytest.raises(InvalidInput, match="pipe is neither a file nor a directory"):
        attach(RunDir(tmp_path / "run"), attachments_of(what, tmp_path))
