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
    tail, worker = _tail(request), request.query.get("worker")
    follow = request.query.get("follow", "") in ("1", "true")
    # Opened before the answer begins: what is no plain file of the run is 404, not half an answer
    opened = [] if follow else await session.in_pool(_open_all, session, run_id, task, worker)
    response = web.StreamResponse(
        headers={"Content-Type": "application/octet-stream", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    if follow:
        await _follow(session, response, run_id, task, worker=worker, tail=tail)
    for fd in opened:
        await _send_from(response, fd, _start(fd, tail))
    return response


def _open_all(session: Session, run_id: str, task: str, worker: str | None) -> list[int]:
    """Open the logs of a task (blocking). Raises NotFound for what is no plain file of the run."""
    opened: list[int] = []
    try:
        for path in log_files(session.store, run_id, task, worker):
            opened.append(_open(session, run_id, path))  # noqa: PERF401 - what was opened is closed on failure
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise
    return opened


def _open(session: Session, run_id: str, path: Path) -> int:
    root = session.store.layout.run(run_id).root
    return open_beneath(root, *path.relative_to(root).parts)


def _start(fd: int, tail: int | None) -> int:
    return max(0, os.fstat(fd).st_size - tail) if tail is not None else 0


def _tail(request: web.Request) -> int | None:
    text = request.query.get("tail")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidInput.one("tail", "must be a number of bytes", value=text)
    return int(text)


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
    offsets: dict[Path, int] = {}
    while True:
        # Asked before the look, so that what was written before the end is sent
        record = await session.record(run_id)
        ended = record.tasks[task].final and not record.pending_logs
        for path in await session.in_pool(log_files, session.store, run_id, task, worker):
            try:
                fd = await session.in_pool(_open, session, run_id, path)
            except NotFound:
                continue
            offsets[path] = await _send_from(response, fd, offsets.get(path, _start(fd, tail)))
        if ended:
            return
        await asyncio.sleep(LOOK_S)
