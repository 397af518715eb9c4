"""Pauses of one schedule, and of all at once."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel

from simrun.model.access import Scope
from simrun.service.api.access import SESSION, principal_of
from simrun.service.api.plan_access import PlanQuery, active_schedule, plan_named
from simrun.service.api.routing import Operations, answer
from simrun.store.pauses import Pause

operations = Operations("schedules")


class PauseState(BaseModel):
    """Whether something is paused, since when and by whom."""

    paused: bool
    at: float | None = None
    by: str = ""


@operations.post(
    "/api/v1/launch-plans/{plan}/pause",
    scope=Scope.RUN,
    query=PlanQuery,
    answer=PauseState,
    problems=(404,),
)
async def pause_schedule(request: web.Request) -> web.StreamResponse:
    """Fire nothing of a schedule until it is resumed. What falls into a pause was not missed."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    await active_schedule(session, group, name)
    by = principal_of(request).name
    return answer(pause_state(await session.schedules.pause(group, name, by=by)))


@operations.post(
    "/api/v1/launch-plans/{plan}/resume",
    scope=Scope.RUN,
    query=PlanQuery,
    answer=PauseState,
    problems=(404,),
)
async def resume_schedule(request: web.Request) -> web.StreamResponse:
    """End the pause of a schedule."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    await active_schedule(session, group, name)
    by = principal_of(request).name
    return answer(pause_state(await session.schedules.resume(group, name, by=by)))


@operations.post("/api/v1/schedules/pause", scope=Scope.ADMIN, answer=PauseState)
async def pause_all_schedules(request: web.Request) -> web.StreamResponse:
    """Fire nothing of any schedule until all are resumed."""
    by = principal_of(request).name
    return answer(pause_state(await request.app[SESSION].schedules.pause_all(by=by)))


@operations.post("/api/v1/schedules/resume", scope=Scope.ADMIN, answer=PauseState)
async def resume_all_schedules(request: web.Request) -> web.StreamResponse:
    """End the pause of all schedules; those that were paused one by one stay so."""
    by = principal_of(request).name
    return answer(pause_state(await request.app[SESSION].schedules.resume_all(by=by)))


def pause_state(pause: Pause | None) -> PauseState:
    """Give a pause as the API tells it; None: there never was one."""
    if pause is None:
        return PauseState(paused=False)
    if pause.paused:
        return PauseState(paused=True, at=pause.at, by=pause.by)
    return PauseState(paused=False, at=pause.resumed_at, by=pause.resumed_by)
