"""Calls about artifacts, the files that the tasks of a run made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp

from simrun.aio.threads import Pool
from simrun.base.errors import Conflict, Unreachable
from simrun.client.landing import Incoming, Landing
from simrun.client.problems import check, text_of
from simrun.client.transport import CALL_S, CONNECT_S, Transport, api
from simrun.store.artifacts import Artifact

TRIES = 8
"""Connections in a row that may be cut without a byte having come."""
_PAGE = 1000

Write = Callable[[Incoming, int, bytes], Awaitable[None]]


class ArtifactCalls(Transport):
    """/api/v1/runs/{run}/artifacts."""

    async def artifacts(
        self, run_id: str, *, task: str | None = None, prefix: str = ""
    ) -> AsyncIterator[Artifact]:
        """Yield the artifacts of a run, or of one task, in the order of their paths, `<task>/<path>`.

        prefix: only those whose path in the task's output begins so. Raises NotFound.
        """
        after: str | None = ""
        while after is not None:
            given = {"limit": str(_PAGE), "task": task, "prefix": prefix, "after": after}
            params = {key: value for key, value in given.items() if value}
            page = self._object(
                await self._call("GET", api("runs", run_id, "artifacts"), params=params)
            )
            for item in page.get("artifacts", []):
                yield self._model(Artifact, item)
            after = page.get("after")

    async def download(
        self, run_id: str, directory: Path, *, task: str | None = None, prefix: str = ""
    ) -> AsyncIterator[tuple[Path, bool]]:
        """Download artifacts into a directory, as `<task>/<path>`, or as `<path>` those of one task.

        Yields each file with whether it came just now; one that has come before, and is as it was, is left alone. A file appears whole.
        What a cut connection left is gone on with, also by a later call. Raises NotFound, Conflict, Unreachable.
        """
        pool = Pool("download", 1)
        landing = await pool.run(Landing(directory).__enter__)
        try:
            async for item in self.artifacts(run_id, task=task, prefix=prefix):
                path = item.path if task is None else item.path.partition("/")[2]
                file = Incoming(path, item.size, item.modified, item.etag)
                fresh = not await pool.run(landing.has, file)
                if fresh:
                    await self._fetch(run_id, item.path, file, landing, pool)
                yield directory / path, fresh
        finally:
            await pool.run(landing.__exit__, None, None, None)
            pool.close()

    async def _fetch(
        self, run_id: str, path: str, file: Incoming, landing: Landing, pool: Pool
    ) -> None:
        url = self.url + api("runs", run_id, "artifacts", *path.split("/"))

        async def write(file: Incoming, offset: int, data: bytes) -> None:
            await pool.run(_write, landing, file, offset, data)

        failures = 0
        while True:
            have = await pool.run(landing.begun, file)
            reason = "the answer was cut"
            try:
                file = await self._rest(url, file, have, write)
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = text_of(error)
            now = await pool.run(landing.begun, file)
            if now == file.size:
                await pool.run(landing.land, file)
                return
            failures = 0 if now > have else failures + 1
            if failures == TRIES:
                raise Unreachable(f"{self.url}: {path}: {reason}")
            await asyncio.sleep(min(5.0, 0.1 * 2**failures))

    async def _rest(self, url: str, file: Incoming, have: int, write: Write) -> Incoming:
        """Ask for what is missing of a file and write it; the file as it is now, which may be another than was listed."""
        if have == file.size:
            if have == 0:
                await write(file, 0, b"")
            return file
        headers = {"Range": f"bytes={have}-", "If-Range": file.etag} if have else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=CALL_S)
        async with self._session.get(url, headers=headers, timeout=timeout) as answer:
            await check(answer)
            if answer.status != 206:
                have = 0
                size, etag = answer.content_length, answer.headers.get("ETag", file.etag)
                if size is None:
                    raise Conflict(f"{url}: the answer does not say its size")
                file = replace(file, size=size, etag=etag)
            async for chunk in answer.content.iter_chunked(2**18):
                await write(file, have, chunk)
                have += len(chunk)
        return file


def _write(landing: Landing, file: Incoming, offset: int, data: bytes) -> None:
    """Put bytes at their place in the part of a file."""
    with landing.part(file, offset) as fd:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
