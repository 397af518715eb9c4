"""Whose launch plan a request means."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator

from simrun.base import ids
from simrun.base.errors import NotFound
from simrun.service.api.access import principal_of
from simrun.service.api.routing import Query


def _group(text: str) -> str:
    if problem := ids.group_problem(text):
        raise ValueError(problem)
    return text


Group = Annotated[str, AfterValidator(_group)]


class PlanQuery(Query):
    """Whose plan is meant: where no group is named that of the caller, if they are in one only, else `default`."""

    group: Group | None = None
    """Whose plan; absent: the group of the caller who is in one only, else `default`."""


def plan_group(request: web.Request, group: str | None) -> str:
    """Give the group of the plan that a request names. Raises NotFound for one that the caller is not in, as if there were no such plan."""
    principal = principal_of(request)
    if group is None:
        group = (
            next(iter(principal.groups or ())) if len(principal.groups or ()) == 1 else "default"
        )
    if not principal.sees(group):
        name = request.match_info["plan"]
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    return group
