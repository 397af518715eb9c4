# Made from simrun/client/runs.py by `python -m tests.client.generate`; a test holds it to that
"""RunCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simrun.client.sync.blocking import Blocking
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment


class RunCalls(Blocking):
    """/api/v1/runs."""

    def server(self) -> dict[str, Any]:
        """Give what the server says of itself: {simrun, store, host, pid}."""
        return self._wait(self._client.server())

    def submit(
        self,
        submission: Submission,
        attachments: Sequence[Attachment] = (),
        *,
        run_id: str | None = None,
        key: str | None = None,
    ) -> RunRecord:
        """Submit a workflow with its files; the run.

        run_id: the id that it is to have. key: an Idempotency-Key; the same key with the same submission is the same run. Without
        either the client makes an id, so that what is sent twice because a connection was cut is one run in any case.
        Raises InvalidInput, Conflict, Forbidden, Exhausted, Unreachable.
        """
        return self._wait(self._client.submit(submission, attachments, run_id=run_id, key=key))

    def run(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound."""
        return self._wait(self._client.run(run_id))

    def runs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        state: str = "",
        group: str | None = None,
        sort: str = "id",
    ) -> dict[str, Any]:
        """Give a page of runs, highest id first: {runs, cursor}. `sort="created"`: the newest, which are one page only."""
        return self._wait(
            self._client.runs(limit=limit, cursor=cursor, state=state, group=group, sort=sort)
        )

    def all_runs(self, *, state: str = "", group: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all runs, highest id first, page by page."""
        return self._each(self._client.all_runs(state=state, group=group))

    def cancel(self, run_id: str, *, now: bool = False) -> RunRecord:
        """Cancel a run, or give the one that has ended as it is. `now`: kill its workers without their grace."""
        return self._wait(self._client.cancel(run_id, now=now))

    def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run. Raises Conflict for one that has not, or has succeeded."""
        return self._wait(self._client.retry(run_id))

    def progress(self, run_id: str) -> dict[str, Any]:
        """Give how far a run is."""
        return self._wait(self._client.progress(run_id))

    def why(self, run_id: str) -> dict[str, Any]:
        """Give what a run waits for, task by task. Raises NotFound, Unreachable."""
        return self._wait(self._client.why(run_id))
