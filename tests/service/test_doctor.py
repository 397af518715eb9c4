"""`simrun doctor`: what it says of a store, what it lists, and that it removes that and nothing else."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path

import pytest

from simrun.base.errors import NotFound
from simrun.model.record import RunState
from simrun.service import doctor
from simrun.service.doctor import Finding, examine, repair
from simrun.service.remains import leftovers
from simrun.store import flocks
from simrun.store.layout import StoreLayout
from simrun.store.lock import StoreLock
from simrun.store.runs import RunStore
from simrun.worker import files
from tests.cli.store import Runs, simrun
from tests.mounts import two_views

OLD = time.time() - 3 * 86_400


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "store")


def old(path: Path) -> Path:
    """As if it had been written days ago."""
    for inner in [*path.rglob("*"), path]:
        os.utime(inner, (OLD, OLD))
    return path


def by_check(findings: list[Finding]) -> dict[str, Finding]:
    return {item.check: item for item in findings}


def test_a_store_that_is_as_it_should_be_has_nothing_wrong(runs: Runs, tmp_path: Path) -> None:
    runs.add()

    found = examine(runs.root, index=tmp_path / "i.sqlite", owner=None)

    assert [(item.check, item.level) for item in found] == [
        (check, "ok") for check in ("store", "space", "user", "clock", "lock", "index")
    ]
    assert list(leftovers(runs.store, serving=False)) == []
    assert not [name for name in os.listdir(runs.root) if name.startswith(".tmp")]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no run store"):
        examine(tmp_path / "nix", index=None, owner=None)

    assert not (tmp_path / "nix").exists()


def test_users_that_a_file_server_maps_are_told(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with root squash, whoever writes is not whom the files belong to; here it is this process that is another."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    found = by_check(examine(runs.root, index=None, owner=None))["user"]

    assert found.level == "note"
    assert "files of uid 4711 become those of uid 0" in found.text
    assert "run simrun as the uid that owns the store" in found.remedy


def test_files_that_can_not_be_given_to_the_user_of_the_pods_are_told(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = by_check(examine(runs.root, index=None, owner=(1000, 1000)))["user"]
    assert given.text == "files can be given to uid 1000, gid 1000, which pods run as"

    def refuse(path: Path, uid: int, gid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    refused = by_check(examine(runs.root, index=None, owner=(1000, 1000)))["user"]
    assert refused.level == "problem"
    assert "run_as_user: 0" in refused.remedy


@pytest.mark.parametrize(("ahead_s", "level"), [(0.0, "ok"), (10.0, "note"), (-100.0, "problem")])
def test_a_file_server_with_another_clock_is_told(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, ahead_s: float, level: str
) -> None:
    monkeypatch.setattr(doctor, "time_of_server", lambda _root: time.time() + ahead_s)

    found = by_check(examine(runs.root, index=None, owner=None))["clock"]

    assert found.level == level
    assert found.text.startswith("this machine and the file server differ by")


def test_an_index_is_counted_or_told_to_be_damaged(runs: Runs, tmp_path: Path) -> None:
    runs.add()
    path = tmp_path / "i.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (id TEXT)")
        db.execute("INSERT INTO runs VALUES ('01run')")
    db.close()
    good = by_check(examine(runs.root, index=path, owner=None))["index"]
    assert (good.level, good.text) == ("ok", f"{path} has 1 runs, the store 1 directories")

    path.write_bytes(b"this is no database, though it is long enough to look like one" * 100)
    bad = by_check(examine(runs.root, index=path, owner=None))["index"]
    assert bad.level == "problem"
    assert "makes it anew" in bad.remedy


def test_a_live_run_whose_record_can_not_be_read_is_told(runs: Runs) -> None:
    runs.add()
    runs.store.layout.run("01run").record.write_text("{")
    runs.store.mark_live("01run")

    found = by_check(examine(runs.root, index=None, owner=None))

    assert found["records"].level == "problem"
    assert "01run" in found["records"].text


def test_runs_that_nobody_goes_on_with_are_told(runs: Runs) -> None:
    runs.add("01ended")
    runs.add("01left", state=RunState.RUNNING)

    found = by_check(examine(runs.root, index=None, owner=None))["lock"]

    assert (found.level, found.text) == (
        "note",
        "nobody follows its runs now, and run 01left has not ended",
    )
    assert "simrun serve" in found.remedy


def test_who_holds_the_store_is_told(runs: Runs) -> None:
    lock = StoreLock(runs.root)
    lock.acquire("serve", 1.0, "http://127.0.0.1:1")
    try:
        found = by_check(examine(runs.root, index=None, owner=None))["lock"]
    finally:
        lock.release()

    assert f"`simrun serve` at http://127.0.0.1:1, process {os.getpid()}" in found.text


# --- leftovers -----------------------------------------------------------------------------------------------------------


def half_made(layout: StoreLayout) -> Path:
    """A snapshot that was being made, read-only in parts."""
    place = files.temporary_name(layout.snapshots)
    (place / ".simrun-snapshot").mkdir(parents=True)
    (place / ".simrun-snapshot" / "files.jsonl").write_text("")
    (place / "data").mkdir()
    (place / "data" / "mesh").write_text("")
    (place / "data").chmod(0o555)
    return place


def remains(runs: Runs) -> list[Path]:
    """One of everything that dead processes leave."""
    layout = runs.store.layout
    runs.add("whole")
    half = layout.run("half").root
    (half / "code").mkdir(parents=True)
    (half / "code" / "a.py").write_text("")
    gone = layout.run("gone").root
    (gone / "tasks").mkdir(parents=True)
    layout.tombstone("gone").write_text("")
    layout.live_mark("never").write_text("")
    upload = files.temporary_name(layout.uploads)
    upload.mkdir(parents=True)
    (upload / "file").write_text("")
    (layout.runs / ".tmp.abc").write_text("")
    snapshot = half_made(layout)
    found = [
        half,
        gone,
        layout.live_mark("never"),
        upload,
        layout.runs / ".tmp.abc",
        snapshot,
    ]
    for path in found:
        old(path)
    return found


async def test_what_dead_processes_left_is_listed_and_exactly_that_is_removed(runs: Runs) -> None:
    left = remains(runs)
    fresh = runs.store.layout.run("fresh").root
    fresh.mkdir()

    listed = list(leftovers(runs.store, serving=False))

    assert [item.text.rpartition(": ")[2] for item in listed] == [
        str(left[0]),
        str(left[1]),
        str(left[2]),
        str(left[3]),
        str(left[4]),
        str(left[5]),
    ]
    assert all(path.exists() for path in left)
    assert [error for _, error in await repair(listed)] == [None] * 6
    assert not any(path.exists() for path in left)
    assert fresh.is_dir()
    assert runs.store.read("whole").id == "whole"
    assert runs.store.layout.tombstone("gone").exists()  # the id is not used again
    assert list(leftovers(runs.store, serving=False)) == []
    assert not [name for name in os.listdir(runs.root) if name.startswith(".tmp")]


async def test_what_came_back_meanwhile_is_left_alone(runs: Runs) -> None:
    remains(runs)
    listed = list(leftovers(runs.store, serving=False))
    runs.add("half")
    runs.add("never")

    done = {item.text.split()[1]: error for item, error in await repair(listed)}

    assert "has come to be meanwhile" in str(done["half"])
    assert "has come to be meanwhile" in str(done["never"])
    assert runs.store.read("half").id == "half"


def test_a_snapshot_that_takes_hours_is_no_leftover_while_somebody_makes_it(runs: Runs) -> None:
    place = old(half_made(runs.store.layout))
    with open(place / ".simrun-snapshot" / "files.jsonl", "rb+") as file:
        assert flocks.try_lock(file.fileno(), flocks.ALONE)
        assert list(leftovers(runs.store, serving=False)) == []
    (listed,) = leftovers(runs.store, serving=False)
    assert listed.repair is not None
    with open(place / ".simrun-snapshot" / "files.jsonl", "rb+") as file:
        assert flocks.try_lock(file.fileno(), flocks.ALONE)  # somebody is back at it
        listed.repair()
        assert place.is_dir()


def test_beside_a_server_uploads_that_may_be_under_way_are_none(runs: Runs) -> None:
    upload = files.temporary_name(runs.store.layout.uploads)
    upload.mkdir(parents=True)

    assert list(leftovers(runs.store, serving=True)) == []
    assert len(list(leftovers(runs.store, serving=False))) == 1
    old(upload)
    assert len(list(leftovers(runs.store, serving=True))) == 1


# --- the command ---------------------------------------------------------------------------------------------------------


def test_the_command_lists_then_removes_and_its_exit_code_says_whether_something_is_wrong(
    runs: Runs,
) -> None:
    left = remains(runs)

    looked = simrun("doctor", "--store", runs.root)
    assert looked.exit_code == 1
    assert looked.stdout.count("problem  leftovers") == len(left)
    assert looked.stdout.endswith("6 problems; --fix removes 6 leftovers\n")
    assert left[0].exists()

    fixed = simrun("doctor", "--store", runs.root, "--fix", "-o", "json")
    assert fixed.exit_code == 0
    data = json.loads(fixed.stdout)
    assert [item["removed"] for item in data if item["removable"]] == [True] * 6
    assert simrun("doctor", "--store", runs.root).stdout.endswith("nothing is wrong\n")


def test_wrong_usage_of_the_command_is_told(runs: Runs) -> None:
    for options in (["--fix", "--server", "http://127.0.0.1:1"], ["--cluster", "x"]):
        result = simrun("doctor", *options)
        assert result.exit_code == 2
    away = simrun("doctor", "--server", "http://127.0.0.1:1")
    assert away.exit_code == 1
    assert "problem  server    http://127.0.0.1:1: can't connect" in away.stdout


def test_a_run_of_another_host_is_no_leftover_though_it_was_denied_a_moment_ago() -> None:
    with two_views() as (here, there):
        runs = Runs(here)
        theirs = RunStore(there)
        for path in (theirs.layout.run("mine").root, theirs.layout.run("mine").record):
            assert not path.exists()
        record = runs.add("mine")
        runs.store.mark_live(record.id)
        old(runs.store.layout.run("mine").root)
        assert not theirs.layout.run("mine").root.exists()

        assert list(leftovers(theirs, serving=False)) == []
