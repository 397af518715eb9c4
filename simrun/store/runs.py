"""RunStore: the records of runs.

Every method is plain blocking code that does one whole operation; the service calls each through one hop into the pool
of file threads. A run exists when its run.json exists, and run.json comes into being complete, by link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from simrun.base import ids
from simrun.base.errors import Conflict, DamagedRecord, Gone, NotFound
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.store import codec, flocks
from simrun.store import files as store_files
from simrun.store.keylocks import KeyLocks
from simrun.store.layout import RunDir, StoreLayout
from simrun.store.traces import Traces
from simrun.worker import files

_TRIES = 5
_SUBMISSIONS_MOST, _SUBMISSIONS_KEPT = 8 * 2**20, 256
"""Bytes of submissions that are remembered, as JSON, and how many."""


class RunStore(Traces):
    """The run store in a directory.

    `owner` is the (uid, gid) that pods run as; directories of runs are given to it when this process may (root).
    """

    def __init__(self, root: Path, *, owner: tuple[int, int] | None = None) -> None:
        super().__init__(StoreLayout(root))
        self._owner = owner if os.geteuid() == 0 else None
        self._locks = KeyLocks()
        self._decoded: codec.Decoded[RunRecord] = codec.Decoded()
        self._submissions: codec.Decoded[Submission] = codec.Decoded(
            _SUBMISSIONS_MOST, _SUBMISSIONS_KEPT
        )
        self.leads: Callable[[], bool] | None = None
        """Where several services may write, whether this one leads now; None where a lock keeps the others out."""

    def open(self) -> None:
        """Make the directories of the store and try the file system. Raises UnsupportedStore."""
        with store_files.trying(self.layout.root, "make directories"):
            for directory in (
                self.layout.root,
                self.layout.runs,
                self.layout.live,
                self.layout.deleted,
                self.layout.snapshots,
                self.layout.resources,
            ):
                files.make_directory(directory)
        store_files.probe(self.layout.root)

    # --- existence ---------------------------------------------------------------------------------------------------

    def create(
        self,
        record: RunRecord,
        submission: Submission,
        prepare: Callable[[RunDir], None] | None = None,
    ) -> RunRecord:
        """Make a run exist, or give the record of the one that does.

        `prepare` puts into the directory what must be there before the run exists. An id whose run was deleted is refused
        (Conflict); an unfinished creation of the id is completed.
        """
        self._refuse_deleted(record.id)
        run = self.layout.run(record.id)
        for directory in (run.root, run.tasks):
            files.make_directory(directory)
            self.give(directory)
        try:
            with self._alone(run):
                if not self._make(run, record, submission, prepare):
                    return self.read(record.id)
        except FileNotFoundError:
            self._refuse_deleted(record.id)  # its directory went while it was made
            raise
        return record

    def _make(
        self,
        run: RunDir,
        record: RunRecord,
        submission: Submission,
        prepare: Callable[[RunDir], None] | None,
    ) -> bool:
        """Fill the directory and link the record; False when the run exists already, whose files are left alone then."""
        if files.listed(run.root, run.record.name):
            return False
        if prepare is not None:
            prepare(run)
        files.replace(run.submission, codec.encode(submission))
        self.mark_live(record.id)
        if not files.create(run.record, codec.encode(record)):
            return False
        files.sync_directory(self.layout.runs)
        if self._deleted(record.id):  # between the look and the link: undo our own creation
            self._remove(record.id)
            self._refuse_deleted(record.id)
        return True

    def delete(self, run_id: str) -> None:
        """Remove an ended run with nothing pending. Raises NotFound, Conflict."""
        with self._alone(self._run(run_id)):
            record = self.read(run_id)
            if not _idle(record):
                raise Conflict(f"run {run_id} is {record.state}; only an ended run can be deleted")
            files.create(self.layout.tombstone(run_id), b"")
            self._remove(run_id)

    def finish_deletions(self) -> None:
        """Complete deletions that a stopped process left half-done."""
        left = files.listing(self.layout.runs) | files.listing(self.layout.live)
        for run_id in files.listing(self.layout.deleted) & left:
            self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        """Take a run away: first its record, so that half of it never looks like a run, last the hint."""
        run = self.layout.run(run_id)
        for name in (run.record, run.root):
            store_files.remove_tree(name)
        self._decoded.forget(run.record)
        self._submissions.forget(run.submission)
        self.unmark_live(run_id)

    @contextmanager
    def _alone(self, run: RunDir) -> Iterator[None]:
        """Create or delete a run alone, so that files of two submissions of one id are never mixed.

        Among the threads of this process always; among processes where the file system locks directories: a local disk.
        On a cluster one service does all this (its Lease), and the link of the record decides in any case.
        """
        with self.locked(run.root.name), ExitStack() as stack:
            with suppress(FileNotFoundError):  # nothing there to guard
                stack.enter_context(flocks.alone_in(run.root))
            yield

    def _refuse_deleted(self, run_id: str) -> None:
        if self._deleted(run_id):
            raise Gone(f"run {run_id} was deleted; its id is not used again")

    def _deleted(self, run_id: str) -> bool:
        return run_id in files.listing(self.layout.deleted)

    # --- records -----------------------------------------------------------------------------------------------------

    def read(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound, DamagedRecord."""
        path = self._run(run_id).record
        record = codec.read(RunRecord, path, decoded=self._decoded)
        for _ in range(_TRIES):
            if record is not None:
                break
            # Some network file systems deny a file for the moment in which another replaces it; a run must not seem deleted
            if not self.exists(run_id):
                raise NotFound(f"no run {run_id!r} in {self.layout.root}")
            record = codec.read(RunRecord, path, listed=True, decoded=self._decoded)
        if record is None:
            raise OSError(errno.ESTALE, "is listed and can't be opened", str(path))
        if record.id != run_id:
            raise DamagedRecord(f"{path}: is the record of run {record.id!r}")
        return record

    def remembered(self, run_id: str) -> RunRecord | None:
        """Give the record of a run as this process last read or wrote it, without a look at the disk; None when it does not know it.

        What is made from it is checked when it is written: `write_if_unchanged` compares with the disk.
        """
        record = self._decoded.last(self.layout.run(run_id).record)
        return record if record is not None and record.id == run_id else None

    def exists(self, run_id: str) -> bool:
        """Whether a run exists now: by a listing, which no cache answers."""
        run = self.layout.run(run_id)
        return files.listed(run.root, run.record.name)

    def submission(self, run_id: str) -> Submission:
        """Give what was submitted, which never changes. Raises NotFound, DamagedRecord."""
        path = self._run(run_id).submission
        found = self._submissions.last(path)
        if found is None:
            found = codec.find(Submission, path, decoded=self._submissions)
        if found is None:
            raise NotFound(f"run {run_id!r} has no submission.json")
        return found

    def remembered_submission(self, run_id: str) -> Submission | None:
        """Give what was submitted, without a look at the disk; None when this process does not know it any more."""
        return self._submissions.last(self.layout.run(run_id).submission)

    def _run(self, run_id: str) -> RunDir:
        """Give the directory of a run that a user named; what can't be an id (`..`, say) is no run and becomes no path."""
        if ids.run_id_problem(run_id):
            raise NotFound(f"no run {run_id!r} in {self.layout.root}")
        return self.layout.run(run_id)

    def locked(self, run_id: str) -> AbstractContextManager[None]:
        """Hold the record lock of a run: nothing but file work may happen under it, never a call of the backend."""
        return self._locks.held(run_id)

    def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> RunRecord | None:
        """Write `after` when the record on disk is still `before`; what was written, None when it was not.

        The revision grows by one. `after.epoch` is the writer's own; one lower than that on disk is fenced off. The hint that
        the run may have something to do is set before the write that gives it something, and taken away after its last.
        """
        with self.locked(before.id):
            try:
                now = self.read(before.id)
            except NotFound:
                return None
            if not _same(before, now) or after.epoch < now.epoch:
                return None
            written = after.changed(revision=now.revision + 1, workflow=None)
            if _idle(now) and not _idle(written):
                self.mark_live(before.id)
            path = self.layout.run(before.id).record
            still = None if self.leads is None else lambda: self._may_replace(now)
            data = codec.encode(written)
            if not files.replace(path, data, still=still):
                return None
            self._decoded.put(path, data, written)
            if _idle(written):
                self.unmark_live(before.id)
        return written

    def _may_replace(self, seen: RunRecord) -> bool:
        """Whether this process leads and nobody wrote meanwhile: asked between the write of a record and its rename."""
        return self.leads is not None and self.leads() and _same(seen, self.read(seen.id))

    # --- lists -------------------------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """Give the ids of all directories of runs, newest id first; some may be unfinished creations."""
        return sorted(files.listing(self.layout.runs), reverse=True)

    def live_ids(self) -> list[str]:
        """Give the ids that may have something to do."""
        return sorted(files.listing(self.layout.live))

    def records(self) -> Iterator[RunRecord | DamagedRecord]:
        """Give every record, newest id first; what can't be read comes as its error and stops nothing."""
        for run_id in self.run_ids():
            try:
                yield self.read(run_id)
            except NotFound:
                continue  # a creation that has not come to its end
            except DamagedRecord as error:
                yield error

    def mark_live(self, run_id: str) -> None:
        """Hint that a run may have something to do; before it exists, and so that the hint outlives what it tells of."""
        self.layout.live_mark(run_id).touch()
        files.sync_directory(self.layout.live)

    def unmark_live(self, run_id: str) -> None:
        """Take the hint away."""
        self.layout.live_mark(run_id).unlink(missing_ok=True)

    def tidy(self, run_id: str) -> None:
        """Take away the hint of a run that has nothing more to do: its last write may have been a stopped process's last too."""
        with self.locked(run_id), suppress(NotFound):
            if _idle(self.read(run_id)):
                self.unmark_live(run_id)

    # --- owners ------------------------------------------------------------------------------------------------------

    def give(self, path: Path) -> None:
        """Give a path to the uid that the pods run as, where this process may."""
        if self._owner:
            os.chown(path, *self._owner)

    def give_tree(self, run: RunDir) -> None:
        """Give everything of a run to the pods' uid, before its workflow starts."""
        if not self._owner:
            return
        for directory, _, names in os.walk(run.root):
            self.give(Path(directory))
            for name in names:
                os.chown(Path(directory) / name, *self._owner, follow_symlinks=False)


def _same(seen: RunRecord, now: RunRecord) -> bool:
    """Whether a record is what is on disk; a workflow that it has at hand is no part of that."""
    return seen is now or seen.changed(workflow=None) == now


def _idle(record: RunRecord) -> bool:
    """Whether there is nothing more to do for a run."""
    return record.state.terminal and not record.pending
