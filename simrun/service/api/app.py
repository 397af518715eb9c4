"""The application: routes, problem documents, probes."""

from __future__ import annotations

import asyncio

from aiohttp import web

from simrun.aio.lag import LagProbe
from simrun.service.api import (
    artifacts,
    events,
    launch_plans,
    launches,
    logs,
    metrics,
    openapi,
    pauses,
    plan_diff,
    probes,
    report,
    resources,
    runlist,
    runs,
    schedules,
    snapshots,
    tasks,
    tickets,
    why,
)
from simrun.service.api.access import AUTHENTICATOR, SESSION, TICKETS, TOKENS, authenticate, limited
from simrun.service.api.connections import CONNECTIONS, Connections
from simrun.service.api.observing import HTTP, number, observe
from simrun.service.api.origin import LOOPBACK_ONLY, same_origin
from simrun.service.api.problems import problems
from simrun.service.api.routing import EVENT_STREAM, OPERATIONS, add_operations
from simrun.service.api.streams import STREAMS, Streams
from simrun.service.auth import Tickets, Tokens
from simrun.service.httptally import HttpTally
from simrun.service.review import Authenticator
from simrun.service.session import Session

BODY_MAX = 64 * 2**20
"""Bytes of one request; data belongs into snapshots."""


AGE = "Simrun-Age"
"""Header of answers: seconds since the cluster was last heard of. On a quiet one up to a minute, by its bookmarks."""


GROUPS = (
    runs.operations,
    runlist.operations,
    events.operations,
    tasks.operations,
    logs.operations,
    artifacts.operations,
    why.operations,
    report.operations,
    resources.operations,
    snapshots.operations,
    launch_plans.operations,
    launches.operations,
    plan_diff.operations,
    schedules.operations,
    pauses.operations,
    tickets.operations,
    probes.operations,
    metrics.operations,
    openapi.operations,
)
"""Every operation of the API, by resource."""


def make_app(
    session: Session,
    *,
    loopback_only: bool = True,
    tokens: Tokens | None = None,
    lag: LagProbe | None = None,
) -> web.Application:
    """Build the application over a session.

    `loopback_only`: it is served on a loopback address. Without `tokens` everybody who reaches it may do everything.
    """
    app = web.Application(
        middlewares=[observe, problems, same_origin, authenticate, limited],
        client_max_size=BODY_MAX,
    )
    app[SESSION] = session
    if tokens is not None:
        app[TOKENS] = tokens
        app[AUTHENTICATOR] = Authenticator(tokens, session.review)
    app[TICKETS] = Tickets()
    # A page that points its own name at this machine has no token
    app[LOOPBACK_ONLY] = loopback_only and tokens is None
    app[STREAMS] = Streams()
    app[CONNECTIONS] = Connections()
    app[snapshots.WORK] = asyncio.Semaphore(snapshots.AT_ONCE)
    app.on_shutdown.append(_close_streams)
    app.on_response_prepare.append(_tell_age)
    app.on_response_prepare.append(number)
    add_operations(app, GROUPS)
    found = app[OPERATIONS].values()
    streams = [one.path for one in found if one.content_type == EVENT_STREAM]
    app[HTTP] = HttpTally([(one.method, one.path) for one in found], streams)
    if lag is not None:
        app[metrics.LAG] = lag
    app[openapi.DESCRIPTION] = openapi.Description(app[OPERATIONS].values())
    return app


def withdraw(app: web.Application) -> None:
    """End what was begun with tokens that may be no longer good; whoever has a good one connects again."""
    app[TICKETS].withdraw()
    app[STREAMS].cut()


async def _tell_age(request: web.Request, response: web.StreamResponse) -> None:
    """Say in every answer how old is what it was made from."""
    age = request.app[SESSION].age_s()
    if age is not None:
        response.headers[AGE] = f"{age:.1f}"


async def _close_streams(app: web.Application) -> None:
    app[STREAMS].close()
