"""`simrun init`: an example that is right, and that never overwrites anything."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.store import simrun


def test_the_example_is_a_right_workflow(tmp_path: Path) -> None:
    result = simrun("init", tmp_path / "demo")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        str(tmp_path / "demo" / name) for name in ("workflow.yaml", "walks.py")
    ]
    assert simrun("validate", tmp_path / "demo" / "workflow.yaml").exit_code == 0


def test_the_current_directory_is_where_it_goes_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = simrun("init", "-o", "json")

    assert json.loads(result.stdout)["files"] == ["workflow.yaml", "walks.py"]
    assert (tmp_path / "walks.py").is_file()


def test_files_that_are_there_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "walks.py").write_text("mine")

    result = simrun("init", tmp_path)

    assert result.exit_code == 2
    assert f"{tmp_path}/walks.py: exists already" in result.stderr
    assert (tmp_path / "walks.py").read_text() == "mine"
    assert not (tmp_path / "workflow.yaml").exists()


def test_a_directory_that_can_not_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    result = simrun("init", tmp_path / "file" / "demo")

    assert result.exit_code == 2
    assert "can't be written to" in result.stderr


def test_the_plugin_of_the_example_does_what_its_workflow_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simrun("init", tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("walks", tmp_path / "walks.py")
    assert spec is not None
    assert spec.loader is not None
    walks: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(walks)
    units = []
    for index, drift in enumerate((0.0, 0.2)):
        params = {"drift": drift, "steps": 200, "walkers": 100, "replicate": 0}
        unit = SimpleNamespace(index=index, seed=index, params=params, out=tmp_path)
        unit.result = walks.walk(unit)
        units.append(unit)

    walks.summarise(SimpleNamespace(units=units, failed=[], out=tmp_path))

    rows = list(csv.reader((tmp_path / "summary.csv").read_text().splitlines()))
    assert rows[0] == ["unit", "drift", "replicate", "mean", "spread"]
    assert float(rows[2][3]) == pytest.approx(40, abs=10)
    assert abs(float(rows[1][3])) < 10
