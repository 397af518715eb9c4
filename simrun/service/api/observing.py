"""What is seen of every request: a number that finds it in the log, a line in the log, counts for metrics, and who changed what.

The outermost layer, so that what others refuse is seen too. Neither line has the query, where a ticket may be.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass

from aiohttp import hdrs, web

from simrun.base.logs import bound
from simrun.service.api.access import principal_of
from simrun.service.api.connections import CONNECTIONS
from simrun.service.api.problems import GONE
from simrun.service.api.routing import EVENT_STREAM, Handler, Operation, operation_of
from simrun.service.httptally import OTHER_METHOD, UNKNOWN_ROUTE, HttpTally

ACCESS, AUDIT = "simrun.access", "simrun.audit"
access_log, audit_log = logging.getLogger(ACCESS), logging.getLogger(AUDIT)

HTTP = web.AppKey("http", HttpTally)
REQUEST_ID = "X-Request-Id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = frozenset(["/healthz", "/readyz", "/metrics"])
"""Asked every few seconds by machines: told in the log only when it goes wrong."""


@dataclass(slots=True)
class Seen:
    """What is known of a request while it is answered.

    began_s: seconds until the head of a streamed answer was sent. made: path of what it made.
    """

    ident: str
    since: float
    began_s: float | None = None
    made: str = ""


SEEN = web.RequestKey("seen", Seen)


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Number, count and log a request."""
    given = request.headers.get(REQUEST_ID, "")
    seen = Seen(given if _ID.fullmatch(given) else os.urandom(8).hex(), time.monotonic())
    request[SEEN] = seen
    operation, http = operation_of(request), request.app[HTTP]
    stream = operation is not None and operation.content_type == EVENT_STREAM
    status = GONE
    with bound(request=seen.ident), request.app[CONNECTIONS].busy(request):
        if operation is not None and stream:
            http.streams[operation.path] += 1
        try:
            answer = await handler(request)
            status, seen.made = answer.status, answer.headers.get(hdrs.LOCATION, "")
            return answer
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            if operation is not None and stream:
                http.streams[operation.path] -= 1
            _note(request, operation, seen, status)


async def number(request: web.Request, response: web.StreamResponse) -> None:
    """Tell whoever asked the number of the request; called when an answer begins."""
    seen = request.get(SEEN)
    if seen is not None:
        response.headers[REQUEST_ID] = seen.ident
        seen.began_s = time.monotonic() - seen.since


def _note(request: web.Request, operation: Operation | None, seen: Seen, status: int) -> None:
    seconds = time.monotonic() - seen.since
    method = OTHER_METHOD if operation is None else operation.method
    route = UNKNOWN_ROUTE if operation is None else operation.path
    took = seconds if seen.began_s is None else min(seconds, seen.began_s)
    request.app[HTTP].answered(method, route, status, took)
    quiet = route in _QUIET and status < 400
    who = principal_of(request)
    if access_log.isEnabledFor(logging.INFO) and not quiet:
        fields = {
            "method": request.method,
            "route": route,
            "path": request.rel_url.raw_path[:500],
            "status": status,
            "seconds": round(seconds, 6),
            "who": who.name,
            "remote": request.remote,
        }
        access_log.info("answered", extra=fields)
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        fields = {
            "action": UNKNOWN_ROUTE if operation is None else operation.name,
            "method": request.method,
            "path": seen.made or request.rel_url.raw_path[:500],
            "status": status,
            "who": who.name,
            "scope": str(who.scope),
            "remote": request.remote,
        }
        audit_log.info("changed" if status < 400 else "refused", extra=fields)
