"""The application: routes, problem documents, probes."""

from __future__ import annotations

from aiohttp import web

from simrun.service.api import logs, probes, runs, why
from simrun.service.api.access import SESSION
from simrun.service.api.origin import LOOPBACK_ONLY, same_origin
from simrun.service.api.problems import problems
from simrun.service.api.routing import add_operations
from simrun.service.api.streams import STREAMS, Streams
from simrun.service.session import Session

BODY_MAX = 64 * 2**20
"""Bytes of one request; data belongs into snapshots."""


AGE = "Simrun-Age"
"""Header of answers: seconds since the cluster was last heard of. On a quiet one up to a minute, by its bookmarks."""


GROUPS = (
    runs.operations,
    logs.operations,
    why.operations,
    probes.operations,
)
"""Every operation of the API, by resource."""


def make_app(session: Session, *, loopback_only: bool = True) -> web.Application:
    """Build the application over a session. `loopback_only`: it is served on a loopback address."""
    app = web.Application(middlewares=[same_origin, problems], client_max_size=BODY_MAX)
    app[SESSION] = session
    app[LOOPBACK_ONLY] = loopback_only
    app[STREAMS] = Streams()
    app.on_shutdown.append(_cut_streams)
    app.on_response_prepare.append(_tell_age)
    add_operations(app, GROUPS)
    return app


async def _tell_age(request: web.Request, response: web.StreamResponse) -> None:
    """Say in every answer how old is what it was made from."""
    age = request.app[SESSION].age_s()
    if age is not None:
        response.headers[AGE] = f"{age:.1f}"


async def _cut_streams(app: web.Application) -> None:
    app[STREAMS].cut()
