"""AsyncClient: simrun over HTTP, with the models that the service itself uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from simrun.base import errors
from simrun.base.errors import Problem
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment

CALL_S = 60.0
SILENCE_S = 45.0
"""A stream says something each 15 s; three times that without a word and the connection is dead."""


class Unreachable(errors.SimrunError):
    """Raised when the server can't be reached or answers what is no answer of simrun."""


class AsyncClient:
    """Talks to a `simrun serve`. Use as an async context manager."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connections."""
        self._http = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def submit(
        self,
        submission: Submission,
        attachments: Sequence[Attachment] = (),
        *,
        run_id: str | None = None,
    ) -> RunRecord:
        """Submit a workflow with its files; the run. Raises InvalidInput, Conflict, Unreachable."""
        body = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
        body.add_field("submission", submission.model_dump_json(), content_type="application/json")
        if run_id is not None:
            body.add_field("id", run_id)
        loop = asyncio.get_running_loop()
        for item in attachments:
            for path, name in await loop.run_in_executor(None, _files, item):
                content = await loop.run_in_executor(None, path.read_bytes)
                body.add_field("file", content, filename=name)
        return RunRecord.model_validate(await self._call("POST", "/api/v1/runs", data=body))

    async def run(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound."""
        return RunRecord.model_validate(await self._call("GET", f"/api/v1/runs/{run_id}"))

    async def runs(
        self, *, limit: int = 50, cursor: str | None = None, state: str = ""
    ) -> dict[str, Any]:
        """Give a page of runs, newest first: {runs, cursor}."""
        query = {"limit": str(limit), "state": state, "cursor": cursor or ""}
        given = {key: value for key, value in query.items() if value}
        return dict(await self._call("GET", "/api/v1/runs", params=given))

    async def cancel(self, run_id: str) -> RunRecord:
        """Cancel a run."""
        return RunRecord.model_validate(await self._call("POST", f"/api/v1/runs/{run_id}/cancel"))

    async def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run."""
        return RunRecord.model_validate(await self._call("POST", f"/api/v1/runs/{run_id}/retry"))

    async def progress(self, run_id: str) -> dict[str, Any]:
        """Give how far a run is."""
        return dict(await self._call("GET", f"/api/v1/runs/{run_id}/progress"))

    async def events(self, run_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        failures = 0
        while True:
            try:
                async for kind, data in self._stream(f"/api/v1/runs/{run_id}/events"):
                    failures = 0
                    if kind == "end":
                        return
                    yield data
            except (aiohttp.ClientError, TimeoutError) as error:
                failures += 1
                if failures > 5:
                    raise Unreachable(
                        f"{self.url}: {str(error) or type(error).__name__}"
                    ) from error
                await asyncio.sleep(min(5.0, 0.2 * 2**failures))

    async def logs(
        self,
        run_id: str,
        task: str,
        *,
        worker: str | None = None,
        follow: bool = False,
        tail: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the log of a task in chunks; with `follow` until the task has ended."""
        query = {"worker": worker, "follow": "1" if follow else None, "tail": tail}
        params = {key: str(value) for key, value in query.items() if value is not None}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=5, sock_read=None if follow else CALL_S
        )
        path = f"/api/v1/runs/{run_id}/logs/{task}"
        async with self._session.get(self.url + path, params=params, timeout=timeout) as answer:
            await _check(answer)
            async for chunk in answer.content.iter_any():
                yield chunk

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("use the client as `async with AsyncClient(url) as client`")
        return self._http

    async def _call(self, method: str, path: str, **how: Any) -> Any:
        timeout = aiohttp.ClientTimeout(total=CALL_S, sock_connect=5)
        try:
            async with self._session.request(
                method, self.url + path, timeout=timeout, **how
            ) as answer:
                await _check(answer)
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {str(error) or type(error).__name__}") from error

    async def _stream(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=SILENCE_S)
        async with self._session.get(self.url + path, timeout=timeout) as answer:
            await _check(answer)
            kind, data = "message", ""
            async for raw in answer.content:
                line = raw.decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data += line.removeprefix("data: ")
                elif not line and data:
                    yield kind, json.loads(data)
                    kind, data = "message", ""


async def _check(answer: aiohttp.ClientResponse) -> None:
    """Raise the error that a problem document stands for."""
    if answer.status < 400:
        return
    try:
        body = await answer.json(content_type=None)
        detail = body.get("detail") or body.get("title") or answer.reason
    except (ValueError, AttributeError):
        raise Unreachable(f"{answer.url}: answered {answer.status} {answer.reason}") from None
    if answer.status == 422:
        found = [
            Problem(
                item.get("field", ""),
                item.get("message", ""),
                item.get("value"),
                item.get("remedy"),
                item.get("place"),
            )
            for item in body.get("errors", [])
        ]
        raise errors.InvalidInput(found or [Problem("", str(detail))])
    kinds: dict[int, type[errors.SimrunError]] = {
        404: errors.NotFound,
        409: errors.Conflict,
        503: errors.BackendUnavailable,
    }
    raise kinds.get(answer.status, errors.SimrunError)(str(detail))


def _files(item: Attachment) -> list[tuple[Path, str]]:
    """Every file of an attachment with the name it travels under: its place in the run."""
    if item.source.is_dir():
        return [
            (path, f"{item.target}/{path.relative_to(item.source)}")
            for path in sorted(item.source.rglob("*"))
            if path.is_file()
        ]
    return [(item.source, item.target)]
