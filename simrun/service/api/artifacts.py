"""Artifacts of a run: listed, sent with ranges, and all of them as one tar."""

from __future__ import annotations

import itertools
import mimetypes
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiofiles
from aiohttp import hdrs, web
from pydantic import BaseModel, Field

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.problems import problem
from simrun.service.api.routing import BYTES, Operations, Query, answer, query_of
from simrun.service.api.streams import STREAMS
from simrun.service.session import Session
from simrun.store.artifacts import Artifact, artifacts, etag_of, open_artifact
from simrun.store.runs import RunStore
from simrun.store.tarstream import END, file_header, padding

PAGE, PAGE_MAX = 1000, 10_000
CHUNK = 2**18
_AS_IT_IS = ("image/png", "image/jpeg", "image/gif", "image/webp", "text/plain")
"""Shown by a browser; anything else is saved, since what a simulation wrote must not run as a page of this server."""

operations = Operations("artifacts")


class ArtifactQuery(Query):
    """Which artifacts are listed."""

    task: str | None = None
    prefix: str = ""
    """Only those whose path in the task's output begins so."""
    after: str = ""
    """Go on behind this path, as the page before said it."""
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)


class ArtifactPage(BaseModel):
    """Artifacts in the order of their paths, `<task>/<path>`. after: for the next page; None on the last."""

    artifacts: list[Artifact]
    after: str | None


class ArchiveQuery(Query):
    """What goes into an archive."""

    task: str | None = None
    prefix: str = ""


@operations.get(
    "/api/v1/runs/{run}/artifacts",
    scope=Scope.READ,
    query=ArtifactQuery,
    answer=ArtifactPage,
    problems=(404,),
)
async def list_artifacts(request: web.Request) -> web.StreamResponse:
    """List the files that the tasks of a run made. Links, FIFOs and devices are none."""
    session, query = request.app[SESSION], query_of(request, ArtifactQuery)
    record = await run_of(request)
    found = await session.in_pool(
        lambda: list(
            itertools.islice(
                _of_tasks(
                    session.store,
                    record.id,
                    _tasks(list(record.tasks), query.task),
                    query.prefix,
                    query.after,
                ),
                query.limit + 1,
            )
        )
    )
    shown = found[: query.limit]
    after = shown[-1].path if len(found) > query.limit else None
    return answer(ArtifactPage(artifacts=shown, after=after))


def _tasks(known: list[str], wanted: str | None) -> list[str]:
    if wanted is None:
        return sorted(known)
    if wanted not in known:
        raise NotFound(f"no task {wanted!r}; there are {', '.join(known[:20])}")
    return [wanted]


def _of_tasks(
    store: RunStore, run_id: str, tasks: list[str], prefix: str, after: str = ""
) -> Iterator[Artifact]:
    last_task, _, last_path = after.partition("/")
    for task in tasks:
        if task >= last_task:
            behind = last_path if task == last_task else ""
            yield from artifacts(store, run_id, task, prefix=prefix, after=behind)


@operations.get(
    "/api/v1/runs/{run}/artifacts/{path:.+}",
    scope=Scope.READ,
    content_type=BYTES,
    also=(206, 304),
    problems=(404, 416),
    headers={
        "Range": "bytes=FIRST-LAST",
        "If-None-Match": "an entity tag",
        "If-Range": "an entity tag",
    },
)
async def read_artifact(request: web.Request) -> web.StreamResponse:
    """Send an artifact, or a range of it."""
    session = request.app[SESSION]
    record = await run_of(request)
    path = request.match_info["path"]
    async with _opened(session, record.id, path) as file:
        seen = os.fstat(file.fileno())  # of an open file: answered by the kernel
        etag = etag_of(seen)
        headers = _headers(path, etag)
        if any(one.value == etag.strip('"') for one in request.if_none_match or ()):
            return web.Response(status=304, headers={hdrs.ETAG: etag})
        wanted = _range(request, seen.st_size, etag)
        if wanted is None:
            refused = problem(416, "range not satisfiable", f"the file has {seen.st_size} bytes")
            refused.headers[hdrs.CONTENT_RANGE] = f"bytes */{seen.st_size}"
            return refused
        first, count, partial = wanted
        headers[hdrs.CONTENT_LENGTH] = str(count)
        if partial:
            headers[hdrs.CONTENT_RANGE] = f"bytes {first}-{first + count - 1}/{seen.st_size}"
        async with request.app[STREAMS].open(
            request, headers, status=206 if partial else 200
        ) as response:
            if request.method != hdrs.METH_HEAD:
                await file.seek(first)
                async for chunk in _chunks(file, count):
                    await response.write(chunk)
        return response


