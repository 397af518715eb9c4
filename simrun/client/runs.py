"""Calls about runs: submit, look, list, cancel, retry, and how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from simrun.base import ids
from simrun.base.clock import SystemClock
from simrun.client.transport import CONNECT_S, Transport
from simrun.client.uploads import content, files_of
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment

UPLOAD_S = 600.0
"""Silence that an upload bears: the server copies what it got before it answers."""


class RunCalls(Transport):
    """/api/v1/runs."""

    async def server(self) -> dict[str, Any]:
        """Give what the server says of itself: {simrun, store, host, pid}."""
        return self._object(await self._call("GET", "/api/v1/server"))

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
        text = submission.model_dump_json()
        loop = asyncio.get_running_loop()
        files = [
            file
            for item in attachments
            for file in await loop.run_in_executor(None, files_of, item)
        ]

        def body() -> aiohttp.FormData:
            form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
            form.add_field("submission", text, content_type="application/json")
            if run_id is not None:
                form.add_field("id", run_id)
            for path, name, kind in files:
                form.add_field("file", content(path), filename=name, content_type=kind)
            return form

        answer = await self._call(
            "POST",
            "/api/v1/runs",
            data=body,
            headers={"Idempotency-Key": key} if key is not None else None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=UPLOAD_S),
            repeatable=True,
        )
        return self._model(RunRecord, answer)

    async def run(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound."""
        return self._model(RunRecord, await self._call("GET", f"/api/v1/runs/{run_id}"))

    async def runs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        state: str = "",
        group: str | None = None,
        sort: str = "id",
    ) -> dict[str, Any]:
        """Give a page of runs, highest id first: {runs, cursor}. `sort="created"`: the newest, which are one page only."""
        query = {
            "limit": str(limit),
            "state": state,
            "group": group or "",
            "cursor": cursor or "",
            "sort": sort,
        }
        given = {key: value for key, value in query.items() if value}
        return self._object(await self._call("GET", "/api/v1/runs", params=given))

    async def all_runs(
        self, *, state: str = "", group: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield all runs, highest id first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.runs(limit=500, cursor=cursor, state=state, group=group)
            for row in page["runs"]:
                yield row
            cursor = page["cursor"]
            if cursor is None:
                return

    async def cancel(self, run_id: str, *, now: bool = False) -> RunRecord:
        """Cancel a run, or give the one that has ended as it is. `now`: kill its workers without their grace."""
        answer = await self._call(
            "POST",
            f"/api/v1/runs/{run_id}/cancel",
            params={"now": "1"} if now else None,
            repeatable=True,
        )
        return self._model(RunRecord, answer)

    async def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run. Raises Conflict for one that has not, or has succeeded."""
        return self._model(RunRecord, await self._call("POST", f"/api/v1/runs/{run_id}/retry"))

    async def progress(self, run_id: str) -> dict[str, Any]:
        """Give how far a run is."""
        return self._object(await self._call("GET", f"/api/v1/runs/{run_id}/progress"))

    async def why(self, run_id: str) -> dict[str, Any]:
        """Give what a run waits for, task by task. Raises NotFound, Unreachable."""
        return self._object(await self._call("GET", f"/api/v1/runs/{run_id}/why"))
