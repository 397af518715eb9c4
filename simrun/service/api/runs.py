"""/api/v1/runs: submit, list, look, cancel, retry, and the stream of a run's changes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from simrun.base import ids
from simrun.base.errors import InvalidInput, NotFound, Problem
from simrun.model.access import Scope
from simrun.model.base import Model
from simrun.model.faults import dotted
from simrun.model.record import RunRecord, RunState
from simrun.model.tasktype import TaskType
from simrun.model.validate import check
from simrun.model.wording import invalid
from simrun.model.workflow import Submission, Workflow
from simrun.service.api.access import SESSION, Principal, check_group, principal_of, run_of
from simrun.service.api.routing import (
    BadQuery,
    Operations,
    Query,
    answer,
    query_of,
)
from simrun.service.api.uploads import received
from simrun.service.attachments import uploaded_attachments
from simrun.service.progress import RunProgress
from simrun.service.session import Session

IDEMPOTENCY_KEY = "Idempotency-Key"
KEY_MAX = 255


operations = Operations("runs")


class CancelQuery(Query):
    """How a run is cancelled."""

    now: bool = False
    """Kill its workers without their grace."""


class NewRun(Model):
    """What is submitted."""

    submission: Submission
    id: str | None = None
    """The id of the run; a new one where it is absent."""


class _Parts(BaseModel):
    workflow: Workflow
    types: dict[str, TaskType]


def run_body(record: RunRecord) -> dict[str, Any]:
    """Give a run as the API tells it."""
    return record.model_dump(mode="json", exclude={"epoch", "attempt_base", "fingerprint"})


@operations.post(
    "/api/v1/runs",
    scope=Scope.RUN,
    body=NewRun,
    uploads=("multipart/form-data",),
    answer=RunRecord,
    status=201,
    also=(200,),
    problems=(403, 409, 410, 413, 415, 422),
    headers={IDEMPOTENCY_KEY: "the same key with the same submission is the same run"},
)
async def submit(request: web.Request) -> web.StreamResponse:
    """Submit: JSON {submission, id?}, or multipart/form-data with a part `submission` and files named by their path.

    201 for a new run, 200 for one that exists with the same submission.
    """
    session = request.app[SESSION]
    async with received(request, session) as (body, base):
        check_keys(body, NewRun)
        submission = await session.in_pool(checked_submission, body.get("submission"))
        submission = _owned(submission, principal_of(request))
        group = check_group(request, submission.request.group)
        run_id = _wanted_id(request, body.get("id"), group)
        known = await _state(session, run_id) if run_id else None
        attachments = await session.in_pool(uploaded_attachments, submission, base)
        run_id = await session.submit(submission, attachments, run_id)
    record = await session.record(run_id)
    return answer(
        run_body(record),
        status=200 if known else 201,
        headers={"Location": f"/api/v1/runs/{run_id}"},
    )


def check_keys(body: Mapping[str, Any], kind: type[BaseModel]) -> None:
    """Raise InvalidInput for parts of a body that are no fields of its kind."""
    known = " and ".join(kind.model_fields)
    if problems := [
        Problem(name, "is not known here", remedy=f"known are {known}")
        for name in sorted(body.keys() - kind.model_fields)
    ]:
        raise InvalidInput(problems)


def _owned(submission: Submission, principal: Principal) -> Submission:
    """Give a submission as that of whoever makes it, where that is known; whatever it says itself."""
    if not principal.name:
        return submission
    request = submission.request.model_copy(update={"owner": principal.name})
    return submission.model_copy(update={"request": request})


def _wanted_id(request: web.Request, given: object, group: str) -> str | None:
    """Give the id that a submission is to have: its own, or the one that its idempotency key stands for. Raises InvalidInput."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if given is not None and not isinstance(given, str):
        raise InvalidInput.one("id", "must be text", value=given)
    if (
        given == ""
    ):  # a mistake of whoever asks, who would have to look for the run under another id
        remedy = "give it one, or leave it out for a new one"
        raise InvalidInput.one("id", "must not be empty", value=given, remedy=remedy)
    if key is None:
        return given
    if not key or len(key) > KEY_MAX:
        raise BadQuery.one(IDEMPOTENCY_KEY, f"must have 1 to {KEY_MAX} characters", value=key[:50])
    if given is not None:
        raise InvalidInput.one(
            "id", f"must not be given beside {IDEMPOTENCY_KEY}, which stands for an id", value=given
        )
    return ids.keyed_run_id(group, key)


def checked_submission(value: object) -> Submission:
    """Give a submission whose tasks and types fit together. Raises InvalidInput with all that is wrong."""
    if value is None:
        remedy = 'send {"submission": {…}}, or a part of that name'
        raise InvalidInput.one("submission", "is missing", remedy=remedy)
    try:
        submission = Submission.model_validate(value)
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            parts = _Parts.model_validate(value)
            check(
                parts.workflow, parts.types
            )  # what of tasks and types does not fit is told better there
        raise invalid(
            error,
            model=Submission,
            data=value,
            field_of=lambda path: dotted(path) or "submission",
        ) from error
    check(submission.workflow, submission.types)
    return submission


async def _state(session: Session, run_id: str) -> RunState | None:
    with contextlib.suppress(NotFound):
        return (await session.record(run_id)).state
    return None


@operations.get("/api/v1/runs/{run}", scope=Scope.READ, answer=RunRecord, problems=(404,))
async def show(request: web.Request) -> web.StreamResponse:
    """Give the record of a run."""
    return answer(run_body(await run_of(request)))


@operations.delete("/api/v1/runs/{run}", scope=Scope.RUN, status=204, problems=(404, 409))
async def delete(request: web.Request) -> web.StreamResponse:
    """Remove an ended run with all its files; its id is not used again."""
    record = await run_of(request)
    await request.app[SESSION].delete(record.id)
    return web.Response(status=204)


@operations.get(
    "/api/v1/runs/{run}/submission", scope=Scope.READ, answer=Submission, problems=(404,)
)
async def show_submission(request: web.Request) -> web.StreamResponse:
    """Give what was submitted as a run: workflow, types and request."""
    record = await run_of(request)
    found = await request.app[SESSION].submission(record.id)
    return answer(found.model_dump(mode="json", by_alias=True, exclude_defaults=True))


@operations.get(
    "/api/v1/runs/{run}/progress", scope=Scope.READ, answer=RunProgress, problems=(404,)
)
async def progress(request: web.Request) -> web.StreamResponse:
    """Give how far a run is."""
    record = await run_of(request)
    return answer(await request.app[SESSION].progress(record.id))


@operations.post(
    "/api/v1/runs/{run}/cancel",
    scope=Scope.RUN,
    query=CancelQuery,
    answer=RunRecord,
    problems=(404, 409),
)
async def cancel(request: web.Request) -> web.StreamResponse:
    """Cancel a run; one that has ended is told as it is."""
    session, query = request.app[SESSION], query_of(request, CancelQuery)
    record = await run_of(request)
    await session.cancel(record.id, kill=query.now)
    return answer(run_body(await session.record(record.id)))


@operations.post(
    "/api/v1/runs/{run}/retry", scope=Scope.RUN, answer=RunRecord, status=202, problems=(404, 409)
)
async def retry(request: web.Request) -> web.StreamResponse:
    """Start the next round of an ended run."""
    session, record = request.app[SESSION], await run_of(request)
    return answer(run_body(await session.retry(record.id)), status=202)
