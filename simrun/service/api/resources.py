"""What is known beside runs: task types, what their attempts used, and the queues."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel, Field

from simrun.backends.base import QueueState
from simrun.base.errors import DamagedRecord, NotFound
from simrun.model.access import Scope
from simrun.model.report import Observation
from simrun.service.api.access import SESSION, Principal, principal_of
from simrun.service.api.routing import Operations, Query, answer, query_of
from simrun.store.resources import HISTORY, ResourceStore
from simrun.store.runs import RunStore

operations = Operations("resources")


class QueueList(BaseModel):
    """The queues that pods wait in."""

    queues: list[QueueState]


class TypeUse(BaseModel):
    """What attempts of a task type used: bytes, seconds; over the newest observations."""

    type: str
    observations: int
    oom: int
    """How many of them were killed for memory."""
    peak_memory: int | None
    """Highest of those that were not."""
    given_memory: int
    """What the newest was given."""
    cpu_s: float | None
    wall_s: float | None
    """Medians."""


class TypeList(BaseModel):
    """Task types of which something was observed."""

    types: list[TypeUse]


class ObservationQuery(Query):
    """Which observations are listed."""

    type: str
    """Of this task type."""
    limit: int = Field(default=HISTORY, ge=1, le=HISTORY)
    """How many at most."""


class ObservationList(BaseModel):
    """Observations of a type, oldest first."""

    observations: list[Observation]


@operations.get("/api/v1/queues", scope=Scope.READ, answer=QueueList, problems=(502,))
async def list_queues(request: web.Request) -> web.StreamResponse:
    """Give the queues that pods are admitted through, their quota and what is in use of it."""
    return answer(QueueList(queues=await request.app[SESSION].queues()))


@operations.get("/api/v1/types", scope=Scope.READ, answer=TypeList)
async def list_types(request: web.Request) -> web.StreamResponse:
    """Give what attempts of each task type used, so far as observations of runs that the caller may see tell."""
    session = request.app[SESSION]
    store, principal = session.store, principal_of(request)
    return answer(TypeList(types=await session.in_pool(types_seen, store, principal)))


@operations.get(
    "/api/v1/observations", scope=Scope.READ, query=ObservationQuery, answer=ObservationList
)
async def list_observations(request: web.Request) -> web.StreamResponse:
    """List what single attempts of a task type used against what they were given."""
    session, query = request.app[SESSION], query_of(request, ObservationQuery)
    found = await session.in_pool(
        _observations, session.store, principal_of(request), query.type, query.limit
    )
    return answer(ObservationList(observations=found))


def types_seen(store: RunStore, principal: Principal) -> list[TypeUse]:
    """Sum up the observations of each type that a caller may see (blocking)."""
    found = []
    for name in ResourceStore(store.layout.root).types():
        seen = _observations(store, principal, name, HISTORY)
        if seen:
            found.append(_use(name, seen))
    return found


def _observations(
    store: RunStore, principal: Principal, name: str, limit: int
) -> list[Observation]:
    found = ResourceStore(store.layout.root).of_type(name, limit)
    if principal.groups is None:
        return found
    visible: dict[str, bool] = {}
    for one in found:
        if one.run not in visible:
            try:
                visible[one.run] = principal.sees(store.read(one.run).group)
            except (NotFound, DamagedRecord):
                visible[one.run] = False  # nobody knows any more whose it was
    return [one for one in found if visible[one.run]]


def _use(name: str, seen: list[Observation]) -> TypeUse:
    return TypeUse(
        type=name,
        observations=len(seen),
        oom=sum(one.oom for one in seen),
        peak_memory=max(
            (one.peak_memory for one in seen if one.peak_memory and not one.oom), default=None
        ),
        given_memory=seen[-1].given_memory,
        cpu_s=_median([one.cpu_s for one in seen if one.cpu_s is not None]),
        wall_s=_median([one.wall_s for one in seen if one.wall_s is not None]),
    )


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None
