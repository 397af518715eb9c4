"""Who asks, and what they may see: a group sees its own runs, plans and snapshots, and of others not even that they exist."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from aiohttp import web

from simrun.base.errors import Forbidden, NotFound
from simrun.model.access import Scope
from simrun.model.record import RunRecord
from simrun.service.session import Session

SESSION = web.AppKey("session", Session)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever made a request. groups: whose things they may see and use; None: everybody's."""

    name: str
    scope: Scope
    groups: frozenset[str] | None

    def sees(self, group: str) -> bool:
        """Whether things of a group are there for this caller."""
        return self.groups is None or group in self.groups

    @property
    def only(self) -> frozenset[str] | None:
        """The groups to which lists are held; None for all."""
        return self.groups


ANYBODY = Principal("", Scope.ADMIN, None)
"""Who may reach a server without tokens, which listens on loopback only, may do everything."""

PRINCIPAL = web.RequestKey("principal", Principal)


def principal_of(request: web.Request) -> Principal:
    """Give who asks."""
    principal: Principal = request.get(PRINCIPAL, ANYBODY)
    return principal


async def run_of(request: web.Request) -> RunRecord:
    """Give the record of the run that the path names. Raises NotFound, also for one of a group that the caller is not in."""
    run_id = request.match_info["run"]
    with contextlib.suppress(NotFound):
        record = await request.app[SESSION].record(run_id)
        if principal_of(request).sees(record.group):
            return record
    raise NotFound(f"no run {run_id!r}")


def check_group(request: web.Request, group: str) -> str:
    """Give a group in which the caller may make something. Raises Forbidden with the groups they are in."""
    principal = principal_of(request)
    if not principal.sees(group):
        own = ", ".join(sorted(principal.groups or ())) or "none"
        raise Forbidden(
            f"{principal.name} may not use group {group!r}, only {own}; name one of these with --group"
        )
    return group
