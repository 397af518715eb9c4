"""Files that travel with a submission."""

from __future__ import annotations

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
