"""What a launch plan must satisfy, and the submissions that its launches and its schedule make of it. Pure.

Whatever is refused here is refused when a version is made, before anybody waits for its first fire. It is asked again at each
activation and each fire: a version that a file of another simrun or a hand has spoilt fires nothing and says why.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from simrun.base import ids
from simrun.base.errors import InvalidInput, Problem
from simrun.model.launchplan import (
    INSTANT_LABEL,
    PLAN_LABEL,
    VERSION_LABEL,
    LaunchPlan,
    Schedule,
    Settings,
    instant_text,
    with_settings,
)
from simrun.model.validate import check, unknown_param
from simrun.model.workflow import Submission, Task, labels_problem
from simrun.scheduler.cron import CronError, Every, Timetable, check_activation, parse
from simrun.scheduler.plan import timetable_of

EXAMPLE_TIME: Final = "2026-01-01T00:00:00Z"
"""What stands for the scheduled time while a plan is checked."""
_INSTANT: Final = timedelta.resolution


def check_plan(plan: LaunchPlan) -> None:
    """Raise InvalidInput with everything that is wrong with a plan."""
    problems = [*_settings_problems(plan, "defaults", plan.defaults)]
    problems += _settings_problems(plan, "fixed", plan.fixed)
    problems += [
        Problem(f"defaults.{task}.{name}", "is fixed too", remedy="keep one of the two")
        for task, params in plan.defaults.items()
        for name in sorted(params.keys() & plan.fixed.get(task, {}).keys())
    ]
    if plan.schedule is not None:
        problems += _schedule_problems(plan, plan.schedule)
    if problems:
        raise InvalidInput(problems)
    check(_workflow(plan, {}, EXAMPLE_TIME), plan.submission.types)


def check_activation_of(plan: LaunchPlan, now: datetime) -> None:
    """Raise InvalidInput when a plan can't be activated: when it is wrong, or its schedule has no instant to come."""
    check_plan(plan)
    if plan.schedule is None:
        return
    first = next_in_window(schedule_timetable(plan.schedule, now), plan.schedule, now)
    if first is None:
        limit = plan.schedule.not_after
        text = "has no instant to come" + (f" up to {instant_text(limit)}" if limit else "")
        raise InvalidInput.one("schedule", text, remedy="set a later not_after")


def schedule_timetable(schedule: Schedule, activated: datetime) -> Timetable:
    """Give the timetable of a schedule that was activated at an instant. Raises CronError."""
    return timetable_of(
        schedule.expression, activated=activated, zone=schedule.timezone, anchor=schedule.anchor
    )


def next_in_window(timetable: Timetable, schedule: Schedule, after: datetime) -> datetime | None:
    """Give the first instant of a schedule after an instant; None when its validity ends before."""
    if schedule.not_before is not None and after < schedule.not_before:
        after = schedule.not_before - _INSTANT
    instant = timetable.next_after(after)
    ended = instant is not None and schedule.not_after and instant > schedule.not_after
    return None if ended else instant


def scheduled_submission(plan: LaunchPlan, instant: datetime) -> Submission:
    """Give the submission of the run of an instant: a function of the version and the instant, as its id is. Raises InvalidInput."""
    return _submission(plan, {}, instant)


def launch_submission(
    plan: LaunchPlan,
    settings: Settings,
    *,
    name: str = "",
    owner: str = "",
    labels: dict[str, str] | None = None,
) -> Submission:
    """Give the submission of a launch by hand, with `settings` over the defaults. Raises InvalidInput, also for what is fixed."""
    problems = [*_settings_problems(plan, "settings", settings)]
    problems += [
        Problem(f"settings.{task}.{param}", f"is fixed by version {plan.version} of the plan")
        for task, params in settings.items()
        for param in sorted(params.keys() & plan.fixed.get(task, {}).keys())
    ]
    if problems:
        raise InvalidInput(problems)
    submission = _submission(plan, settings, None)
    given: dict[str, Any] = {"labels": {**(labels or {}), **submission.request.labels}}
    if problem := labels_problem(given["labels"]):
        raise InvalidInput.one("labels", f"{problem}, with those of the plan")
    given |= {key: value for key, value in (("name", name), ("owner", owner)) if value}
    return submission.model_copy(update={"request": submission.request.model_copy(update=given)})


