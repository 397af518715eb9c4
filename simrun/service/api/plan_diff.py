"""/api/v1/launch-plans/{plan}/diff: how two versions of a plan differ."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from pydantic import BaseModel

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.scheduler.differences import differences
from simrun.service.api.access import SESSION
from simrun.service.api.plan_access import PlanQuery, plan_named
from simrun.service.api.routing import BadQuery, Operations, answer, query_of
from simrun.store.launch_plans import LaunchPlanStore

operations = Operations("launch plans")


class DiffQuery(PlanQuery):
    """Which two versions are compared; the active one, or else the newest, with the one before it where nothing is said."""

    before: str | None = None
    """The one that differences start from."""
    after: str | None = None
    """The one that they lead to."""


class Place(BaseModel):
    """A place at which two versions differ. only: `before` or `after`, where the other has nothing there."""

    path: str
    before: Any = None
    after: Any = None
    only: str | None = None


class Diff(BaseModel):
    """How two versions differ."""

    before: str
    after: str
    differences: list[Place]


@operations.get(
    "/api/v1/launch-plans/{plan}/diff",
    scope=Scope.READ,
    query=DiffQuery,
    answer=Diff,
    problems=(404,),
)
async def diff_launch_plan(request: web.Request) -> web.StreamResponse:
    """Say how two versions differ."""
    session, query = request.app[SESSION], query_of(request, DiffQuery)
    group, name = plan_named(request, query)
    plans = session.schedules.plans
    return answer(await session.in_pool(_diff, plans, group, name, query.before, query.after))


def _diff(
    plans: LaunchPlanStore, group: str, name: str, before: str | None, after: str | None
) -> Diff:
    """Compare two versions (blocking). Raises NotFound, BadQuery where there is none before the one that is meant."""
    versions = [head.version for head in plans.heads(group, name)]
    if not versions:
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    active = plans.active(group, name)
    after = after or (active.version if active is not None else None) or versions[-1]
    earlier = versions[: versions.index(after)] if after in versions else []
    before = before or (earlier[-1] if earlier else None)
    if before is None:
        raise BadQuery.one("before", "must name a version: there is none before this", value=after)
    found = differences(plans.read(group, name, before), plans.read(group, name, after))
    places = [
        Place(path=item.path, before=item.before, after=item.after, only=item.only)
        for item in found
    ]
    return Diff(before=before, after=after, differences=places)
