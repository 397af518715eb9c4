"""Whose launch plan a request means."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator

from simrun.base import ids
from simrun.base.errors import NotFound
from simrun.base.labeltext import label_value
from simrun.scheduler.ports import ActiveSchedule
from simrun.service.api.access import principal_of
from simrun.service.api.routing import Query, query_of
from simrun.service.session import Session


def _group(text: str) -> str:
    if problem := ids.group_problem(text):
        raise ValueError(problem)
    return text


Group = Annotated[str, AfterValidator(_group)]


class PlanQuery(Query):
    """Whose plan is meant: where no group is named that of the caller, if they are in one only, else `default`."""

    group: Group | None = None
    """Whose plan; absent: the group of the caller who is in one only, else `default`."""


def plan_named(request: web.Request, query: PlanQuery | None = None) -> tuple[str, str]:
    """Give group and name of the plan that a request names. `query`: what stands behind its `?`, where more does than the group.

    Raises NotFound for a group that the caller is not in, as if there were no such plan.
    """
    group = (query or query_of(request, PlanQuery)).group
    principal, name = principal_of(request), request.match_info["plan"]
    if group is None:
        group = (
            next(iter(principal.groups or ())) if len(principal.groups or ()) == 1 else "default"
        )
    if not principal.sees(group):
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    return group, name


async def active_schedule(session: Session, group: str, name: str) -> ActiveSchedule | None:
    """Give the schedule of the active version; None when none is active or it has no schedule. Raises NotFound."""
    versions = await session.in_pool(session.schedules.plans.versions, group, name)
    if not versions:
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    plan = await session.schedules.look(group, name)
    if plan is not None and plan.group not in (group, label_value(group)):
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    return plan