def _submission(plan: LaunchPlan, settings: Settings, instant: datetime | None) -> Submission:
    request = plan.submission.request
    marks = {PLAN_LABEL: plan.name, VERSION_LABEL: plan.version}
    if instant is not None:
        marks[INSTANT_LABEL] = instant_text(instant)
    workflow = _workflow(plan, settings, None if instant is None else instant_text(instant))
    check(workflow, plan.submission.types)
    update = {"name": request.name or plan.name, "labels": {**request.labels, **marks}}
    return plan.submission.model_copy(
        update={"workflow": workflow, "request": request.model_copy(update=update)}
    )


def _workflow(plan: LaunchPlan, settings: Settings, time: str | None) -> Any:
    """Give the workflow of a plan with all settings in their order: defaults, those of a launch, the time, what is fixed."""
    layers = [plan.defaults, settings]
    if time is not None and plan.schedule is not None and plan.schedule.time_param is not None:
        task, _, param = plan.schedule.time_param.partition(".")
        layers.append({task: {param: time}})
    workflow = plan.submission.workflow
    for layer in [*layers, plan.fixed]:
        workflow = with_settings(workflow, layer)
    return workflow


def _settings_problems(plan: LaunchPlan, where: str, settings: Settings) -> list[Problem]:
    problems = []
    for task_id, params in settings.items():
        task = plan.submission.workflow.tasks.get(task_id)
        if task is None:
            known = ", ".join(list(plan.submission.workflow.tasks)[:10])
            problems.append(
                Problem(
                    f"{where}.{task_id}", "is no task of the workflow", remedy=f"there are {known}"
                )
            )
            continue
        problems += [
            problem for name in params if (problem := _unknown(plan, where, task_id, task, name))
        ]
    return problems


def _unknown(plan: LaunchPlan, where: str, task_id: str, task: Task, name: str) -> Problem | None:
    remedy = unknown_param(task, plan.submission.types[task.type], name)
    if remedy is None:
        return None
    return Problem(f"{where}.{task_id}.{name}", "is no parameter of the task", remedy=remedy)


def _schedule_problems(plan: LaunchPlan, schedule: Schedule) -> list[Problem]:
    problems = cron_problems(schedule)
    if (target := schedule.time_param) is not None:
        task_id, _, name = target.partition(".")
        task = plan.submission.workflow.tasks.get(task_id)
        where = "schedule.time_param"
        if task is None or ids.task_id_problem(task_id):
            problems.append(Problem(where, "names no task of the workflow", repr(target)))
        elif remedy := unknown_param(task, plan.submission.types[task.type], name):
            problems.append(Problem(where, "names no parameter of the task", repr(target), remedy))
        elif name in plan.fixed.get(task_id, {}):
            problems.append(Problem(where, "names what `fixed` sets", repr(target)))
    return problems


def cron_problems(schedule: Schedule) -> list[Problem]:
    """Give what is wrong with the expression of a schedule, as problems of the schedule's own field."""
    try:
        timetable = parse(schedule.expression, schedule.timezone)
        check_activation(timetable)
    except CronError as error:
        field = "schedule.every" if schedule.cron is None else "schedule.cron"
        return [
            Problem(
                field,
                item.message if item.field == "schedule" else f"{item.field}: {item.message}",
                item.value,
                item.remedy,
                item.place,
            )
            for item in error.problems
        ]
    if isinstance(timetable, Every) and schedule.cron is not None and schedule.timezone is not None:
        return [Problem("schedule.timezone", "means nothing beside a fixed rate")]
    return []
