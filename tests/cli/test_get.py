"""`simrun get` from a store on this machine."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.store import Runs, simrun


def test_outputs_are_copied_from_the_store_and_kept_the_second_time(
    runs: Runs, tmp_path: Path
) -> None:
    runs.add()
    runs.file("01run", "tasks", "sweep", "out", "table.csv", content=b"1,2\n")
    runs.file("01run", "tasks", "plot", "out", "maps", "a.png", content=b"png")
    here = tmp_path / "here"

    first = simrun("get", "@latest", here, "--store", runs.root)
    second = simrun("get", "01", here, "--store", runs.root, "-o", "json")

    assert (first.exit_code, first.stdout) == (0, f"2 files in {here}\n")
    assert first.stderr.splitlines() == [
        str(here / "plot/maps/a.png"),
        str(here / "sweep/table.csv"),
    ]
    assert (here / "sweep/table.csv").read_bytes() == b"1,2\n"
    assert [item["fresh"] for item in json.loads(second.stdout)["files"]] == [False, False]


def test_of_one_task_the_files_are_put_into_the_directory_itself(
    runs: Runs, tmp_path: Path
) -> None:
    runs.add()
    runs.file("01run", "tasks", "sweep", "out", "table.csv", content=b"1")
    runs.file("01run", "tasks", "sweep", "out", "raw", "0", content=b"2")

    done = simrun("get", "01run", "sweep", tmp_path / "x", "--prefix", "tab", "--store", runs.root)

    assert done.exit_code == 0
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["table.csv"]


def test_what_is_not_there_is_told(runs: Runs, tmp_path: Path) -> None:
    runs.add()

    wrong = simrun("get", "01run", "swep", tmp_path / "x", "--store", runs.root)
    many = simrun("get", "01run", "a", "b", "c", "--store", runs.root)
    (tmp_path / "file").write_text("")
    blocked = simrun("get", "01run", tmp_path / "file", "--store", runs.root)

    assert wrong.exit_code == 6
    assert "did you mean 'sweep'" in wrong.stderr
    assert (many.exit_code, blocked.exit_code) == (2, 2)
    assert "can't be written to" in blocked.stderr
