"""/metrics, for Prometheus."""

from __future__ import annotations

from aiohttp import hdrs, web

from simrun.aio.lag import LagProbe
from simrun.base.errors import BackendUnavailable
from simrun.model.access import Scope
from simrun.service.api.access import SESSION, TOKENS
from simrun.service.api.observing import HTTP
from simrun.service.api.routing import Operations
from simrun.service.metrics import Snapshot, exposed, families

LAG = web.AppKey("lag", LagProbe)
"""Missing where the loop is not measured."""

operations = Operations("service")


@operations.get("/metrics", scope=Scope.READ, content_type="text/plain")
async def metrics(request: web.Request) -> web.StreamResponse:
    """Give all metrics. A token without a group is enough: they tell of no run, task, group or person."""
    app = request.app
    session, lag, tokens = app[SESSION], app.get(LAG), app.get(TOKENS)
    try:
        runs: dict[str, int] | None = await session.counts()
    except BackendUnavailable:
        runs = None
    found = families(
        Snapshot(
            session=session.statistics(),
            http=app[HTTP],
            lag=None if lag is None else lag.lateness,
            ready=not await session.not_ready(),
            runs=runs,
            schedules=session.schedules.statistics,
            refusals=session.limits.refusals,
            token_failures=0 if tokens is None else tokens.failures,
        )
    )
    accept = request.headers.get(hdrs.ACCEPT, "")
    text, content_type = await session.in_index(exposed, found, accept)
    return web.Response(body=text, headers={hdrs.CONTENT_TYPE: content_type})
