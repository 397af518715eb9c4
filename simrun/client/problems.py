"""Errors of the API: a problem document becomes the error that the service raised."""

from __future__ import annotations

import contextlib
import os
from email.utils import parsedate_to_datetime

import aiohttp

from simrun.base import errors
from simrun.base.errors import Problem, Unreachable

_KINDS: dict[int, type[errors.SimrunError]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    429: errors.Exhausted,
    503: errors.BackendUnavailable,
}


async def check(answer: aiohttp.ClientResponse) -> None:
    """Raise the error that a problem document stands for; Unreachable where what answers is no simrun."""
    if answer.status < 400:
        return
    try:
        body = await answer.json(content_type=None)
        title = body.get("title") or answer.reason
        detail = str(body.get("detail") or f"{answer.method} {answer.url.path}: {title}")
    except (ValueError, AttributeError):
        raise Unreachable(f"{answer.url}: answered {answer.status} {answer.reason}") from None
    if answer.status in (400, 422):
        found = [
            Problem(
                item.get("field", ""),
                item.get("message", ""),
                item.get("value"),
                item.get("remedy"),
                item.get("place"),
            )
            for item in body.get("errors", [])
        ]
        raise errors.InvalidInput(found or [Problem("", detail)])
    if answer.status == 429:
        raise errors.Exhausted(detail, retry_after_s=retry_after_s(answer))
    raise _KINDS.get(answer.status, errors.SimrunError)(detail)


def retry_after_s(answer: aiohttp.ClientResponse) -> float | None:
    """Give the seconds that an answer asks to wait; None where it does not say. A date counts from that of the answer: one clock for both."""
    text = answer.headers.get("Retry-After", "")
    with contextlib.suppress(ValueError):
        return max(0.0, float(text))
    with contextlib.suppress(ValueError):
        then, now = (parsedate_to_datetime(date) for date in (text, answer.headers.get("Date", "")))
        return max(0.0, (then - now).total_seconds())
    return None


def text_of(error: BaseException) -> str:
    """Say why there was no answer."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        number = error.os_error.errno
        # Of a name that is not known the number is none of the system's
        return f"can't connect: {os.strerror(number) if number > 0 else error.os_error.strerror}"
    return str(error) or type(error).__name__
