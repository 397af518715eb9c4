"""The index of the runs in a store: SQLite on a local disk, a cache that can be thrown away.

Records are the truth; the index answers what would need a read of every record: which runs are live, the list by state,
group or time. It is rebuilt from the records at each start, live runs first, so that following runs never waits for history. One thread writes
it. It is refused on a network file system, where SQLite's locks are no promise.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun.base.errors import DamagedRecord, NotFound, UnsupportedStore
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.store import codec
from simrun.store.layout import RunDir
from simrun.store.runs import RunStore
from simrun.worker import files

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, grp TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,
  live INTEGER NOT NULL, created REAL NOT NULL, ended REAL, revision INTEGER NOT NULL, labels TEXT NOT NULL,
  damaged TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_live ON runs (id) WHERE live = 1;
CREATE INDEX IF NOT EXISTS runs_group ON runs (grp, id);
CREATE INDEX IF NOT EXISTS runs_state ON runs (state, id);
CREATE INDEX IF NOT EXISTS runs_created ON runs (created, id);
"""
_VERSION = 1
_BATCH = 1000
_TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
# File systems on which SQLite must not live, by their magic numbers in statfs(2)
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "glusterfs",
    "gpfs",
    "beegfs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "fuse.s3fs",
}


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What the index knows of a run; `damaged` says why its record can't be read."""

    id: str
    group: str
    owner: str
    name: str
    state: str
    live: bool
    created: float
    ended: float | None
    revision: int
    labels: dict[str, str]
    damaged: str | None


def file_system_of(path: Path) -> str:
    """Give the type of the file system that holds `path`, from /proc/self/mountinfo; empty when that can't be told."""
    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Turn the errors of a file that can't be made into one with the remedy."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise UnsupportedStore(
            f"{path}: the index can't be opened: {error}; name another file with --index FILE"
        ) from error


class RunIndex:
    """Rows about runs in an SQLite file. Blocking; safe to use from several threads, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opening(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        kind = file_system_of(path.parent)
        if kind in _NETWORK:
            raise UnsupportedStore(
                f"{path}: the index must not be on a network file system ({kind}); "
                "name a file on a local disk with --index FILE"
            )
        self._lock = threading.Lock()
        with _opening(path):
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            # A cache that can't be read is made anew
            log.warning("the index %s is made anew: %s", self.path, error)
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            # Rebuilt at each start: losing the last rows in a power cut is no loss
            db.execute("PRAGMA synchronous=OFF")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                db.execute("DROP TABLE IF EXISTS runs")
            db.executescript(_SCHEMA)
            db.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            db.close()
            raise
        return db

    def put(self, rows: Iterable[IndexRow]) -> None:
        """Write rows; an older revision of a run never replaces a newer one."""
        values = [
            (
                row.id,
                row.group,
                row.owner,
                row.name,
                row.state,
                int(row.live),
                row.created,
                row.ended,
                row.revision,
                json.dumps(row.labels),
                row.damaged,
            )
            for row in rows
        ]
        with self._lock, self._transaction():
            self._db.executemany(
                "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET grp=excluded.grp,"
                " owner=excluded.owner, name=excluded.name, state=excluded.state, live=excluded.live,"
                " created=excluded.created, ended=excluded.ended, revision=excluded.revision,"
                " labels=excluded.labels, damaged=excluded.damaged"
                " WHERE excluded.revision >= runs.revision OR excluded.damaged IS NOT NULL",
                values,
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def remove(self, run_ids: Iterable[str]) -> None:
        """Forget runs."""
        with self._lock, self._transaction():
            self._db.executemany("DELETE FROM runs WHERE id = ?", [(run_id,) for run_id in run_ids])

    def ids(self) -> set[str]:
        """Give the ids of all runs it knows."""
        with self._lock:
            return {run_id for (run_id,) in self._db.execute("SELECT id FROM runs")}

    def live(self) -> list[str]:
        """Give the ids of the runs that have not ended or have something pending."""
        with self._lock:
            rows = self._db.execute("SELECT id FROM runs WHERE live = 1 ORDER BY id")
            return [run_id for (run_id,) in rows]

    def rows(
        self,
        *,
        limit: int,
        before: str | None = None,
        states: Iterable[str] = (),
        group: str | None = None,
        by_time: bool = False,
    ) -> list[IndexRow]:
        """Give up to `limit` rows, highest id first, those with an id before `before`; `by_time`: the newest first."""
        where, values = ["1"], []  # type: tuple[list[str], list[Any]]
        if before is not None:
            where.append("id < ?")
            values.append(before)
        if wanted := list(states):
            where.append(f"state IN ({','.join('?' * len(wanted))})")
            values += wanted
        if group is not None:
            where.append("grp = ?")
            values.append(group)
        order = "created DESC, id DESC" if by_time else "id DESC"
        query = f"SELECT * FROM runs WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ?"
        with self._lock:
            found = self._db.execute(query, [*values, limit]).fetchall()
        return [_row(item) for item in found]

    def damaged(self) -> list[IndexRow]:
        """Give the runs whose record can't be read."""
        with self._lock:
            found = self._db.execute("SELECT * FROM runs WHERE damaged IS NOT NULL ORDER BY id")
            return [_row(item) for item in found.fetchall()]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def _row(item: tuple[Any, ...]) -> IndexRow:
    (run_id, group, owner, name, state, live, created, ended, revision, labels, damaged) = item
    return IndexRow(
        run_id,
        group,
        owner,
        name,
        state,
        bool(live),
        created,
        ended,
        revision,
        json.loads(labels),
        damaged,
    )


