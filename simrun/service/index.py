"""The index of the runs in a store: a cache that can be thrown away.

Records are the truth; the index answers what would need a read of every record: which runs are live, the list by state,
group or time. It is rebuilt from the records at each start, live runs first, so that following runs never waits for history.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from simrun.base.errors import DamagedRecord, NotFound
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.runindex import IndexRow, RunIndex
from simrun.store import codec
from simrun.store.layout import RunDir
from simrun.store.runs import RunStore
from simrun.worker import files

log = logging.getLogger(__name__)

_BATCH = 1000
_TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


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
