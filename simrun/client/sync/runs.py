# Made from simrun/client/runs.py by `python -m tests.client.generate`; a test holds it to that
"""RunCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simrun.client.runs import RunPage
from simrun.client.sync.blocking import Blocking
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment
from simrun.service.progress import RunProgress
from simrun.service.runrow import RunRow
from simrun.service.why import RunWhy


class RunCalls(Blocking):
    """/api/v1/runs."""

    def server(self) -> dict[str, Any]:
        """Give what the server says of itself: {simrun, store, host, pid}."""
        return self._wait(self._client.server())

    def ready(self) -> list[str]:
        """Give what keeps a server from following its runs; empty when nothing does. Raises Unreachable."""
        return self._wait(self._client.ready())

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
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        created_after: float | None = None,
        created_before: float | None = None,
        prefix: str | None = None,
    ) -> RunPage:
        """Give a page of runs, newest first; its cursor goes with the same filters to the next page.

        state: one, or several between commas. group, name: only those with exactly this one. labels: with all of these.
        created_after, created_before: wall seconds since 1970. prefix: how their ids begin. Raises InvalidInput.
        """
        return self._wait(
            self._client.runs(
                limit=limit,
                cursor=cursor,
                state=state,
                group=group,
                name=name,
                labels=labels,
                created_after=created_after,
                created_before=created_before,
                prefix=prefix,
            )
        )

    def all_runs(
        self,
        *,
        state: str = "",
        group: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[RunRow]:
        """Yield all runs, newest first, page by page."""
        return self._each(self._client.all_runs(state=state, group=group, name=name, labels=labels))

    def cancel(self, run_id: str, *, now: bool = False) -> RunRecord:
        """Cancel a run, or give the one that has ended as it is. `now`: kill its workers without their grace."""
        return self._wait(self._client.cancel(run_id, now=now))

    def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run. Raises Conflict for one that has not, or has succeeded."""
        return self._wait(self._client.retry(run_id))

    def delete(self, run_id: str) -> None:
        """Delete an ended run with everything in it. Raises NotFound, Conflict for one that has not ended."""
        return self._wait(self._client.delete(run_id))

    def progress(self, run_id: str) -> RunProgress:
        """Give how far a run is. Raises NotFound."""
        return self._wait(self._client.progress(run_id))

    def why(self, run_id: str) -> RunWhy:
        """Give what a run waits for, task by task. Raises NotFound."""
        return self._wait(self._client.why(run_id))
