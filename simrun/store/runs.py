"""RunStore: the records of runs.

Every method is plain blocking code that does one whole operation; the service calls each through one hop into the pool
of file threads. A run exists when its run.json exists, and run.json comes into being complete, by link.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from simrun.base.errors import Conflict, DamagedRecord, NotFound
from simrun.model.record import RunRecord
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.model.workflow import Submission
from simrun.store import codec
from simrun.store import files as store_files
from simrun.store.layout import RunDir, StoreLayout
from simrun.worker import files
from simrun.worker.protocol import attempt_name


class RunStore:
    """The run store in a directory.

    `owner` is the (uid, gid) that pods run as; directories of runs are given to it when this process may (root).
    """

    def __init__(self, root: Path, *, owner: tuple[int, int] | None = None) -> None:
        self.layout = StoreLayout(root)
        self._owner = owner if os.geteuid() == 0 else None
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def open(self) -> None:
        """Make the directories of the store and try the file system. Raises UnsupportedStore."""
        for directory in (
            self.layout.root,
            self.layout.runs,
            self.layout.live,
            self.layout.deleted,
            self.layout.snapshots,
            self.layout.resources,
        ):
            directory.mkdir(parents=True, exist_ok=True)
        store_files.probe(self.layout.root)

    # --- existence ---------------------------------------------------------------------------------------------------

    def create(
        self,
        record: RunRecord,
        submission: Submission,
        prepare: Callable[[RunDir], None] | None = None,
    ) -> RunRecord:
        """Make a run exist, or give the record of the one that does.

        `prepare` puts into the directory what must be there before the run exists. An id whose run was deleted is refused (Conflict); an unfinished creation of the id is completed.
        """
        if self._deleted(record.id):
            raise Conflict(f"run {record.id} was deleted; its id is not used again")
        run = self.layout.run(record.id)
        for directory in (run.root, run.tasks):
            directory.mkdir(exist_ok=True)
            self.give(directory)
        if run.record.exists():  # only saves work; the link below decides
            return self.read(record.id)
        if prepare is not None:
            prepare(run)
        files.replace(run.submission, codec.encode(submission))
        self.mark_live(record.id)
        if not files.create(run.record, codec.encode(record)):
            return self.read(record.id)
        files.sync_directory(self.layout.runs)
        if self._deleted(record.id):  # deleted between the two looks: undo our own creation
            store_files.remove_tree(run.root)
            raise Conflict(f"run {record.id} was deleted; its id is not used again")
        return record

    def delete(self, run_id: str) -> None:
        """Remove an ended run with nothing pending. Raises NotFound, Conflict."""
        record = self.read(run_id)
        if not record.state.terminal or record.pending:
            raise Conflict(f"run {run_id} is {record.state}; only an ended run can be deleted")
        files.create(self.layout.tombstone(run_id), b"")
        store_files.remove_tree(self.layout.run(run_id).root)
        self.unmark_live(run_id)

    def finish_deletions(self) -> None:
        """Complete deletions that a stopped process left half-done."""
        for run_id in files.listing(self.layout.deleted) & files.listing(self.layout.runs):
            store_files.remove_tree(self.layout.run(run_id).root)
            self.unmark_live(run_id)

    def _deleted(self, run_id: str) -> bool:
        return run_id in files.listing(self.layout.deleted)

    # --- records -----------------------------------------------------------------------------------------------------

    def read(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound, DamagedRecord."""
        record = codec.read(RunRecord, self.layout.run(run_id).record)
        if record is None:
            raise NotFound(f"no run {run_id!r} in {self.layout.root}")
        return record

    def submission(self, run_id: str) -> Submission:
        """Give what was submitted. Raises NotFound, DamagedRecord."""
        submission = codec.read(Submission, self.layout.run(run_id).submission)
        if submission is None:
            raise NotFound(f"run {run_id!r} has no submission.json")
        return submission

    @contextmanager
    def locked(self, run_id: str) -> Iterator[None]:
        """Hold the record lock of a run: nothing but file work may happen under it, never a call of the backend."""
        with self._guard:
            lock = self._locks.setdefault(run_id, threading.Lock())
        with lock:
            yield

    def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> RunRecord | None:
        """Write `after` when the record on disk is still `before`; what was written, None when it was not.

        The revision grows by one. A lower epoch than the one on disk is fenced off.
        """
        with self.locked(before.id):
            try:
                now = self.read(before.id)
            except NotFound:
                return None
            if now != before.changed(workflow=None) or after.epoch < now.epoch:
                return None
            written = after.changed(revision=now.revision + 1, workflow=None)
            files.replace(self.layout.run(before.id).record, codec.encode(written))
        if written.state.terminal and not written.pending:
            self.unmark_live(before.id)
        return written

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
        """Hint that a run may have something to do; before it exists."""
        self.layout.live_mark(run_id).touch()

    def unmark_live(self, run_id: str) -> None:
        """Take the hint away."""
        self.layout.live_mark(run_id).unlink(missing_ok=True)

    # --- what pods and service leave in a run ------------------------------------------------------------------------

    def reports(self, run_id: str, task: str) -> dict[str, WorkerReport]:
        """Give the reports of a task by `<worker>-<attempt>`; one that can't be read is left out: not yet, or not ours."""
        directory = self.layout.run(run_id).task(task).reports
        found = {}
        for name in files.listing(directory):
            if name.endswith(".json"):
                try:
                    report = codec.read(WorkerReport, directory / name)
                except DamagedRecord:
                    continue
                if report is not None:
                    found[name.removesuffix(".json")] = report
        return found

    def evidence(self, run_id: str, task: str) -> list[AttemptEvidence]:
        """Give what was kept of the attempts of a task, in the order of worker and attempt."""
        directory = self.layout.run(run_id).task(task).attempts
        found = []
        for name in files.listing(directory):
            try:
                item = codec.read(AttemptEvidence, directory / name)
            except DamagedRecord:
                continue
            if item is not None:
                found.append(item)
        return sorted(found, key=lambda item: (item.worker, item.attempt))

    def keep_evidence(self, run_id: str, task: str, evidence: AttemptEvidence) -> None:
        """Keep what is known of an attempt; a later word replaces an earlier one."""
        directory = self.layout.run(run_id).task(task).attempts
        directory.mkdir(exist_ok=True)
        name = attempt_name(evidence.worker, evidence.attempt)
        files.replace(directory / f"{name}.json", codec.encode(evidence))

    def recorded(self, run_id: str, task: str) -> set[str]:
        """Give the attempts of a task whose observation was stored, as `<worker>-<attempt>`."""
        names = files.listing(self.layout.run(run_id).task(task).recorded)
        return {name.removesuffix(".json") for name in names}

    def mark(self, directory: Path, name: str, data: bytes = b"") -> bool:
        """Put a small file that is written once (dead/, memory/, recorded/); whether this call did."""
        directory.mkdir(exist_ok=True)
        return files.create(directory / name, data)

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
