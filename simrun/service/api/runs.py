"""/api/v1/runs: submit, list, look, cancel, retry, and the stream of a run's changes."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from simrun.base.errors import InvalidInput, NotFound
from simrun.model.record import RunRecord, RunState
from simrun.model.tasktype import TaskType
from simrun.model.validate import check
from simrun.model.workflow import Submission, Workflow
from simrun.service.api.streams import STREAMS
from simrun.service.api.uploads import received
from simrun.service.attachments import uploaded_attachments
from simrun.service.progress import RunProgress
from simrun.service.session import Session

SESSION = web.AppKey("session", Session)
PING_S = 15.0
"""Longest silence of a stream: proxies cut idle connections, most after 60 s."""
PAGE = 50
PAGE_MAX = 500

routes = web.RouteTableDef()


class _Parts(BaseModel):
    workflow: Workflow
    types: dict[str, TaskType]


def run_body(record: RunRecord) -> dict[str, Any]:
    """Give a run as the API tells it."""
    return record.model_dump(mode="json", exclude={"epoch", "attempt_base", "fingerprint"})


def progress_body(progress: RunProgress) -> dict[str, Any]:
    """Give how far a run is as the API tells it."""
    return asdict(progress)


@routes.post("/api/v1/runs")
async def submit(request: web.Request) -> web.Response:
    """Submit: JSON {submission, id?}, or multipart/form-data with a part `submission` and files named by their path.

    201 for a new run, 200 for one that exists with the same submission.
    """
    session = request.app[SESSION]
    async with received(request, session) as (body, base):
        submission = await session.in_pool(_submission, body.get("submission"))
        run_id = body.get("id")
        if run_id is not None and not isinstance(run_id, str):
            raise InvalidInput.one("id", "must be text", value=run_id)
        known = await _state(session, run_id) if run_id else None
        attachments = await session.in_pool(uploaded_attachments, submission, base)
        run_id = await session.submit(submission, attachments, run_id)
    record = await session.record(run_id)
    return web.json_response(
        run_body(record),
        status=200 if known else 201,
        headers={"Location": f"/api/v1/runs/{run_id}"},
    )


def _submission(value: object) -> Submission:
    """Give a submission whose tasks and types fit together. Raises InvalidInput, ValidationError with all that is wrong."""
    try:
        submission = Submission.model_validate(value)
    except ValidationError:
        with contextlib.suppress(ValidationError):
            parts = _Parts.model_validate(value)
            check(
                parts.workflow, parts.types
            )  # what of tasks and types does not fit is told better there
        raise
    check(submission.workflow, submission.types)
    return submission


async def _state(session: Session, run_id: str) -> RunState | None:
    with contextlib.suppress(NotFound):
        return (await session.record(run_id)).state
    return None


@routes.get("/api/v1/runs")
async def list_runs(request: web.Request) -> web.Response:
    """List runs, highest id first: ?limit=50&state=running,failed&group=g&cursor=….

    Ids are made so that the newest is the highest, but may be given. ?sort=created: by time, the newest first, without a cursor.
    """
    session = request.app[SESSION]
    limit = _limit(request)
    states = [part for part in request.query.get("state", "").split(",") if part]
    if unknown := [state for state in states if state not in set(RunState)]:
        known = ", ".join(RunState)
        raise InvalidInput.one("state", f"must be of {known}", value=unknown[0])
    sort, before = request.query.get("sort", "id"), request.query.get("cursor") or None
    if sort not in ("id", "created") or (sort == "created" and before is not None):
        raise InvalidInput.one("sort", "must be id, or created without a cursor", value=sort)
    rows = await session.rows(
        limit=limit + 1,
        before=before,
        states=states,
        group=request.query.get("group"),
        by_time=sort == "created",
    )
    more = len(rows) > limit and sort == "id"
    return web.json_response(
        {
            "runs": [asdict(row) for row in rows[:limit]],
            "cursor": rows[limit - 1].id if more else None,
        }
    )


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(PAGE))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PAGE_MAX:
        raise InvalidInput.one("limit", f"must be a number from 1 to {PAGE_MAX}", value=text)
    return int(text)


@routes.get("/api/v1/runs/{run}")
async def show(request: web.Request) -> web.Response:
    """Give the record of a run."""
    return web.json_response(run_body(await request.app[SESSION].record(request.match_info["run"])))


@routes.get("/api/v1/runs/{run}/progress")
async def progress(request: web.Request) -> web.Response:
    """Give how far a run is."""
    found = await request.app[SESSION].progress(request.match_info["run"])
    return web.json_response(progress_body(found))


@routes.post("/api/v1/runs/{run}/cancel")
async def cancel(request: web.Request) -> web.Response:
    """Cancel a run; one that has ended is told as it is. ?now=1: its workers are killed without their grace."""
    session, run_id = request.app[SESSION], request.match_info["run"]
    await session.cancel(run_id, kill=request.query.get("now", "") in ("1", "true"))
    return web.json_response(run_body(await session.record(run_id)))


@routes.post("/api/v1/runs/{run}/retry")
async def retry(request: web.Request) -> web.Response:
    """Start the next round of an ended run."""
    session, run_id = request.app[SESSION], request.match_info["run"]
    return web.json_response(run_body(await session.retry(run_id)), status=202)


@routes.get("/api/v1/runs/{run}/events")
async def events(request: web.Request) -> web.StreamResponse:
    """Stream how far a run is: a snapshot at once, each change, a comment at the latest each 15 s, `end` at its end."""
    session, run_id = request.app[SESSION], request.match_info["run"]
    await session.record(run_id)  # 404 before the stream begins
    headers = {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        "X-Accel-Buffering": "no",
    }
    last: RunProgress | None = None
    async with request.app[STREAMS].open(request, headers) as response:
        while True:
            try:
                item = await session.next_update(run_id, last, PING_S)
            except TimeoutError:
                await response.write(b": ping\n\n")
                continue
            if item is None:
                break
            last = item
            data = json.dumps(progress_body(item), separators=(",", ":"))
            await response.write(f"event: run\ndata: {data}\n\n".encode())
        await response.write(b"event: end\ndata: {}\n\n")
    return response
