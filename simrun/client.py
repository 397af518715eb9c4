"""AsyncClient: simrun over HTTP, with the models that the service itself uses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiofiles
import aiohttp
from pydantic import ValidationError

from simrun.base import errors
from simrun.base.errors import Problem, Unreachable
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import EXECUTABLE, Attachment, is_executable

CALL_S = 60.0
UPLOAD_S = 600.0
"""Silence that an upload bears: the server copies what it got before it answers."""
CHUNK = 2**18
_PLAIN = "application/octet-stream"
TRIES = 10
"""Connections in a row that may fail before a stream is given up: half a minute, in which a server has been started again."""
SILENCE_S = 45.0
"""A stream says something each 15 s; three times that without a word and the connection is dead."""


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
            for path, name, kind in await loop.run_in_executor(None, _files, item):
                body.add_field("file", _content(path), filename=name, content_type=kind)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=UPLOAD_S)
        return self._record(await self._call("POST", "/api/v1/runs", data=body, timeout=timeout))

    async def server(self) -> dict[str, Any]:
        """Give what the server says of itself: {simrun, store, host, pid}."""
        return self._object(await self._call("GET", "/api/v1/server"))

    async def run(self, run_id: str) -> RunRecord:
        """Give the record of a run. Raises NotFound."""
        return self._record(await self._call("GET", f"/api/v1/runs/{run_id}"))

    async def runs(
        self, *, limit: int = 50, cursor: str | None = None, state: str = "", sort: str = "id"
    ) -> dict[str, Any]:
        """Give a page of runs, highest id first: {runs, cursor}. `sort="created"`: the newest, which are one page only."""
        query = {"limit": str(limit), "state": state, "cursor": cursor or "", "sort": sort}
        given = {key: value for key, value in query.items() if value}
        return self._object(await self._call("GET", "/api/v1/runs", params=given))

    async def cancel(self, run_id: str, *, now: bool = False) -> RunRecord:
        """Cancel a run, or give the one that has ended as it is. `now`: kill its workers without their grace."""
        params = {"now": "1"} if now else {}
        path = f"/api/v1/runs/{run_id}/cancel"
        return self._record(await self._call("POST", path, params=params))

    async def retry(self, run_id: str) -> RunRecord:
        """Start the next round of an ended run. Raises Conflict for one that has not, or has succeeded."""
        return self._record(await self._call("POST", f"/api/v1/runs/{run_id}/retry"))

    async def progress(self, run_id: str) -> dict[str, Any]:
        """Give how far a run is."""
        return self._object(await self._call("GET", f"/api/v1/runs/{run_id}/progress"))

    async def why(self, run_id: str) -> dict[str, Any]:
        """Give what a run waits for, task by task. Raises NotFound, Unreachable."""
        return self._object(await self._call("GET", f"/api/v1/runs/{run_id}/why"))

    async def events(self, run_id: str) -> AsyncIterator[dict[str, Any]]:
        """Yield how far a run is at each change until it has ended; a connection that is cut is made again."""
        failures = 0
        while True:
            reason = "the stream has ended before the run"
            try:
                async for kind, data in self._stream(f"/api/v1/runs/{run_id}/events"):
                    failures = 0
                    if kind == "end":
                        return
                    yield data
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = _text(error)
            failures += 1
            if failures == TRIES:
                raise Unreachable(f"{self.url}: {reason}")
            await asyncio.sleep(min(5.0, 0.2 * 2**failures))

    async def logs(
        self,
        run_id: str,
        task: str,
        *,
        worker: str | None = None,
        attempt: str | None = None,
        follow: bool = False,
        lines: int | None = None,
        tail: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the log of a task in chunks; with `follow` until the task has ended.

        `attempt`: a number, last or all; `lines`, `tail`: only so many last lines or bytes of each. Raises NotFound, Unreachable.
        """
        query = {
            "worker": worker,
            "attempt": attempt,
            "follow": "1" if follow else None,
            "lines": lines,
            "tail": tail,
        }
        params = {key: str(value) for key, value in query.items() if value is not None}
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=5, sock_read=None if follow else CALL_S
        )
        path = f"/api/v1/runs/{run_id}/logs/{task}"
        try:
            async with self._session.get(self.url + path, params=params, timeout=timeout) as answer:
                await _check(answer)
                async for chunk in answer.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {_text(error)}") from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("use the client as `async with AsyncClient(url) as client`")
        return self._http

    def _object(self, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise Unreachable(f"{self.url}: answers what is no answer of simrun")
        return body

    def _record(self, body: Any) -> RunRecord:
        try:
            return RunRecord.model_validate(body)
        except ValidationError as error:
            raise Unreachable(f"{self.url}: answers what is no run: {error}") from error

    async def _call(self, method: str, path: str, **how: Any) -> Any:
        how.setdefault("timeout", aiohttp.ClientTimeout(total=CALL_S, sock_connect=5))
        try:
            async with self._session.request(method, self.url + path, **how) as answer:
                await _check(answer)
                return await answer.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unreachable(f"{self.url}: {_text(error)}") from error

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
    if answer.status in (400, 422):
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
        401: errors.Unauthorized,
        403: errors.Forbidden,
        404: errors.NotFound,
        409: errors.Conflict,
        410: errors.Gone,
        429: errors.Exhausted,
        503: errors.BackendUnavailable,
    }
    raise kinds.get(answer.status, errors.SimrunError)(str(detail))


def _text(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"can't connect: {os.strerror(error.os_error.errno)}"
    return str(error) or type(error).__name__


def _files(item: Attachment) -> list[tuple[Path, str, str]]:
    """Every file of an attachment with the name it travels under, its place in the run, and its content type."""
    found = [(item.source, item.target)]
    if item.source.is_dir():
        # Through links to directories, as a copy would go
        found = [
            (
                Path(directory, name),
                f"{item.target}/{Path(directory, name).relative_to(item.source)}",
            )
            for directory, _, names in sorted(os.walk(item.source, followlinks=True))
            for name in sorted(names)
            if Path(directory, name).is_file()
        ]
    return [(path, name, EXECUTABLE if is_executable(path) else _PLAIN) for path, name in found]


async def _content(path: Path) -> AsyncIterator[bytes]:
    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(CHUNK):
            yield chunk
