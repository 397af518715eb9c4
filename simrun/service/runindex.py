"""RunIndex: rows about runs in SQLite, on a local disk.

Rebuilt from the records at each start, so a file that can't be read is made anew. It is refused on a network file system, where SQLite's
locks are no promise.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simrun.base.errors import UnsupportedStore
from simrun.store.mounts import network_file_system

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
        if kind := network_file_system(path.parent):
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
        groups: Iterable[str] | None = None,
    ) -> list[IndexRow]:
        """Give up to `limit` rows, highest id first, those with an id before `before`; `by_time`: the newest first.

        `group`: that group alone; `groups`: only those of any of these.
        """
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
        if groups is not None:
            allowed = list(groups)
            where.append(f"grp IN ({','.join('?' * len(allowed))})")
            values += allowed
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
