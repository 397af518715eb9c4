"""/api/v1/runs/{run}/why: what a run waits for."""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from simrun.service.api.runs import SESSION

routes = web.RouteTableDef()


@routes.get("/api/v1/runs/{run}/why")
async def why(request: web.Request) -> web.Response:
    """Say what a run waits for, task by task, and what to do about it."""
    found = await request.app[SESSION].why(request.match_info["run"])
    return web.json_response(asdict(found))
