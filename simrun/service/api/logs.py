"""/api/v1/runs/{run}/logs: the log of a task or worker, byte for byte, live and after the end from one file."""

from __future__ import annotations

import asyncio

from aiohttp import web

from simrun.base.errors import InvalidInput, NotFound
from simrun.model.record import RunRecord
from simrun.service.api.runs import SESSION
from simrun.service.api.streams import STREAMS
from simrun.service.session import Session
from simrun.store.logs import LogReader, check_logs, logs_of, of_attempt

LOOK_S = 0.5

routes = web.RouteTableDef()


@routes.get("/api/v1/runs/{run}/logs/{task}")
async def task_log(request: web.Request) -> web.StreamResponse:
    """Give the logs of a task's attempts one after the other.

    ?worker=w1, ?attempt=last (a number, last of each worker, or all, which is the default), ?lines=N or ?tail=BYTES of each,
    ?follow=1: what comes too, until the task has ended.
    """
    session, query = request.app[SESSION], request.query
    run_id, task = request.match_info["run"], request.match_info["task"]
    record = await session.record(run_id)
    if task not in record.tasks:
        known = ", ".join(list(record.tasks)[:20])
        raise NotFound(f"run {run_id} has no task {task!r}; it has {known}")
    worker, attempt = query.get("worker"), query.get("attempt", "all")
    lines, size = _number(request, "lines"), _number(request, "tail")
    reader = LogReader(
        session.store, run_id, task, worker=worker, attempt=attempt, lines=lines, size=size
    )
    follow = query.get("follow", "") in ("1", "true")
    if not follow:
        # Looked at before the answer begins: what is no plain file of the run is 404, not half an answer
        await session.in_pool(_check, session, run_id, task, worker, attempt)
    headers = {"Content-Type": "application/octet-stream", "X-Accel-Buffering": "no"}
    async with request.app[STREAMS].open(request, headers) as response:
        while True:
            # Asked before the look, so that what was written before the end is sent
            ended = not follow or _ended(await session.record(run_id), task)
            pieces = reader.read()
            while (item := await session.in_pool(next, pieces, None)) is not None:
                await response.write(item[1])
            if ended:
                return response
            await asyncio.sleep(LOOK_S)


def _ended(record: RunRecord, task: str) -> bool:
    return record.tasks[task].final and not record.pending_logs


def _check(session: Session, run_id: str, task: str, worker: str | None, attempt: str) -> None:
    logs = of_attempt(logs_of(session.store, run_id, task, worker), attempt)
    check_logs(session.store, run_id, task, logs)


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InvalidInput.one(name, "must be a number", value=text)
    return int(text)
