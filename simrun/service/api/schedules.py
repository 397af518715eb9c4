"""/api/v1/launch-plans/{plan}/schedule and /api/v1/schedules: when plans run, what became of it, pauses and backfills."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web
from pydantic import BaseModel, Field

from simrun.base.errors import Conflict, DamagedRecord, InvalidInput, NotFound
from simrun.model.access import Scope
from simrun.model.launchplan import Instant, LaunchPlan, instant_of, instant_text
from simrun.scheduler.cron import CronError, check_date, parse
from simrun.scheduler.launch_plans import check_plan
from simrun.scheduler.ports import ActiveSchedule, schedule_key
from simrun.scheduler.statistics import SchedulerStatistics
from simrun.service.api.access import SESSION
from simrun.service.api.pauses import PauseState, pause_state
from simrun.service.api.plan_access import PlanQuery, active_schedule, plan_named
from simrun.service.api.routing import BadQuery, Operations, Query, answer, body_of, query_of
from simrun.service.backfill import BackfillPage, BackfillRequest, backfill
from simrun.service.schedule_view import (
    ScheduleView,
    open_failures,
    past,
    skipped_times,
    upcoming,
    waiting_of,
)
from simrun.service.session import Session
from simrun.store.pauses import ALL

SHOWN_MAX = 100
COUNT_MAX = 1000

operations = Operations("schedules")


class ScheduleQuery(PlanQuery):
    """How much of a schedule is shown: instants to come, and instants that were."""

    next: int = Field(default=5, ge=0, le=SHOWN_MAX)
    """How many instants to come."""
    last: int = Field(default=5, ge=0, le=SHOWN_MAX)
    """How many that were."""


class PreviewQuery(Query):
    """A schedule that need not exist."""

    expression: str
    """A cron expression, a short form such as `@daily`, or `@every` with a duration."""
    timezone: str | None = None
    """An IANA name; UTC where it is absent."""
    after: Instant | None = None
    """The instants after this one; now where it is absent."""
    count: int = Field(default=5, ge=1, le=COUNT_MAX)
    """How many instants."""


class Preview(BaseModel):
    """When a schedule would fire."""

    expression: str
    description: str
    timezone: str | None
    instants: list[str]


class SchedulesState(BaseModel):
    """The scheduler as a whole. live: its start is over, and what was missed is made up for."""

    running: bool
    live: bool
    last_tick: float
    schedules: int
    paused: int
    unfit: int
    catching_up: int
    backlog: int
    retrying: int
    created: int
    exists: int
    failed: int
    all_paused: PauseState


@operations.get(
    "/api/v1/launch-plans/{plan}/schedule",
    scope=Scope.READ,
    query=ScheduleQuery,
    answer=ScheduleView,
    problems=(404,),
)
async def show_schedule(request: web.Request) -> web.StreamResponse:
    """Say when a plan runs next, and what became of the last instants."""
    session, query = request.app[SESSION], query_of(request, ScheduleQuery)
    group, name = plan_named(request, query)
    plan = await active_schedule(session, group, name)
    if plan is None:
        return answer(await _inactive(session, group, name))
    return answer(await _view(session, plan, query))


async def _inactive(session: Session, group: str, name: str) -> ScheduleView:
    view = ScheduleView(group=group, name=name, version=None, active=False)
    history = session.schedules.scheduler.history(schedule_key(group, name))
    if history is not None:
        failures = await session.in_pool(open_failures, session.store, history)
        update = {
            "counts": history.totals,
            "failures": failures,
            "losses": list(history.losses),
        }
        view = view.model_copy(update=update)
    return view


async def _view(session: Session, plan: ActiveSchedule, query: ScheduleQuery) -> ScheduleView:
    schedules, now = session.schedules, instant_of(session.now())
    state = schedules.scheduler.state(plan.key)
    if state is not None and not state.plan.same_activation(plan):
        state = None
    trouble = plan.trouble or (state.plan.trouble if state is not None else "")
    if not trouble:
        trouble = await session.in_pool(_trouble, session, plan)
    history = state.history if state is not None else schedules.scheduler.history(plan.key)
    view = ScheduleView(
        group=plan.group,
        name=plan.name,
        version=plan.version,
        active=True,
        since=instant_text(plan.since),
        schedule=plan.schedule,
        description=plan.timetable.describe() if plan.timetable is not None else "",
        paused=plan.paused,
        trouble=trouble,
        next=await session.in_pool(upcoming, plan, now, query.next),
        last=await session.in_pool(past, session.store, plan, state, now, query.last),
    )
    told = [
        datetime.fromisoformat(text) for text in (*view.next, *(one.instant for one in view.last))
    ]
    update: dict[str, object] = {}
    if told:
        begin, end = min(*told, now), max(*told, now)
        update["skipped"] = await session.in_pool(skipped_times, plan, begin, end)
    if state is not None:
        update |= {"catching_up": state.catching_up, "backlog": state.backlog}
        update["waiting"] = waiting_of(plan, state, schedules.monotonic())
    if history is not None:
        update |= {"counts": history.totals, "losses": list(history.losses)}
        update["failures"] = await session.in_pool(open_failures, session.store, history)
    return view.model_copy(update=update)


def _trouble(session: Session, plan: ActiveSchedule) -> str:
    """Say why the active version can't be run, before an instant finds out (blocking)."""
    try:
        version: LaunchPlan = session.schedules.plans.read(plan.group, plan.name, plan.version)
        check_plan(version)
    except (NotFound, DamagedRecord, InvalidInput) as error:
        return f"version {plan.version} can't be run: {error}; activate a good version"
    return ""


