"""/api/v1/runs/{run}/logs: the log of a task or worker, byte for byte, live and after the end from one file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re

from aiohttp import web
from pydantic import BaseModel, Field, field_validator

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.model.record import RunRecord
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.routing import BYTES, Operations, Query, answer, query_of
from simrun.service.api.sending import RANGE_HEADERS, send_file
from simrun.service.api.streams import STREAMS
from simrun.service.api.tasks import task_of
from simrun.service.session import Session
from simrun.store.logs import LogReader, check_logs, logs_of, of_attempt, open_log
from simrun.store.runs import RunStore

LOOK_S = 0.5

operations = Operations("logs")

ATTEMPT = re.compile(r"^(all|last|[0-9]{1,6})$")


class LogQuery(Query):
    """What of a log is wanted."""

    worker: str | None = None
    """`w1`, say; all workers where it is absent."""
    attempt: str = Field(default="all", json_schema_extra={"pattern": ATTEMPT.pattern})
    """A number, `last` of each worker, or `all`."""
    lines: int | None = Field(default=None, ge=0)
    """Only so many last lines of each."""
    tail: int | None = Field(default=None, ge=0)
    """Only so many last bytes of each."""
    follow: bool = False
    """Go on with what comes, until the task has ended."""

    @field_validator("attempt")
    @classmethod
    def _attempt(cls, value: str) -> str:
        if not ATTEMPT.fullmatch(value):
            raise ValueError("must be a number, last or all")
        return value


class LogFile(BaseModel):
    """The log of one attempt. size in bytes, as it is now."""

    task: str
    worker: str
    attempt: int
    size: int


class LogList(BaseModel):
    """The logs of a run by task, worker and attempt."""

    logs: list[LogFile]


@operations.get("/api/v1/runs/{run}/logs", scope=Scope.READ, answer=LogList, problems=(404,))
async def list_logs(request: web.Request) -> web.StreamResponse:
    """List the logs of a run."""
    session, record = request.app[SESSION], await run_of(request)
    return answer(LogList(logs=await session.in_pool(_listed, session.store, record)))


def _listed(store: RunStore, record: RunRecord) -> list[LogFile]:
    found = []
    for task in record.tasks:
        for log in logs_of(store, record.id, task):
            with contextlib.suppress(NotFound):  # a link or a device where a log should be
                fd = open_log(store, record.id, task, log)
                size = os.fstat(fd).st_size
                os.close(fd)
                found.append(LogFile(task=task, worker=log.worker, attempt=log.attempt, size=size))
    return found


@operations.get(
    "/api/v1/runs/{run}/logs/{task}/{worker}/{attempt}",
    scope=Scope.READ,
    content_type=BYTES,
    also=(206, 304),
    problems=(404, 416),
    headers=RANGE_HEADERS,
)
async def attempt_log(request: web.Request) -> web.StreamResponse:
    """Send the log of one attempt as it is now, or a range of it."""
    session, record = request.app[SESSION], await run_of(request)
    task = task_of(request, record)
    worker, attempt = request.match_info["worker"], request.match_info["attempt"]

    def opener() -> int:
        for log in logs_of(session.store, record.id, task):
            if (log.worker, str(log.attempt)) == (worker, attempt):
                return open_log(session.store, record.id, task, log)
        raise NotFound(f"no log of attempt {attempt!r} of {worker!r} of task {task!r}")

    return await send_file(request, opener, name=f"{worker}-{attempt}.log")


@operations.get(
    "/api/v1/runs/{run}/logs/{task}",
    scope=Scope.READ,
    query=LogQuery,
    content_type=BYTES,
    problems=(404,),
)
async def task_log(request: web.Request) -> web.StreamResponse:
    """Give the logs of a task's attempts one after the other.

    ?worker=w1, ?attempt=last (a number, last of each worker, or all, which is the default), ?lines=N or ?tail=BYTES of each,
    ?follow=1: what comes too, until the task has ended.
    """
    session, query = request.app[SESSION], query_of(request, LogQuery)
    record = await run_of(request)
    run_id, task = record.id, task_of(request, record)
    worker, attempt = query.worker, query.attempt
    lines, size, follow = query.lines, query.tail, query.follow
    reader = LogReader(
        session.store, run_id, task, worker=worker, attempt=attempt, lines=lines, size=size
    )
    if not follow:
        # Looked at before the answer begins: what is no plain file of the run is 404, not half an answer
        await session.in_pool(_check, session, run_id, task, worker, attempt)
    headers = {"Content-Type": "application/octet-stream", "X-Accel-Buffering": "no"}
    async with request.app[STREAMS].open(request, headers) as response:
        while True:
            # Asked before the look, so that what was written before the end is sent
            ended = not follow or _ended(await session.record(run_id), task)
            pieces = reader.read()
            while (item := await session.streams.run(next, pieces, None)) is not None:
                await response.write(item[1])
            if ended:
                return response
            await asyncio.sleep(LOOK_S)


def _ended(record: RunRecord, task: str) -> bool:
    return record.tasks[task].final and not record.pending_logs


def _check(session: Session, run_id: str, task: str, worker: str | None, attempt: str) -> None:
    logs = of_attempt(logs_of(session.store, run_id, task, worker), attempt)
    check_logs(session.store, run_id, task, logs)
