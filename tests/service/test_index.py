"""The index: a cache of the records, rebuilt, never in the way."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from simrun.base.errors import UnsupportedStore
from simrun.model.record import RunState
from simrun.service import runindex as runindex_module
from simrun.service.controller import Controller, closed
from simrun.service.index import IndexedRunStore
from simrun.service.runindex import RunIndex
from simrun.service.runrow import row_of
from simrun.service.submission import create_run, new_record
from tests.service.world import SWEEP_THEN_PLOT, World, make_world


@pytest.fixture
def store(tmp_path: Path) -> IndexedRunStore:
    made = IndexedRunStore(tmp_path / "store", RunIndex(tmp_path / "index" / "runs.sqlite"))
    made.open()
    return made


def create(store: IndexedRunStore, run_id: str) -> None:
    create_run(store, new_record(SWEEP_THEN_PLOT, run_id, 1.0), SWEEP_THEN_PLOT, [])


def end(store: IndexedRunStore, run_id: str) -> None:
    record = store.read(run_id)
    done = closed(record, RunState.FAILED, record.tasks, "why", now=2.0)
    settled = done.changed(pending_logs=False, pending_cancel=False)
    assert store.write_if_unchanged(record, settled)


def test_a_run_is_in_the_index_from_its_creation_and_live_until_nothing_is_pending(
    store: IndexedRunStore,
) -> None:
    create(store, "a")
    create(store, "b")
    assert store.index.live() == ["a", "b"]

    end(store, "a")

    assert store.live_ids() == ["b"]
    assert [(row.id, row.state) for row in store.index.rows(limit=10)] == [
        ("b", "submitting"),
        ("a", "failed"),
    ]


def test_an_index_that_is_lost_is_rebuilt_from_the_records(
    store: IndexedRunStore, tmp_path: Path
) -> None:
    create(store, "a")
    create(store, "b")
    end(store, "b")
    again = IndexedRunStore(store.layout.root, RunIndex(tmp_path / "other" / "runs.sqlite"))

    assert again.reindex() == 2
    assert again.reindex() == 0

    assert again.index.live() == ["a"]
    assert len(again.index.rows(limit=10)) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"schema": 1, "id": "bad", "name": "\xc3',
        b'{"id": "bad"}\0\0\0',
        b"[]",
        b'{"schema": 99}',
    ],
    ids=["empty", "cut in a character", "NUL block", "a list", "newer schema"],
)
def test_a_damaged_record_is_listed_kept_aside_and_left_as_it_is(
    store: IndexedRunStore, content: bytes
) -> None:
    create(store, "good")
    create(store, "bad")
    path = store.layout.run("bad").record
    path.write_bytes(content)

    store.reindex(everything=True)

    (row,) = store.index.damaged()
    assert row.id == "bad"
    assert str(path) in (row.damaged or "")
    assert path.read_bytes() == content
    assert (store.layout.damaged / "bad.json").read_bytes() == content
    assert "good" in store.live_ids()


def test_rows_of_runs_that_are_gone_are_removed(store: IndexedRunStore) -> None:
    create(store, "a")
    end(store, "a")
    store.delete("a")
    create(store, "b")
    store.index.remove(["b"])

    store.reindex()

    assert [row.id for row in store.index.rows(limit=10)] == ["b"]


async def test_runs_are_followed_while_the_index_cannot_be_written(
    store: IndexedRunStore, world: World
) -> None:
    other = make_world(store.layout.root, world.clock)
    store.index._db.close()
    create(store, "a")
    controller = Controller(
        store, other.resources, other.backend, pool=other.pool, clock=other.clock
    )
    other.controller.resume = None

    assert store.live_ids() == ["a"]
    await controller.reconcile()
    other.pool.close()


def test_an_index_file_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    content = b"this is no database, but it is long enough to be taken for one" * 100
    path.write_bytes(content)

    index = RunIndex(path)

    assert index.live() == []
    assert (tmp_path / "runs.sqlite.damaged").read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (name TEXT)")
        db.execute("INSERT INTO runs VALUES ('theirs')")
        db.commit()

    with pytest.raises(UnsupportedStore, match="of another program"):
        RunIndex(path)

    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT name FROM runs").fetchall() == [("theirs",)]


def test_an_index_of_an_earlier_version_is_made_anew_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (id TEXT)")
        db.execute("PRAGMA user_version=1")

    assert RunIndex(path).live() == []
    assert RunIndex(path).live() == []


def test_a_directory_in_the_place_of_the_index_is_told_and_left(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.mkdir()
    with pytest.raises(UnsupportedStore, match="--index FILE"):
        RunIndex(path)
    assert path.is_dir()


def test_a_network_file_system_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runindex_module, "network_file_system", lambda _path: "nfs4")

    with pytest.raises(UnsupportedStore, match="--index"):
        RunIndex(tmp_path / "runs.sqlite")


def test_an_older_revision_never_replaces_a_newer_row(store: IndexedRunStore) -> None:
    create(store, "a")
    old = store.read("a")
    end(store, "a")

    store._put([row_of(old)])

    assert store.index.live() == []
