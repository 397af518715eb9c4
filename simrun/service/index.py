"""The index of the runs in a store: a cache that can be thrown away.

Records are the truth; the index answers what would need a read of every record: which runs are live, the list by state,
group or time. It is rebuilt from the records at each start, live runs first, so that following runs never waits for history.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

from simrun.base.errors import DamagedRecord, NotFound
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.runindex import RunIndex
from simrun.service.runrow import RunRow, damaged_row, row_of, row_of_data
from simrun.store.layout import RunDir
from simrun.store.runs import RunStore
from simrun.worker import files

log = logging.getLogger(__name__)

_BATCH = 250


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

    def _read_row(self, run_id: str) -> RunRow | None:
        path = self.layout.run(run_id).record
        try:
            data = files.read(path)
            if data is None:
                return None  # a creation that has not come to its end
            return row_of_data(run_id, data, path)
        except (DamagedRecord, OSError) as error:
            log.warning("run %s is listed as damaged: %s", run_id, error)
            self._keep_aside(run_id)
            return damaged_row(run_id, str(error))

    def _keep_aside(self, run_id: str) -> None:
        """Keep a copy of a damaged record, once; the record itself is left as it is."""
        target = self.layout.damaged / f"{run_id}.json"
        with contextlib.suppress(OSError, NotFound):
            self.layout.damaged.mkdir(exist_ok=True)
            files.create(target, files.read(self.layout.run(run_id).record) or b"")

    def _put(self, rows: list[RunRow]) -> None:
        try:
            self.index.put(rows)
        except sqlite3.Error as error:
            self._unindexed |= {row.id for row in rows if row.live}
            log.warning("rows of %d runs can't be written to the index: %s", len(rows), error)
        else:
            if self._unindexed:
                self._unindexed -= {row.id for row in rows}


def recent(store: RunStore, since: float) -> list[RunRow]:
    """Give the rows of the runs that are live or ended after a wall time (blocking); of the latter none where there is no index."""
    wanted = set(store.live_ids())
    if isinstance(store, IndexedRunStore):
        with contextlib.suppress(sqlite3.Error):
            wanted.update(store.index.ended_since(since))
    found = []
    for run_id in sorted(wanted):
        with contextlib.suppress(NotFound, DamagedRecord):
            found.append(row_of(store.read(run_id)))
    return found
