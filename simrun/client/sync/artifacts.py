# Made from simrun/client/artifacts.py by `python -m tests.client.generate`; a test holds it to that
"""ArtifactCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from simrun.client.sync.blocking import Blocking
from simrun.store.artifacts import Artifact


class ArtifactCalls(Blocking):
    """/api/v1/runs/{run}/artifacts."""

    def artifacts(
        self, run_id: str, *, task: str | None = None, prefix: str = ""
    ) -> Iterator[Artifact]:
        """Yield the artifacts of a run, or of one task, in the order of their paths, `<task>/<path>`.

        prefix: only those whose path in the task's output begins so. Raises NotFound.
        """
        return self._each(self._client.artifacts(run_id, task=task, prefix=prefix))

    def download(
        self, run_id: str, directory: Path, *, task: str | None = None, prefix: str = ""
    ) -> Iterator[tuple[Path, bool]]:
        """Download artifacts into a directory, as `<task>/<path>`, or as `<path>` those of one task.

        Yields each file with whether it came just now; one that has come before, and is as it was, is left alone. A file appears whole.
        What a cut connection left is gone on with, also by a later call. Raises NotFound, Conflict, Unreachable.
        """
        return self._each(self._client.download(run_id, directory, task=task, prefix=prefix))
