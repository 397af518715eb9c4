# Made from simrun/client/snapshots.py by `python -m tests.client.generate`; a test holds it to that
"""SnapshotCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simrun.client.snapshots import (
    SnapshotPage,
    Verification,
)
from simrun.client.sync.blocking import Blocking
from simrun.model.snapshot import Entry, Snapshot
from simrun.model.workflow import Submission
from simrun.store.sources import Step, no_step


class SnapshotCalls(Blocking):
    """/api/v1/snapshots."""

    def snapshots(
        self,
        *,
        group: str | None = None,
        digest: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SnapshotPage:
        """Give a page of snapshots; its cursor goes with the same filters to the next page.

        digest: only the one with this content, sha256:<hex>. Raises InvalidInput.
        """
        return self._wait(
            self._client.snapshots(group=group, digest=digest, limit=limit, cursor=cursor)
        )

    def all_snapshots(self, *, group: str | None = None) -> Iterator[Snapshot]:
        """Yield all snapshots, page by page."""
        return self._each(self._client.all_snapshots(group=group))

    def snapshot(self, name: str) -> Snapshot:
        """Give a snapshot. Raises NotFound."""
        return self._wait(self._client.snapshot(name))

    def snapshot_files(self, name: str) -> Iterator[Entry]:
        """Yield the files of a snapshot by path, with size, SHA-256, and whether they may be executed. Raises NotFound."""
        return self._each(self._client.snapshot_files(name))

    def create_snapshot(
        self, source: Path, *, group: str = "default", name: str | None = None, step: Step = no_step
    ) -> Snapshot:
        """Make a snapshot of a directory or a file; it is read, and sent only where the group has not got its content.

        name: a new one where it is None; a snapshot that is there keeps its own. step: told of bytes that were read.
        Raises NotFound, InvalidInput with all that can't go in, Conflict for a name that is taken, Forbidden, Unreachable.
        """
        return self._wait(self._client.create_snapshot(source, group=group, name=name, step=step))

    def verify_snapshot(self, name: str) -> Verification:
        """Have all of a snapshot read, and say what is not as it was. Raises NotFound."""
        return self._wait(self._client.verify_snapshot(name))

    def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. Raises NotFound, Conflict while a live run uses it."""
        return self._wait(self._client.delete_snapshot(name))

    def with_local_data(
        self, submission: Submission, base: Path, *, step: Step = no_step
    ) -> Submission:
        """Make snapshots of the local paths that inputs name as `snapshot:./PATH`, relative to `base`, and name these there.

        Raises InvalidInput with all that can't become one.
        """
        return self._wait(self._client.with_local_data(submission, base, step=step))
