"""Calls about runs: submit, look, list, cancel, retry, and how far they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from simrun.base import ids
from simrun.base.clock import SystemClock
from simrun.base.errors import Unreachable
from simrun.client.problems import text_of
from simrun.client.transport import CALL_S, CONNECT_S, Transport, api
from simrun.client.uploads import files_of_all, form
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment
from simrun.service.progress import RunProgress
from simrun.service.runrow import RunRow
from simrun.service.why import RunWhy

UPLOAD_S = 600.0
"""Silence that an upload bears: the server copies what it got before it answers."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Some runs, newest first, and where to go on; no cursor on the last page."""

    runs: tuple[RunRow, ...]
    cursor: str | None


class RunCalls(Transport):
    """/api/v1/runs."""

    async def server(self) -> dict[str, Any]:
        """Give what the server says of itself: {simrun, store, host, pid}."""
        return self._object(await self._call("GET", "/api/v1/server"))

    async def ready(self) -> list[str]:
        """Give what keeps a server from following its runs; empty when nothing does. Raises Unreachable."""
        timeout = aiohttp.ClientTimeout(total=CALL_S, sock_connect=CONNECT_S)
        try:
            async with self._session.get(f"{self.url}/readyz", timeout=timeout) as answer:
                body = self._object(await answer.json())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {text_of(error)}") from error
        return [str(reason) for reason in body.get("reasons", [])]

    async def submit(
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
        if run_id is None and key is None:
            run_id = ids.new_run_id(SystemClock().wall())
        documents = {"submission": submission.model_dump_json()}
        fields = {"id": run_id} if run_id is not None else {}
        files = await files_of_all(attachments)
        answer = await self._call(
            "POST",
            "/api/v1/runs",
            data=lambda: form(documents, files, **fields),
            headers={"Idempotency-Key": key} if key is not None else None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=UPLOAD_S),
            repeatable=True,
        )
        return self._model(RunRecord, answer)

    async def run(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound."""
        return self._model(RunRecord, await self._call("GET", api("runs", run_id)))

    async def runs(
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
        query = [
            ("limit", str(limit)),
            ("state", state),
            ("group", group),
            ("name", name),
            ("cursor", cursor),
            ("prefix", prefix),
            ("created_after", None if created_after is None else repr(created_after)),
            ("created_before", None if created_before is None else repr(created_before)),
            *(("label", f"{key}={value}") for key, value in (labels or {}).items()),
        ]
        given = [(key, value) for key, value in query if value]
        return self._model(RunPage, await self._call("GET", "/api/v1/runs", params=given))

    async def all_runs(
        self,
        *,
        state: str = "",
        group: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RunRow]:
        """Yield all runs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.runs(
                limit=500, cursor=cursor, state=state, group=group, name=name, labels=labels
            )
            for row in page.runs:
                yield row
            cursor = page.cursor
            if cursor is None:
                return

    async def cancel(self, run_id: str, *, now: bool = False) -> RunRecord:
        """Cancel a run, or give the one that has ended as it is. `now`: kill its workers without their grace."""
        answer = await self._call(
            "POST",
            api("runs", run_id, "cancel"),
            params={"now": "1"} if now else None,
            repeatable=True,
        )
        return self._model(RunRecord, answer)

    async def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run. Raises Conflict for one that has not, or has succeeded."""
        return self._model(RunRecord, await self._call("POST", api("runs", run_id, "retry")))

    async def delete(self, run_id: str) -> None:
        """Delete an ended run with everything in it. Raises NotFound, Conflict for one that has not ended."""
        await self._call("DELETE", api("runs", run_id))

    async def progress(self, run_id: str) -> RunProgress:
        """Give how far a run is. Raises NotFound."""
        return self._model(RunProgress, await self._call("GET", api("runs", run_id, "progress")))

    async def why(self, run_id: str) -> RunWhy:
        """Give what a run waits for, task by task. Raises NotFound."""
        return self._model(RunWhy, await self._call("GET", api("runs", run_id, "why")))
