"""RunIndex: rows about runs in SQLite, on a local disk.

Rebuilt from the records at each start, so a file that can't be read is made anew. It is refused on a network file system, where SQLite's
locks are no promise. One connection writes; readers have one for each of their threads, which neither wait for it nor hold it up (WAL).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from simrun.base.errors import BackendUnavailable, UnsupportedStore
from simrun.service.runquery import Position, RunFilter, page_query
from simrun.service.runrow import RunRow, parsed
from simrun.store.mounts import network_file_system

log = logging.getLogger(__name__)

# `body` is the row as lists give it, so that a page is put together and not encoded. Rows are found by the other columns
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, grp TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, live INTEGER NOT NULL,
  created REAL NOT NULL, ended REAL, revision INTEGER NOT NULL, damaged INTEGER NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS runs_live ON runs (id) WHERE live = 1;
CREATE INDEX IF NOT EXISTS runs_created ON runs (created, id);
CREATE INDEX IF NOT EXISTS runs_state ON runs (state, created, id);
CREATE INDEX IF NOT EXISTS runs_group ON runs (grp, created, id);
CREATE INDEX IF NOT EXISTS runs_group_state ON runs (grp, state, created, id);
CREATE INDEX IF NOT EXISTS runs_name ON runs (name, created, id, grp, state);
CREATE INDEX IF NOT EXISTS runs_ended ON runs (ended) WHERE ended IS NOT NULL;
CREATE TABLE IF NOT EXISTS labels (
  key TEXT NOT NULL, value TEXT NOT NULL, created REAL NOT NULL, id TEXT NOT NULL, grp TEXT NOT NULL,
  PRIMARY KEY (key, value, created, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS labels_run ON labels (id);
"""
_VERSION = 2
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""Errors of a file that another one would not have; the last is of tables that are not as they should be."""
_APPLICATION = int.from_bytes(b"simr")
"""Stands in the header of the file, and says whose it is."""

# A start looks at every record, and most rows are what they were: those are not written again
_PUT = """
INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET
  grp=excluded.grp, name=excluded.name, state=excluded.state, live=excluded.live, created=excluded.created, ended=excluded.ended,
  revision=excluded.revision, damaged=excluded.damaged, body=excluded.body
WHERE excluded.body <> runs.body AND (excluded.revision >= runs.revision OR excluded.damaged)
"""
_CACHE_KB = 8 * 1024
"""Of a connection that reads."""


@contextlib.contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Turn the errors of a file that can't be made into one with the remedy."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise UnsupportedStore(
            f"{path}: the index can't be opened: {error}; name another file with --index FILE"
        ) from error


def _check_ours(db: sqlite3.Connection, path: Path) -> None:
    """Raise UnsupportedStore for a database of another program, which may have tables of the same names."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    before = application == 0 and 0 < version <= _VERSION  # of before it had an application_id
    if tables and application != _APPLICATION and not before:
        raise UnsupportedStore(
            f"{path}: is a database of another program; name another file with --index FILE"
        )


