"""Artifacts of a run: listed, sent with ranges, and all of them as one tar."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator

from aiohttp import hdrs, web
from pydantic import BaseModel, Field

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.routing import BYTES, Operations, Query, answer, query_of
from simrun.service.api.sending import RANGE_HEADERS, chunks, opened, send_file
from simrun.service.api.streams import STREAMS
from simrun.service.session import Session
from simrun.store.artifacts import Artifact, artifacts, open_artifact
from simrun.store.runs import RunStore
from simrun.store.tarstream import END, file_header, padding

PAGE, PAGE_MAX = 1000, 10_000

operations = Operations("artifacts")


class ArtifactQuery(Query):
    """Which artifacts are listed."""

    task: str | None = None
    """Only those of this task."""
    prefix: str = ""
    """Only those whose path in the task's output begins so."""
    after: str = ""
    """Go on behind this path, as the page before said it."""
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    """How many at most."""


class ArtifactPage(BaseModel):
    """Artifacts in the order of their paths, `<task>/<path>`. after: for the next page; None on the last."""

    artifacts: list[Artifact]
    after: str | None


class ArchiveQuery(Query):
    """What goes into an archive."""

    task: str | None = None
    """Only artifacts of this task."""
    prefix: str = ""
    """Only those whose path in the task's output begins so."""


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
    headers=RANGE_HEADERS,
)
async def read_artifact(request: web.Request) -> web.StreamResponse:
    """Send an artifact, or a range of it."""
    session = request.app[SESSION]
    record = await run_of(request)
    path = request.match_info["path"]
    opener = functools.partial(open_artifact, session.store, record.id, path)
    return await send_file(request, opener, name=path)


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
            while (item := await session.streams.run(next, found, None)) is not None:
                await _send_member(session, response, record.id, item)
            await response.write(END)
    return response


async def _send_member(
    session: Session, response: web.StreamResponse, run_id: str, item: Artifact
) -> None:
    try:
        opener = functools.partial(open_artifact, session.store, run_id, item.path)
        async with opened(session, opener) as file:
            size = os.fstat(file.fileno()).st_size
            await response.write(file_header(item.path, size, item.modified))
            async for chunk in chunks(file, size):
                await response.write(chunk)
            await response.write(padding(size))
    except NotFound:
        return  # gone since it was listed
