"""Who asks, and what they may see: a group sees its own runs, plans and snapshots, and of others not even that they exist."""

from __future__ import annotations

import contextlib

from aiohttp import hdrs, web

from simrun.base.errors import Forbidden, NotFound, Unauthorized
from simrun.model.access import Scope
from simrun.model.record import RunRecord
from simrun.service.api.routing import EVENT_STREAM, Handler, Operation, operation_of
from simrun.service.api.uploads import BODY_MOST
from simrun.service.auth import ANYBODY, NOBODY, Principal, Tickets, Tokens
from simrun.service.review import Authenticator
from simrun.service.session import Session

__all__ = [
    "ANYBODY",
    "AUTHENTICATOR",
    "PRINCIPAL",
    "SESSION",
    "TICKETS",
    "TOKENS",
    "Principal",
    "authenticate",
    "check_group",
    "limited",
    "principal_of",
    "run_of",
]

SESSION = web.AppKey("session", Session)
TOKENS = web.AppKey("tokens", Tokens)
"""Missing where everybody may do everything, which is on loopback only."""
AUTHENTICATOR = web.AppKey("authenticator", Authenticator)
TICKETS = web.AppKey("tickets", Tickets)
PRINCIPAL = web.RequestKey("principal", Principal)
TICKET = "ticket"
"""Key in the query of a stream of events: browsers can't send a header there."""
_TOKEN_MAX = 8192
_OWN_LIMITS = "snapshots"
"""Tag of operations whose bodies have limits of their own."""


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find out who asks, and let through what their token allows.

    What is open to everybody is said by the operation that the router found, never by the text of a path. A route that is no operation is
    for tokens only: whoever adds one can't open it by forgetting.
    """
    operation = operation_of(request)
    if operation is None and request.match_info.http_exception is not None:
        return await handler(request)  # there is no such path or method
    wanted = Scope.READ if operation is None else operation.scope
    by_ticket = _is_stream(operation) and TICKET in request.query
    if by_ticket:
        principal: Principal | None = request.app[TICKETS].redeem(request.query[TICKET])
    else:
        principal = await _bearer(request, wanted)
    if principal is None:
        return await handler(request)
    request[PRINCIPAL] = principal
    if by_ticket:  # it is used up, and no part of the question
        request = request.clone(rel_url=request.rel_url.without_query_params(TICKET))
    if wanted is not None and not principal.scope.allows(wanted):
        raise Forbidden(
            f"{principal.name} has scope {principal.scope}, this needs scope {wanted}: ask for a token that has it"
        )
    return await handler(request)


@web.middleware
async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Hold whoever asks to the limits of their groups: how often, and how much at once. What is open to everybody is not counted."""
    operation = operation_of(request)
    if operation is None or operation.scope is None:
        return await handler(request)
    limits, principal = request.app[SESSION].limits, principal_of(request)
    limits.request(principal)
    most = limits.body_of(principal)
    if most is None or operation.tag == _OWN_LIMITS:
        return await handler(request)
    request[BODY_MOST] = most
    # For a body that does not say beforehand how long it is
    request = request.clone(client_max_size=min(most, request.client_max_size))
    size = request.content_length
    try:
        if size is not None and size > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=size)
        return await handler(request)
    except web.HTTPRequestEntityTooLarge as error:
        limits.refusals["body"] += 1
        has = f"{size} bytes" if size is not None else "more bytes"
        error.text = f"the body has {has}, and {most} are allowed; put data into a snapshot"
        raise


async def _bearer(request: web.Request, wanted: Scope | None) -> Principal | None:
    """Give whose token came in the header; None where no token is needed. Raises Unauthorized."""
    known = request.app.get(AUTHENTICATOR)
    if known is None or wanted is None:
        return None
    found = request.headers.getall(hdrs.AUTHORIZATION, [])
    if not found:
        raise Unauthorized(
            "this server wants a token: set SIMRUN_TOKEN, or send the header `Authorization: Bearer TOKEN`"
        )
    scheme, _, token = found[0].partition(" ")
    if len(found) > 1 or scheme.lower() != "bearer" or not 0 < len(token) <= _TOKEN_MAX:
        raise Unauthorized("the header must be `Authorization: Bearer TOKEN`, once")
    try:
        token.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        raise Unauthorized("the token is no text") from None
    return await known.principal(token.strip())


def _is_stream(operation: Operation | None) -> bool:
    return operation is not None and operation.content_type == EVENT_STREAM


def principal_of(request: web.Request) -> Principal:
    """Give who asks; nobody, who sees nothing, where that was not found out on a server that wants to know."""
    principal: Principal | None = request.get(PRINCIPAL)
    if principal is None:
        return NOBODY if AUTHENTICATOR in request.app else ANYBODY
    return principal


async def run_of(request: web.Request) -> RunRecord:
    """Give the record of the run that the path names. Raises NotFound, also for one of a group that the caller is not in."""
    run_id = request.match_info["run"]
    with contextlib.suppress(NotFound):
        record = await request.app[SESSION].record(run_id)
        if principal_of(request).sees(record.group):
            return record
    raise NotFound(f"no run {run_id!r}")


def check_group(request: web.Request, group: str) -> str:
    """Give a group in which the caller may make something. Raises Forbidden with the groups they are in."""
    principal = principal_of(request)
    if not principal.sees(group):
        own = ", ".join(sorted(principal.groups or ())) or "none"
        raise Forbidden(
            f"{principal.name} may not use group {group!r}, only {own}; name one of these with --group"
        )
    return group