class RunIndex:
    """Rows about runs in an SQLite file. Blocking; may be used from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _opening(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        if kind := network_file_system(path.parent):
            raise UnsupportedStore(
                f"{path}: the index must not be on a network file system ({kind}); "
                "name a file on a local disk with --index FILE"
            )
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self._readers: list[sqlite3.Connection] = []
        with _opening(path):
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGED:
                raise  # a directory, a file of somebody else's, a disk that is full
            # A cache that can't be read is made anew; whoever named a file that is none still has it
            aside = Path(f"{self.path}.damaged")
            log.warning("the index %s is made anew: %s; it is kept as %s", self.path, error, aside)
            for suffix in ("-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            os.replace(self.path, aside)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        try:
            _check_ours(db, self.path)
            db.execute("PRAGMA journal_mode=WAL")
            # Rebuilt at each start: losing the last rows in a power cut is no loss
            db.execute("PRAGMA synchronous=OFF")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                db.executescript("DROP TABLE IF EXISTS runs; DROP TABLE IF EXISTS labels;")
            db.executescript(_SCHEMA)
            db.execute(f"PRAGMA user_version={_VERSION}")
            db.execute(f"PRAGMA application_id={_APPLICATION}")
        except BaseException:
            db.close()
            raise
        return db

    # --- writing -------------------------------------------------------------------------------------------------------

    def put(self, rows: Iterable[RunRow]) -> None:
        """Write rows; an older revision of a run never replaces a newer one."""
        rows = list(rows)
        values = [
            (
                row.id,
                row.group,
                row.name,
                row.state,
                row.live,
                row.created,
                row.ended,
                row.revision,
                row.damaged is not None,
                row.text(),
            )
            for row in rows
        ]
        # Labels are of a run for ever; those of a run that was listed as damaged come once it can be read
        labels = [
            (key, value, row.created, row.id, row.group)
            for row in rows
            for key, value in row.labels.items()
        ]
        with self._lock, self._transaction():
            self._db.executemany(_PUT, values)
            if labels:
                self._db.executemany("INSERT OR IGNORE INTO labels VALUES (?,?,?,?,?)", labels)

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
        gone = [(run_id,) for run_id in run_ids]
        with self._lock, self._transaction():
            self._db.executemany("DELETE FROM runs WHERE id = ?", gone)
            self._db.executemany("DELETE FROM labels WHERE id = ?", gone)

    # --- reading -------------------------------------------------------------------------------------------------------

    def page(self, wanted: RunFilter, *, limit: int, after: Position | None = None) -> list[str]:
        """Give up to `limit` rows behind a position, newest first, as JSON objects. Raises BackendUnavailable."""
        query, values = page_query(wanted, after, limit)
        try:
            (text,) = self._reader().execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise BackendUnavailable(
                f"the index {self.path} can't be read now: {error}; a restart makes it anew"
            ) from error
        return text.split("\n") if text else []

    def rows(
        self, wanted: RunFilter | None = None, *, limit: int, after: Position | None = None
    ) -> list[RunRow]:
        """Give what `page` gives, as rows."""
        return [parsed(text) for text in self.page(wanted or RunFilter(), limit=limit, after=after)]

    def counts(self) -> dict[str, int]:
        """Give how many runs there are, by state. Raises BackendUnavailable."""
        try:
            return dict(self._reader().execute("SELECT state, COUNT(*) FROM runs GROUP BY state"))
        except sqlite3.Error as error:
            raise BackendUnavailable(f"the index {self.path} can't be read now: {error}") from error

    def ids(self) -> set[str]:
        """Give the ids of all runs it knows."""
        return set(self._column("SELECT id FROM runs"))

    def live(self) -> list[str]:
        """Give the ids of the runs that have not ended or have something pending."""
        return self._column("SELECT id FROM runs WHERE live = 1 ORDER BY id")

    def ended_since(self, time: float) -> list[str]:
        """Give the ids of the runs that ended at a wall time or later."""
        return self._column("SELECT id FROM runs WHERE ended >= ? ORDER BY id", time)

    def damaged(self) -> list[RunRow]:
        """Give the runs whose record can't be read."""
        return [
            parsed(text) for text in self._column("SELECT body FROM runs WHERE damaged ORDER BY id")
        ]

    def _column(self, query: str, *values: float) -> list[str]:
        with self._lock:
            return [value for (value,) in self._db.execute(query, values)]

    def _reader(self) -> sqlite3.Connection:
        """Give the connection with which this thread reads pages."""
        db: sqlite3.Connection | None = getattr(self._of_thread, "db", None)
        if db is None:
            db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            db.execute("PRAGMA query_only=1")
            db.execute(f"PRAGMA cache_size=-{_CACHE_KB}")
            self._of_thread.db = db
            with self._lock:
                self._readers.append(db)
        return db

    def close(self) -> None:
        """Close the file; no thread may be reading."""
        with self._lock:
            for db in (*self._readers, self._db):
                db.close()
            self._readers.clear()