def _opened(session: Session, run_id: str, path: str) -> Any:
    """Open an artifact in the threads for streams; entering raises NotFound for whatever is none."""

    def opener(_path: str, _flags: int) -> int:
        return open_artifact(session.store, run_id, path)

    executor = session.streams.executor
    return aiofiles.open("artifact", "rb", buffering=0, opener=opener, executor=executor)


def _headers(path: str, etag: str) -> dict[str, str]:
    kind = mimetypes.guess_type(path)[0] or BYTES
    shown = kind in _AS_IT_IS
    return {
        hdrs.CONTENT_TYPE: kind if shown else BYTES,
        hdrs.CONTENT_DISPOSITION: "inline" if shown else "attachment",
        hdrs.ETAG: etag,
        hdrs.ACCEPT_RANGES: "bytes",
        hdrs.CACHE_CONTROL: "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


def _range(request: web.Request, size: int, etag: str) -> tuple[int, int, bool] | None:
    """Give first byte, count, and whether it is a part; None for a range outside of the file.

    What is no single range of bytes, or of another state of the file (If-Range), is answered with the whole.
    """
    unless = request.headers.get(hdrs.IF_RANGE)
    text = request.headers.get(hdrs.RANGE)
    whole = (0, size, False)
    if text is None or (unless is not None and unless != etag):
        return whole
    try:
        wanted = request.http_range
    except ValueError:
        return whole
    start, stop, _ = wanted.indices(size)
    if start >= stop:
        return None
    return start, stop - start, True


async def _chunks(file: Any, count: int) -> AsyncIterator[bytes]:
    """Read exactly `count` bytes. Raises OSError for a file that became shorter: the answer is cut then, not ended."""
    left = count
    while left > 0:
        chunk = await file.read(min(CHUNK, left))
        if not chunk:
            raise OSError("the file became shorter while it was sent")
        left -= len(chunk)
        yield chunk


@operations.get(
    "/api/v1/runs/{run}/archive",
    scope=Scope.READ,
    query=ArchiveQuery,
    content_type="application/x-tar",
    problems=(404,),
)
async def archive(request: web.Request) -> web.StreamResponse:
    """Send the artifacts of a run, or of one task, as a tar."""
    session, query = request.app[SESSION], query_of(request, ArchiveQuery)
    record = await run_of(request)
    tasks = _tasks(list(record.tasks), query.task)
    headers: dict[str, str] = {
        hdrs.CONTENT_TYPE: "application/x-tar",
        hdrs.CONTENT_DISPOSITION: f'attachment; filename="{record.id}.tar"',
    }
    found = _of_tasks(session.store, record.id, tasks, query.prefix)
    async with request.app[STREAMS].open(request, headers) as response:
        if request.method != hdrs.METH_HEAD:
            while (item := await session.in_pool(next, found, None)) is not None:
                await _send_member(session, response, record.id, item)
            await response.write(END)
    return response


async def _send_member(
    session: Session, response: web.StreamResponse, run_id: str, item: Artifact
) -> None:
    try:
        async with _opened(session, run_id, item.path) as file:
            size = os.fstat(file.fileno()).st_size
            await response.write(file_header(item.path, size, item.modified))
            async for chunk in _chunks(file, size):
                await response.write(chunk)
            await response.write(padding(size))
    except NotFound:
        return  # gone since it was listed
