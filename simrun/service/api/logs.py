"""/api/v1/runs/{run}/logs: the log of a task or worker, byte for byte, live and after the end from one file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiofiles
from aiohttp import web

from simrun.base.errors import InvalidInput, NotFound
from simrun.service.api.runs import SESSION
from simrun.service.logs import log_files
from simrun.service.session import Session
from simrun.store.files import open_beneath

CHUNK = 2**16
LOOK_S = 0.5

routes = web.RouteTableDef()


@routes.get("/api/v1/runs/{run}/logs/{task}")
async def task_log(request: web.Request) -> web.StreamResponse:
    """Give the logs of a task's attempts one after the other: ?worker=w1&tail=BYTES&follow=1 (follow: the newest attempt)."""
    session, run_id, task = (
        request.app[SESSION],
        request.match_info["run"],
        request.match_info["task"],
    )
    record = await session.record(run_id)
    if task not in record.tasks:
        raise NotFound(
            f"run {run_id} has no task {task!r}; it has {', '.join(list(record.tasks)[:20])}"
        )
    tail = _tail(request)
    follow = request.query.get("follow", "") in ("1", "true")
    found = await session.in_pool(
        log_files, session.store, run_id, task, request.query.get("worker")
    )
    response = web.StreamResponse(
        headers={"Content-Type": "application/octet-stream", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    if follow:
        worker = request.query.get("worker")
        await _follow(session, response, run_id, task, worker=worker, tail=tail)
    else:
        for path in found:
            await _copy(session, response, run_id, path, tail)
    return response


def _tail(request: web.Request) -> int | None:
    text = request.query.get("tail")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidInput.one("tail", "must be a number of bytes", value=text)
    return int(text)


async def _copy(
    session: Session, response: web.StreamResponse, run_id: str, path: Path, tail: int | None
) -> int:
    """Send a log from where its last `tail` bytes begin; the offset that was reached."""
    root = session.store.layout.run(run_id).root
    fd = await session.in_pool(open_beneath, root, *path.relative_to(root).parts)
    size = os.fstat(fd).st_size
    start = max(0, size - tail) if tail is not None else 0
    return await _send_from(response, fd, start)


async def _send_from(response: web.StreamResponse, fd: int, start: int) -> int:
    async with aiofiles.open(fd, "rb") as file:
        await file.seek(start)
        offset = start
        while chunk := await file.read(CHUNK):
            await response.write(chunk)
            offset += len(chunk)
    return offset


async def _follow(
    session: Session,
    response: web.StreamResponse,
    run_id: str,
    task: str,
    *,
    worker: str | None,
    tail: int | None,
) -> None:
    """Send what is there and what comes, attempt after attempt, until the task has ended."""
    root = session.store.layout.run(run_id).root
    offsets: dict[Path, int] = {}
    while True:
        # Asked before the look, so that what was written before the end is sent
        record = await session.record(run_id)
        ended = record.tasks[task].final and not record.pending_logs
        for path in await session.in_pool(log_files, session.store, run_id, task, worker):
            fd = await session.in_pool(open_beneath, root, *path.relative_to(root).parts)
            size = os.fstat(fd).st_size
            start = offsets.get(path, max(0, size - tail) if tail is not None else 0)
            offsets[path] = await _send_from(response, fd, start)
        if ended:
            return
        await asyncio.sleep(LOOK_S)
