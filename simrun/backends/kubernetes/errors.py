"""What the API server, or something in front of it, may answer instead of what was asked for.

    ApiError
    ├── Refused                 BackendError: asking again changes nothing
    │   ├── NotFound            the object does not exist; said by the API server itself, about this very object
    │   ├── UnknownResource     the server has no such kind of object: a definition is missing, or the address is wrong
    │   ├── Conflict            the object changed since it was read, or a precondition does not hold
    │   │   └── AlreadyExists   the name is taken
    │   ├── Gone                the resourceVersion or the page asked for is too old: list again
    │   ├── Invalid             the object is malformed, or a webhook refuses it
    │   ├── Unauthorized        the credentials are not accepted, fresh ones neither
    │   └── Forbidden           the credentials do not allow this
    └── Unavailable             BackendUnavailable: asking again later is right
        ├── TooManyRequests     the server is overloaded and says when to come back
        ├── ServerFailure       5xx
        ├── Unreachable         no connection, a broken one, or silence
        └── Nonsense            an answer that is not the API's: a proxy's page, half a document

Exceptions of aiohttp and kubernetes_asyncio end in `session` and `access`; nothing else of the backend sees them. `NotFound` is narrow
on purpose: "the workflow does not exist" ends a run, so a proxy's 404 page or a missing definition must never read like it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from simrun.base.errors import BackendError, BackendUnavailable, SimrunError

JsonObject = dict[str, Any]


class ApiError(SimrunError):
    """Raised when a request did not give what was asked for.

    status: of HTTP, None without an answer. reason: the API's machine-readable word, such as AlreadyExists. after: seconds
    to wait before trying again, when the server named them.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.after = after


class Refused(ApiError, BackendError):  # noqa: N818 - reads as what it is, like the tree of simrun.base.errors
    """Raised when the server understood and said no; asking again changes nothing."""


class NotFound(Refused):
    """Raised when the API server says that this very object does not exist."""


class UnknownResource(Refused):
    """Raised when the server has no such kind of object, or the address is none of an API server."""


class Conflict(Refused):
    """Raised when an object changed since it was read, or is not the one that was meant."""


class AlreadyExists(Conflict):
    """Raised when the name of a new object is taken."""


class Gone(Refused):
    """Raised when a resourceVersion, or the token of a page, is older than what the server remembers."""


class Invalid(Refused):
    """Raised when an object is malformed or a webhook refuses it."""


class Unauthorized(Refused):
    """Raised when the credentials are not accepted, after they were read anew."""


class Forbidden(Refused):
    """Raised when the credentials do not allow what was asked."""


class Unavailable(ApiError, BackendUnavailable):  # noqa: N818
    """Raised when there is no usable answer now; asking again later is right."""


class TooManyRequests(Unavailable):
    """Raised when the server is overloaded; `after` says when to come back."""


class ServerFailure(Unavailable):
    """Raised when the server, or a proxy in front of it, failed."""


class Unreachable(Unavailable):
    """Raised when there is no connection, it broke, or it went silent."""


class Nonsense(Unavailable):
    """Raised when an answer is not the API's."""


_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_of(
    what: str, status: int, body: bytes, after: str | None = None, sent: str | None = None
) -> ApiError:
    """Make the error of an answer that is no success.

    `what`: the request in words; `after`, `sent`: the headers Retry-After and Date.
    """
    after = _until(after, sent)
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        return _foreign_error(what, status, body, after)
    return status_error(what, document, status=status, after=after)


def status_error(
    what: str, document: Mapping[str, Any], *, status: int | None = None, after: str | None = None
) -> ApiError:
    """Make the error of a `Status` object, which is also what an ERROR event of a watch carries."""
    code = document.get("code")
    number = code if isinstance(code, int) else status or 500
    reason = str(document.get("reason") or "")
    details = document.get("details") or {}
    message = f"{what}: {document.get('message') or reason or f'HTTP {number}'}"
    seconds = _seconds(after)
    if seconds is None and isinstance(details, dict):
        seconds = _seconds(details.get("retryAfterSeconds"))
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(number)
    if number == 404:
        named = isinstance(details, dict) and bool(details.get("name"))
        kind = NotFound if reason == "NotFound" and named else UnknownResource
    if kind is None:
        kind = ServerFailure if number >= 500 else Refused
    return kind(message, status=number, reason=reason, after=seconds)


def _foreign_error(what: str, status: int, body: bytes, after: str | None) -> ApiError:
    """The error of an answer that the API did not write, or wrote as bare text."""
    start = " ".join(body[:200].decode("utf-8", "replace").split())
    message = f"{what}: HTTP {status}: {start}" if start else f"{what}: HTTP {status}"
    if status == 404:
        remedy = "no such resource: are Argo Workflows and Kueue installed, is this an API server?"
        return UnknownResource(f"{message} ({remedy})", status=status)
    if status in (401, 403, 429):
        return _BY_STATUS[status](message, status=status, after=_seconds(after))
    if status >= 500:
        return ServerFailure(message, status=status, after=_seconds(after))
    return Nonsense(message, status=status)


def _until(after: str | None, sent: str | None) -> str | None:
    """Give Retry-After in seconds where it is a date, as proxies may write it: from the date of the answer, on the clock that wrote both."""
    try:
        until, since = parsedate_to_datetime(after or ""), parsedate_to_datetime(sent or "")
        return str((until - since).total_seconds())
    except (ValueError, TypeError):  # no date, or one that leaves open in which zone
        return after


def _seconds(value: object) -> float | None:
    """Retry-After in seconds; None for what can't be meant."""
    if isinstance(value, int | float | str):
        try:
            number = float(value)
        except ValueError:
            return None
        return number if 0 <= number < 3600 else None
    return None
