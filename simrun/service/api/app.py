"""The application: routes, problem documents, probes."""

from __future__ import annotations

import os
import socket
from importlib.metadata import version

from aiohttp import web

from simrun.service.api import logs, runs, why
from simrun.service.api.origin import LOOPBACK_ONLY, same_origin
from simrun.service.api.problems import problems
from simrun.service.api.runs import SESSION
from simrun.service.api.streams import STREAMS, Streams
from simrun.service.session import Session

BODY_MAX = 64 * 2**20
"""Bytes of one request; data belongs into snapshots."""


AGE = "Simrun-Age"
"""Header of answers: seconds since the cluster was last heard of. On a quiet one up to a minute, by its bookmarks."""


def make_app(session: Session, *, loopback_only: bool = True) -> web.Application:
    """Build the application over a session. `loopback_only`: it is served on a loopback address."""
    app = web.Application(middlewares=[same_origin, problems], client_max_size=BODY_MAX)
    app[SESSION] = session
    app[LOOPBACK_ONLY] = loopback_only
    app[STREAMS] = Streams()
    app.on_shutdown.append(_cut_streams)
    app.on_response_prepare.append(_tell_age)
    app.add_routes(runs.routes)
    app.add_routes(logs.routes)
    app.add_routes(why.routes)
    app.router.add_get("/api/v1/server", server)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


async def _tell_age(request: web.Request, response: web.StreamResponse) -> None:
    """Say in every answer how old is what it was made from."""
    age = request.app[SESSION].age_s()
    if age is not None:
        response.headers[AGE] = f"{age:.1f}"


async def _cut_streams(app: web.Application) -> None:
    app[STREAMS].cut()


async def server(request: web.Request) -> web.Response:
    """Say which simrun this is: so that who found the address in the lock of a store knows that it is that store's."""
    return web.json_response(
        {
            "simrun": version("simrun"),
            "store": str(request.app[SESSION].store.layout.root),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
    )


async def healthz(_request: web.Request) -> web.Response:
    """Say that the event loop turns."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """Say whether runs are followed, and why not."""
    reasons = await request.app[SESSION].not_ready()
    body = {"status": "ok" if not reasons else "not ready", "reasons": reasons}
    return web.json_response(body, status=200 if not reasons else 503)
