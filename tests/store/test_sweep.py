"""Temporary files that dead processes left are removed, others are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simrun.store.layout import StoreLayout
from simrun.store.sweep import LEFT_S, sweep
from simrun.worker import files


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    made = StoreLayout(tmp_path / "store")
    for directory in (made.root, made.live, made.resources / "type", made.run("r").root):
        directory.mkdir(parents=True, exist_ok=True)
    return made


def leave(directory: Path, age_s: float) -> Path:
    """A temporary file as a process leaves it that dies while it writes."""
    directory.mkdir(parents=True, exist_ok=True)
    path = files.temporary_name(directory)
    path.write_bytes(b"half")
    now = path.stat().st_mtime
    os.utime(path, (now - age_s, now - age_s))
    return path


def test_what_is_old_goes_wherever_records_are_written(layout: StoreLayout) -> None:
    task = layout.run("r").task("t")
    places = [layout.root, layout.live, layout.resources / "type", layout.run("r").root]
    places += [task.root, task.attempts, task.recorded, task.dead, task.memory, task.claims]
    left = [leave(place, LEFT_S + 60) for place in places]

    assert sweep(layout, ["r"]) == len(left)
    assert not any(path.exists() for path in left)


def test_what_may_still_be_written_stays(layout: StoreLayout) -> None:
    young = leave(layout.run("r").root, LEFT_S - 60)

    assert sweep(layout, ["r"]) == 0
    assert young.exists()


def test_nothing_but_temporary_files_is_touched(layout: StoreLayout) -> None:
    task = layout.run("r").task("t")
    record = layout.run("r").record
    record.write_bytes(b"{}")
    os.utime(record, (0, 0))
    of_the_user = leave(task.out, LEFT_S + 60)
    (task.root / f"{files.TEMPORARY_PREFIX}directory").mkdir()

    assert sweep(layout, ["r", "gone"]) == 0
    assert record.exists()
    assert of_the_user.exists()


def test_runs_that_are_not_named_are_left_alone(layout: StoreLayout) -> None:
    other = leave(layout.run("other").root, LEFT_S + 60)

    assert sweep(layout, ["r"]) == 0
    assert other.exists()
