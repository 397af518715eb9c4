"""Errors as problem documents (RFC 9457): what is wrong, with which field and value, and what to do."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from pydantic import BaseModel, ValidationError

from simrun.base import errors
from simrun.service.api.routing import BadQuery, Handler

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    """One thing that is wrong with what was sent."""

    field: str = ""
    message: str
    value: str | None = None
    remedy: str | None = None
    place: str | None = None


class ProblemDocument(BaseModel):
    """Why a request was refused or failed (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    errors: list[FieldProblem] = []


_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.NotFound, 404, "not found"),
    (BadHttpMessage, 400, "bad request"),
    (errors.Unauthorized, 401, "unauthorized"),
    (errors.Forbidden, 403, "forbidden"),
    (errors.Exhausted, 429, "too much at once"),
    (errors.Gone, 410, "gone"),
    (errors.Conflict, 409, "conflict"),
    (errors.Locked, 409, "held by another process"),
    (errors.BackendUnavailable, 503, "the backend can't be reached now"),
    (errors.BackendError, 502, "the backend refused"),
    (errors.DamagedRecord, 500, "a record can't be read"),
    (errors.SimrunError, 500, "error"),
    (TimeoutError, 503, "the store does not answer now"),
    (OSError, 503, "the store does not answer now"),
)


GONE = 499
"""Status, in logs and metrics, of a request whose sender did not wait for the answer."""


def problem(status: int, title: str, detail: str = "", **more: Any) -> web.Response:
    """Make a problem document as a response."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return web.Response(
        status=status,
        text=json.dumps({key: value for key, value in body.items() if value not in ("", None)}),
        content_type=CONTENT_TYPE,
    )


def of_exception(error: Exception) -> web.Response | None:
    """Give the problem document of an expected error; None for one that is a bug."""
    if isinstance(error, ValidationError):
        found = [
            {"field": ".".join(map(str, item["loc"])), "message": item["msg"]}
            for item in error.errors()
        ]
        return problem(422, "invalid input", f"{len(found)} problems", errors=found)
    if isinstance(error, errors.InvalidInput):
        listed = [
            {
                key: value
                for key, value in (
                    ("field", item.field),
                    ("message", item.message),
                    ("value", item.value),
                    ("remedy", item.remedy),
                    ("place", item.place),
                )
                if value
            }
            for item in error.problems
        ]
        if isinstance(error, BadQuery):
            return problem(400, "bad request", str(error), errors=listed)
        return problem(422, "invalid input", str(error), errors=listed)
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            text = _one_line(error) if isinstance(error, BadHttpMessage) else str(error)
            return _with_headers(problem(status, title, text), error)
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).removeprefix("400, message:").split())[:200]


def _with_headers(answer: web.Response, error: Exception) -> web.Response:
    if isinstance(error, errors.Unauthorized):
        answer.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, errors.Exhausted) and error.retry_after_s is not None:
        answer.headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    return answer


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into a problem document; a bug is logged with its trace and told as 500 without it."""
    try:
        return await handler(request)
    except web.RequestPayloadError as error:
        # Not what it says it is: its length, its chunks or its compression
        return problem(400, "bad request", f"the body can't be read: {_one_line(error)}")
    except ConnectionError:
        if request.transport is not None and not request.transport.is_closing():
            raise
        return problem(GONE, "client closed request")  # nobody is left to read it
    except web.HTTPException as error:
        if error.status < 400:
            raise
        detail = error.text if error.text and not error.text.startswith(f"{error.status}") else ""
        answer = problem(error.status, error.reason.lower(), detail or "")
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception as error:
        answer_or_none = of_exception(error)
        if answer_or_none is None:
            log.exception("%s %s failed", request.method, request.path)
            return problem(500, "internal error", "this is a bug in simrun; its log has the trace")
        return answer_or_none
