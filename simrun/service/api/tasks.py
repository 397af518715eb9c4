"""Tasks of a run, their attempts and their units."""

from __future__ import annotations

from aiohttp import web
from pydantic import BaseModel, Field

from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, TaskState
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.service.api.access import SESSION, run_of
from simrun.service.api.routing import Operations, Query, answer, query_of
from simrun.service.progress import TaskProgress
from simrun.store.runs import RunStore
from simrun.store.unitlist import UnitRow, UnitState, list_units

UNITS_PAGE, UNITS_MAX = 100, 1000

operations = Operations("tasks")


class TaskBody(BaseModel):
    """A task of a run. plan: None before it was planned."""

    task: str
    type: str
    state: TaskState
    plan: TaskPlan | None
    progress: TaskProgress
    needs: list[str]
    """Tasks that it waits for."""


class TaskList(BaseModel):
    """The tasks of a run, in the order of the workflow."""

    tasks: list[TaskBody]


class AttemptBody(BaseModel):
    """An attempt: what the service saw of it, and what the harness said; either may be missing."""

    worker: str
    attempt: int
    evidence: AttemptEvidence | None = None
    report: WorkerReport | None = None


class AttemptList(BaseModel):
    """Attempts by worker and number. A number appears twice where its pod vanished and was made again."""

    attempts: list[AttemptBody]


class UnitQuery(Query):
    """Which units are listed."""

    state: UnitState | None = None
    """Only those in this state."""
    after: int = Field(default=-1, ge=-1)
    """Go on behind this number."""
    limit: int = Field(default=UNITS_PAGE, ge=1, le=UNITS_MAX)
    """How many at most."""


class UnitPage(BaseModel):
    """Units in the order of their numbers. total: None while nobody knows how many there are."""

    units: list[UnitRow]
    total: int | None
    after: int | None
    """For the next page; None on the last."""


def task_of(request: web.Request, record: RunRecord) -> str:
    """Give the task that the path names. Raises NotFound with those that there are."""
    task = request.match_info["task"]
    if task not in record.tasks:
        known = ", ".join(list(record.tasks)[:20])
        raise NotFound(f"run {record.id} has no task {task!r}; it has {known}")
    return task


@operations.get("/api/v1/runs/{run}/tasks", scope=Scope.READ, answer=TaskList, problems=(404,))
async def list_tasks(request: web.Request) -> web.StreamResponse:
    """List the tasks of a run with plan and progress."""
    return answer(TaskList(tasks=await _tasks(request, await run_of(request))))


@operations.get(
    "/api/v1/runs/{run}/tasks/{task}", scope=Scope.READ, answer=TaskBody, problems=(404,)
)
async def show_task(request: web.Request) -> web.StreamResponse:
    """Give a task with plan and progress."""
    record = await run_of(request)
    task = task_of(request, record)
    return answer(next(one for one in await _tasks(request, record) if one.task == task))


async def _tasks(request: web.Request, record: RunRecord) -> list[TaskBody]:
    session = request.app[SESSION]
    workflow = (await session.submission(record.id)).workflow
    progress = {one.task: one for one in (await session.progress(record.id)).tasks}
    return [
        TaskBody(
            task=name,
            type=task.type,
            state=record.tasks.get(name, TaskState.WAITING),
            plan=record.plans.get(name),
            progress=progress[name],
            needs=task.needs,
        )
        for name, task in workflow.tasks.items()
    ]


@operations.get(
    "/api/v1/runs/{run}/tasks/{task}/attempts",
    scope=Scope.READ,
    answer=AttemptList,
    problems=(404,),
)
async def list_attempts(request: web.Request) -> web.StreamResponse:
    """List the attempts of a task's workers: where and when they ran, how they ended and why, what they used."""
    session, record = request.app[SESSION], await run_of(request)
    task = task_of(request, record)
    return answer(
        AttemptList(attempts=await session.in_pool(_attempts, session.store, record.id, task))
    )


def _attempts(store: RunStore, run_id: str, task: str) -> list[AttemptBody]:
    left = list(store.reports(run_id, task).values())
    found = []
    for evidence in store.evidence(run_id, task):
        # A number may have had two pods, each with a report of its own
        same = [
            one
            for one in left
            if (one.worker, one.attempt) == (evidence.worker, evidence.attempt)
            and evidence.pod_uid in ("", one.pod_uid)
        ]
        report = same[0] if same else None
        if report is not None:
            left.remove(report)
        found.append(
            AttemptBody(
                worker=evidence.worker, attempt=evidence.attempt, evidence=evidence, report=report
            )
        )
    found += [
        AttemptBody(worker=report.worker, attempt=report.attempt, report=report) for report in left
    ]
    return sorted(found, key=lambda one: (len(one.worker), one.worker, one.attempt))


@operations.get(
    "/api/v1/runs/{run}/tasks/{task}/units",
    scope=Scope.READ,
    query=UnitQuery,
    answer=UnitPage,
    problems=(404,),
)
async def show_units(request: web.Request) -> web.StreamResponse:
    """List the units of a split task with parameters, seed, state and who holds them."""
    session, query = request.app[SESSION], query_of(request, UnitQuery)
    record = await run_of(request)
    found = await session.in_pool(
        list_units,
        session.store,
        record.id,
        task_of(request, record),
        state=query.state,
        after=query.after,
        limit=query.limit + 1,
    )
    shown = found.units[: query.limit]
    more = len(found.units) > query.limit
    return answer(UnitPage(units=shown, total=found.total, after=shown[-1].i if more else None))
