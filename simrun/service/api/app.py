"""The application: routes, problem documents, probes."""

from __future__ import annotations

from aiohttp import web

from simrun.service.api import logs, runs
from simrun.service.api.problems import problems
from simrun.service.api.runs import SESSION
from simrun.service.session import Session

BODY_MAX = 64 * 2**20
"""Bytes of one request; data belongs into snapshots."""


def make_app(session: Session) -> web.Application:
    """Build the application over a session."""
    app = web.Application(middlewares=[problems], client_max_size=BODY_MAX)
    app[SESSION] = session
    app.add_routes(runs.routes)
    app.add_routes(logs.routes)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


async def healthz(_request: web.Request) -> web.Response:
    """Say that the event loop turns."""
    return web.json_response({"status": "ok"})


async def readyz(request: web.Request) -> web.Response:
    """Say whether runs are followed, and why not."""
    reasons = request.app[SESSION].not_ready()
    body = {"status": "ok" if not reasons else "not ready", "reasons": reasons}
    return web.json_response(body, status=200 if not reasons else 503)