def row_of(record: RunRecord) -> IndexRow:
    """Give the row of a record."""
    return IndexRow(
        record.id,
        record.group,
        record.owner,
        record.name,
        str(record.state),
        not record.state.terminal or record.pending,
        record.times.created,
        record.times.ended,
        record.revision,
        record.labels,
        None,
    )


def _row_of_data(run_id: str, data: bytes, path: Path) -> IndexRow:
    """Give the row of a record from its bytes, looking at what the index needs; a model of each of 100,000 would take a minute.

    Raises DamagedRecord.
    """
    try:
        value = json.loads(data)
        state = value.get("state", "submitting")
        pending = any(
            value.get(name) for name in ("pending_logs", "pending_release", "pending_cancel")
        )
        times = value["times"]
        if value["id"] != run_id or value.get("schema", 0) > codec.SCHEMA:
            raise ValueError("is another run's, or of a newer simrun")
        return IndexRow(
            run_id,
            str(value.get("group", "default")),
            str(value.get("owner", "")),
            str(value.get("name", "")),
            str(state),
            state not in _TERMINAL or pending,
            float(times["created"]),
            times.get("ended"),
            int(value.get("revision", 0)),
            dict(value.get("labels", {})),
            None,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedRecord(f"{path}: can't be read: {type(error).__name__} {error}") from error


class IndexedRunStore(RunStore):
    """A run store that keeps its index up to date.

    A row that can't be written is no failure of the run: its id is remembered, and the run is followed all the same.
    """

    def __init__(
        self, root: Path, index: RunIndex, *, owner: tuple[int, int] | None = None
    ) -> None:
        super().__init__(root, owner=owner)
        self.index = index
        self._unindexed: set[str] = set()

    def create(
        self,
        record: RunRecord,
        submission: Submission,
        prepare: Callable[[RunDir], None] | None = None,
    ) -> RunRecord:
        """Make a run exist, and its row."""
        there = super().create(record, submission, prepare)
        self._put([row_of(there)])
        return there

    def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> RunRecord | None:
        """Write a record that is still what it was, and its row."""
        written = super().write_if_unchanged(before, after)
        if written is not None:
            self._put([row_of(written)])
        return written

    def delete(self, run_id: str) -> None:
        """Remove an ended run, and its row."""
        super().delete(run_id)
        self._unindexed.discard(run_id)
        with contextlib.suppress(sqlite3.Error):
            self.index.remove([run_id])

    def live_ids(self) -> list[str]:
        """Give the runs to follow: of the index, those whose rows could not be written, and those marked live."""
        marked = set(super().live_ids())
        try:
            return sorted(marked | set(self.index.live()) | self._unindexed)
        except sqlite3.Error as error:
            log.warning("the index can't be read, following what is marked live: %s", error)
            return sorted(marked | self._unindexed)

    def reindex(self, *, everything: bool = False) -> int:
        """Index runs that the index lacks, live ones first; `everything` reads them all again. How many were read.

        Rows of runs that are gone are removed.
        """
        names = files.listing(self.layout.runs)
        try:
            known = self.index.ids()
        except sqlite3.Error as error:
            log.warning("the index can't be read: %s", error)
            known = set()
        live = set(RunStore.live_ids(self)) & names
        todo = names if everything else names - known
        order = [*sorted(todo & live), *sorted(todo - live, reverse=True)]
        for start in range(0, len(order), _BATCH):
            self._put(
                [row for run_id in order[start : start + _BATCH] if (row := self._read_row(run_id))]
            )
        if gone := known - names:
            with contextlib.suppress(sqlite3.Error):
                self.index.remove(gone)
        return len(order)

    def _read_row(self, run_id: str) -> IndexRow | None:
        path = self.layout.run(run_id).record
        try:
            data = files.read(path)
            if data is None:
                return None  # a creation that has not come to its end
            return _row_of_data(run_id, data, path)
        except (DamagedRecord, OSError) as error:
            log.warning("run %s is listed as damaged: %s", run_id, error)
            self._keep_aside(run_id)
            return IndexRow(run_id, "", "", "", "damaged", False, 0.0, None, 0, {}, str(error))

    def _keep_aside(self, run_id: str) -> None:
        """Keep a copy of a damaged record, once; the record itself is left as it is."""
        target = self.layout.damaged / f"{run_id}.json"
        with contextlib.suppress(OSError, NotFound):
            self.layout.damaged.mkdir(exist_ok=True)
            files.create(target, files.read(self.layout.run(run_id).record) or b"")

    def _put(self, rows: list[IndexRow]) -> None:
        try:
            self.index.put(rows)
        except sqlite3.Error as error:
            self._unindexed |= {row.id for row in rows if row.live}
            log.warning("rows of %d runs can't be written to the index: %s", len(rows), error)
        else:
            if self._unindexed:
                self._unindexed -= {row.id for row in rows}