# --- the past and what is to come ------------------------------------------------------------------------------------------


@operations.post(
    "/api/v1/launch-plans/{plan}/backfill",
    scope=Scope.RUN,
    query=PlanQuery,
    body=BackfillRequest,
    answer=BackfillPage,
    problems=(404, 409, 415, 422),
)
async def backfill_schedule(request: web.Request) -> web.StreamResponse:
    """Give instants of the past their runs, a page at a time; those that have theirs stay as they are."""
    session, (group, name) = request.app[SESSION], plan_named(request)
    wanted: BackfillRequest = await body_of(request, BackfillRequest)
    plan = await active_schedule(session, group, name)
    if plan is None:
        raise Conflict(f"launch plan {name} has no active schedule; activate a version with one")
    now = instant_of(session.now())
    return answer(await backfill(session.schedules.runs, plan, wanted, now))


@operations.get("/api/v1/schedules", scope=Scope.READ, answer=SchedulesState)
async def show_schedules(request: web.Request) -> web.StreamResponse:
    """Say how the scheduler does as a whole."""
    session = request.app[SESSION]
    numbers: SchedulerStatistics = session.schedules.statistics
    pause = await session.in_pool(session.schedules.pauses.get, ALL)
    given = {
        name: getattr(numbers, name)
        for name in SchedulesState.model_fields
        if name not in ("running", "all_paused")
    }
    return answer(
        SchedulesState(running=session.schedules.running, all_paused=pause_state(pause), **given)
    )


@operations.get("/api/v1/schedules/preview", scope=Scope.READ, query=PreviewQuery, answer=Preview)
async def preview_schedule(request: web.Request) -> web.StreamResponse:
    """Say when an expression would fire, without making anything."""
    session, query = request.app[SESSION], query_of(request, PreviewQuery)
    after: datetime = query.after or instant_of(session.now())
    try:
        return answer(await session.in_pool(_preview, query, after))
    except CronError as error:
        raise BadQuery(error.problems) from error


def _preview(query: PreviewQuery, after: datetime) -> Preview:
    timetable = parse(query.expression, query.timezone)
    check_date(timetable)
    found: list[str] = []
    for instant in timetable.instants(after):
        found.append(instant_text(instant))
        if len(found) == query.count:
            break
    return Preview(
        expression=query.expression,
        description=timetable.describe(),
        timezone=query.timezone,
        instants=found,
    )
