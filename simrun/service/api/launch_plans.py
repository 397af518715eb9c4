"""/api/v1/launch-plans: versions of launch plans, which of them is active, and launches."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from simrun.base.errors import NotFound
from simrun.base.labeltext import label_value
from simrun.model.access import Scope
from simrun.model.base import Model
from simrun.model.faults import dotted
from simrun.model.launchplan import Active, LaunchPlan, PlanHead, instant_text
from simrun.model.wording import invalid
from simrun.model.workflow import Submission
from simrun.scheduler.ports import schedule_key
from simrun.service.api.access import SESSION, Principal, check_group, principal_of
from simrun.service.api.paging import cursor_of, position_of
from simrun.service.api.plan_access import Group, PlanQuery, plan_named
from simrun.service.api.routing import Operations, Query, answer, query_of
from simrun.service.api.runs import check_keys, checked_submission
from simrun.service.api.uploads import received
from simrun.service.attachments import uploaded_attachments
from simrun.service.launchplans import NewPlan, create
from simrun.service.session import Session
from simrun.store.launch_plans import LaunchPlanStore, Overview, PlanPlace
from simrun.store.snapshots import SnapshotStore

PAGE, PAGE_MAX = 100, 500

operations = Operations("launch plans")


class PlansQuery(Query):
    """Which plans are listed."""

    group: Group | None = None
    """Only those of this group."""
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    """How many at most."""
    cursor: str | None = None
    """Where the page before this one ended, as that said."""


class NewVersion(Model):
    """A new version of a launch plan."""

    plan: NewPlan
    submission: Submission


class PlanSummary(BaseModel):
    """A launch plan in a list. trouble: what keeps its schedule from being fired."""

    group: str
    name: str
    versions: int
    """How many there are."""
    version: str
    """The one that is told here: the active one, or the newest where none is active."""
    active: bool
    activated_at: float | None = None
    schedule: str | None = None
    timezone: str | None = None
    next: str | None = None
    paused: bool = False
    trouble: str = ""


class PlanPage(BaseModel):
    """Some launch plans, by group and name, and where to go on; no cursor on the last page."""

    plans: list[PlanSummary]
    cursor: str | None


class PlanDetail(BaseModel):
    """A launch plan with its versions, oldest first. active: the word of active.json."""

    group: str
    name: str
    active: Active | None
    versions: list[PlanHead]


# --- lists and versions --------------------------------------------------------------------------------------------------


@operations.get("/api/v1/launch-plans", scope=Scope.READ, query=PlansQuery, answer=PlanPage)
async def list_launch_plans(request: web.Request) -> web.StreamResponse:
    """List the launch plans that the caller may see."""
    session, query = request.app[SESSION], query_of(request, PlansQuery)
    wanted = query.model_dump(include={"group"})
    after: list[str] = ["", ""]
    if query.cursor is not None:
        after = position_of(query.cursor, wanted, str, str)
    plans, principal = session.schedules.plans, principal_of(request)
    found = await session.in_pool(_page, plans, principal, query, (after[0], after[1]))
    cursor = None
    if len(found) > query.limit:
        last = found[query.limit - 1][0]
        cursor = cursor_of(wanted, [last.group_dir, last.name])
    # Not in the thread: what the scheduler knows is the loop's
    shown = [_summary(session, *overview) for _, overview in found[: query.limit]]
    return answer(PlanPage(plans=shown, cursor=cursor))


def _page(
    plans: LaunchPlanStore, principal: Principal, query: PlansQuery, after: tuple[str, str]
) -> list[tuple[PlanPlace, Overview]]:
    """Give one plan more than the page has (blocking); none of which no version can be read."""
    found: list[tuple[PlanPlace, Overview]] = []
    group_dir = None if query.group is None else label_value(query.group)
    for place in plans.places(group_dir):
        if (place.group_dir, place.name) <= after:
            continue
        overview = plans.overview(place)
        if overview is None or query.group not in (None, overview[0].group):
            continue
        if principal.sees(overview[0].group):
            found.append((place, overview))
            if len(found) > query.limit:
                break
    return found


def _summary(session: Session, head: PlanHead, active: Active | None, versions: int) -> PlanSummary:
    """Give a plan as lists show it."""
    state = session.schedules.scheduler.state(schedule_key(head.group, head.name))
    is_active = active is not None and active.version == head.version
    return PlanSummary(
        group=head.group,
        name=head.name,
        versions=versions,
        version=head.version,
        active=is_active,
        activated_at=active.activated_at if active is not None and is_active else None,
        schedule=None if head.schedule is None else head.schedule.expression,
        timezone=None if head.schedule is None else head.schedule.timezone,
        next=None if state is None or state.next is None else instant_text(state.next),
        paused=bool(state is not None and state.plan.paused),
        trouble="" if state is None else state.plan.trouble,
    )


@operations.post(
    "/api/v1/launch-plans",
    scope=Scope.RUN,
    body=NewVersion,
    uploads=("multipart/form-data",),
    answer=LaunchPlan,
    status=201,
    also=(200,),
    problems=(403, 409, 413, 415, 422),
)
async def create_launch_plan(request: web.Request) -> web.StreamResponse:
    """Make a version: JSON {plan, submission}, or multipart/form-data with parts of these names and files named by their path.

    201 for a new version, 200 for one that exists with the same content.
    """
    session = request.app[SESSION]
    async with received(request, session) as (body, base):
        check_keys(body, NewVersion)
        submission = await session.in_pool(checked_submission, body.get("submission"))
        check_group(request, submission.request.group)
        new = _new_plan(body.get("plan"))
        attachments = await session.in_pool(uploaded_attachments, submission, base)
        made = await session.in_pool(
            create,
            session.schedules.plans,
            SnapshotStore(session.store.layout),
            new,
            submission,
            attachments,
            by=principal_of(request).name,
            now=session.now(),
        )
    return answer(_body(made.plan), status=201 if made.new else 200)


def _new_plan(value: object) -> NewPlan:
    try:
        return NewPlan.model_validate(value)
    except ValidationError as error:
        raise invalid(
            error, model=NewPlan, data=value, field_of=lambda path: dotted(("plan", *path))
        ) from error


def _body(plan: LaunchPlan) -> dict[str, Any]:
    return plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)


@operations.get(
    "/api/v1/launch-plans/{plan}",
    scope=Scope.READ,
    query=PlanQuery,
    answer=PlanDetail,
    problems=(404,),
)
async def show_launch_plan(request: web.Request) -> web.StreamResponse:
    """Give a launch plan: its versions, and which is active."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    heads = await session.in_pool(session.schedules.plans.heads, group, name)
    if not heads:
        raise NotFound(f"no launch plan {name!r} in group {group!r}")
    active = await session.in_pool(session.schedules.plans.active, group, name)
    return answer(PlanDetail(group=group, name=name, active=active, versions=heads))


@operations.get(
    "/api/v1/launch-plans/{plan}/versions/{version}",
    scope=Scope.READ,
    query=PlanQuery,
    answer=LaunchPlan,
    problems=(404,),
)
async def show_launch_plan_version(request: web.Request) -> web.StreamResponse:
    """Give all of a version."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    version = request.match_info["version"]
    return answer(_body(await session.in_pool(session.schedules.plans.read, group, name, version)))


@operations.delete(
    "/api/v1/launch-plans/{plan}/versions/{version}",
    scope=Scope.RUN,
    query=PlanQuery,
    status=204,
    problems=(404, 409),
)
async def delete_launch_plan_version(request: web.Request) -> web.StreamResponse:
    """Delete a version that is not active. Its runs stay, and its name is not used again."""
    (group, name), version = plan_named(request), request.match_info["version"]
    await request.app[SESSION].schedules.delete(group, name, version)
    return web.Response(status=204)
