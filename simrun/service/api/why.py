"""/api/v1/runs/{run}/why: what a run waits for."""

from __future__ import annotations

from aiohttp import web

from simrun.model.access import Scope
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.routing import Operations, answer
from simrun.service.why import RunWhy

operations = Operations("runs")


@operations.get("/api/v1/runs/{run}/why", scope=Scope.READ, answer=RunWhy, problems=(404,))
async def why(request: web.Request) -> web.StreamResponse:
    """Say what a run waits for, task by task, and what to do about it."""
    record = await run_of(request)
    return answer(await request.app[SESSION].why(record.id))
