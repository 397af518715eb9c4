"""/api/v1/launch-plans/{plan}: which version is active, and launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from aiohttp import web
from pydantic import Field

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.model.base import Model
from simrun.model.launchplan import Active, Settings
from simrun.model.record import RunRecord
from simrun.model.workflow import Labels, Short
from simrun.scheduler.launch_plans import launch_submission
from simrun.service.api.access import SESSION, principal_of
from simrun.service.api.plan_access import PlanQuery, plan_named
from simrun.service.api.routing import Operations, answer, body_of
from simrun.service.api.runs import run_body
from simrun.service.attachments import uploaded_attachments

operations = Operations("launch plans")


class Launch(Model):
    """How a plan is launched: settings over its defaults. Without `version` the active one."""

    version: str | None = None
    settings: Settings = {}
    name: Short = ""
    labels: Labels = {}
    id: Annotated[str, Field(min_length=1)] | None = None
    """The id that the run is to have."""


@operations.post(
    "/api/v1/launch-plans/{plan}/versions/{version}/activate",
    scope=Scope.RUN,
    query=PlanQuery,
    answer=Active,
    problems=(404, 409, 422),
)
async def activate_launch_plan(request: web.Request) -> web.StreamResponse:
    """Make a version the active one, whose schedule is fired. One that is active already keeps the time of its activation."""
    (group, name), version = plan_named(request), request.match_info["version"]
    by = principal_of(request).name
    return answer(await request.app[SESSION].schedules.activate(group, name, version, by=by))


@operations.post(
    "/api/v1/launch-plans/{plan}/deactivate",
    scope=Scope.RUN,
    query=PlanQuery,
    answer=Active,
    problems=(404,),
)
async def deactivate_launch_plan(request: web.Request) -> web.StreamResponse:
    """Let no version be active: nothing more is fired. Runs that were begun go on."""
    group, name = plan_named(request)
    by = principal_of(request).name
    return answer(await request.app[SESSION].schedules.deactivate(group, name, by=by))


@operations.post(
    "/api/v1/launch-plans/{plan}/launch",
    scope=Scope.RUN,
    query=PlanQuery,
    body=Launch,
    body_required=False,
    answer=RunRecord,
    status=201,
    problems=(404, 409, 415, 422),
)
async def launch_launch_plan(request: web.Request) -> web.StreamResponse:
    """Run a plan now: its active version, or another."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    wanted: Launch = await body_of(request, Launch, required=False)
    plans = session.schedules.plans
    version = wanted.version
    if version is None:
        active = await session.in_pool(plans.active, group, name)
        version = None if active is None else active.version
        if version is None:
            raise NotFound(
                f"launch plan {name!r} of group {group!r} has no active version; activate one, or name a version"
            )
    plan = await session.in_pool(plans.read, group, name, version)
    submission = await session.in_pool(
        launch_submission,
        plan,
        wanted.settings,
        name=wanted.name,
        owner=principal_of(request).name,
        labels=wanted.labels,
    )
    found = await session.in_pool(uploaded_attachments, submission, plans.files_of(plan))
    attachments = [replace(item, ours=False) for item in found]
    run_id = await session.submit(submission, attachments, wanted.id)
    return answer(
        run_body(await session.record(run_id)),
        status=201,
        headers={"Location": f"/api/v1/runs/{run_id}"},
    )
