"""What pods and service leave in the directories of a run besides its record: reports, evidence of attempts, marks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from simrun.base.errors import DamagedRecord
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files
from simrun.worker.protocol import attempt_name, holder_name

_LASTING_KEPT = 4096


class Traces:
    """Reads and writes them; blocking, like the store that it is a part of."""

    def __init__(self, layout: StoreLayout) -> None:
        self.layout = layout
        self._lasting: set[Path] = set()
        """Directories of evidence whose names are known to be on the disk."""

    def reports(self, run_id: str, task: str) -> dict[str, WorkerReport]:
        """Give the reports of a task by `<worker>-<attempt>`; one that can't be read is left out: not yet, or not ours."""
        directory = self.layout.run(run_id).task(task).reports
        found = {}
        for name in files.listing(directory):
            if name.endswith(".json"):
                try:
                    report = codec.read(WorkerReport, directory / name, listed=True)
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
                item = codec.read(AttemptEvidence, directory / name, listed=True)
            except DamagedRecord:
                continue
            if item is not None:
                found.append(item)
        return sorted(found, key=lambda item: (item.worker, item.attempt, item.created or 0.0))

    def keep_evidence(
        self,
        run_id: str,
        task: str,
        evidence: AttemptEvidence,
        merge: Callable[
            [AttemptEvidence | None, AttemptEvidence], AttemptEvidence
        ] = lambda _kept, now: now,
    ) -> None:
        """Keep what is known of an attempt; `merge` makes one of what was kept and what is known now, else the latter counts.

        A number that was used twice is told apart by the pod: the second is kept under a name with its uid, unless the first was
        only seen to run.
        """
        directory = self.layout.run(run_id).task(task).attempts
        _make_directory(directory)
        path = directory / f"{attempt_name(evidence.worker, evidence.attempt)}.json"
        there = self._kept_evidence(path)
        if there and there.pod_uid and evidence.pod_uid not in ("", there.pod_uid):
            if there.reason is None and there.leaving is None:
                # The service died while it was being started, and nobody has heard of it since: it leaves nothing
                there = None
            else:
                holder = holder_name(evidence.worker, evidence.attempt, evidence.pod_uid)
                path = directory / f"{holder}.json"
                there = self._kept_evidence(path)
        known = merge(there, evidence)
        if known != there:
            # What runs is told again after a power cut, or is gone with the machine; an end, or the word that a pod must
            # leave, may never be told again
            lasting = known.reason is not None or known.leaving is not None
            files.replace(path, codec.encode(known), durable=lasting)
            if lasting:
                self._make_lasting(directory)

    def _make_lasting(self, directory: Path) -> None:
        """Let a directory survive a power cut, once: it was made for evidence that need not."""
        if directory not in self._lasting:
            files.sync_directory(directory.parent)
            if len(self._lasting) >= _LASTING_KEPT:
                self._lasting.clear()  # it is synced once more then
            self._lasting.add(directory)

    def _kept_evidence(self, path: Path) -> AttemptEvidence | None:
        try:
            # Looked for in vain before, it may have been written since by another host, which led then
            return codec.find(AttemptEvidence, path)
        except DamagedRecord:
            return None

    def recorded(self, run_id: str, task: str) -> set[str]:
        """Give the attempts of a task whose observation was stored, as `<worker>-<attempt>`."""
        names = files.listing(self.layout.run(run_id).task(task).recorded)
        return {name.removesuffix(".json") for name in names}

    def mark(self, directory: Path, name: str, data: bytes = b"") -> bool:
        """Put a small file that is written once (dead/, memory/, recorded/); whether this call did."""
        files.make_directory(directory)
        return files.create(directory / name, data)


def _make_directory(directory: Path) -> None:
    """Make a directory whose name need not survive a power cut yet; those above it, if they are not there, shall."""
    try:
        os.mkdir(directory)
    except FileExistsError:
        pass
    except FileNotFoundError:
        files.make_directory(directory)
