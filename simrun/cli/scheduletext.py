"""What `simrun schedule` prints of instants and schedules."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from simrun.cli.formatting import duration, plural, table
from simrun.model.launchplan import instant_text

if TYPE_CHECKING:
    from simrun.service.api.launch_plans import PlanSummary
    from simrun.service.schedule_view import ScheduleView

_ENDED_BADLY = frozenset({"failed", "given_up", "missing", "unfit"})


def timetable_text(instants: list[datetime], timezone: str | None) -> str:
    """Give instants in UTC and, where a zone is named, as its clocks show them."""
    if timezone is None:
        return "\n".join(instant_text(instant) for instant in instants)
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(timezone)
    rows = [
        (instant_text(instant), f"{instant.astimezone(zone):%a %Y-%m-%d %H:%M %Z}")
        for instant in instants
    ]
    return table(("utc", timezone), rows)


def cells(plan: PlanSummary) -> tuple[str, ...]:
    """Give the cells of a schedule in a list."""
    state = "paused" if plan.paused else "active" if plan.active else "inactive"
    return (
        plan.group,
        plan.name,
        plan.version,
        plan.schedule or "-",
        plan.timezone or "UTC",
        plan.next or "-",
        f"unfit: {plan.trouble}" if plan.trouble else state,
    )


def told(view: ScheduleView) -> list[str]:
    """Give a schedule as lines: what it is, what is to come, what became of the last instants."""
    if not view.active or view.schedule is None:
        return [f"launch plan {view.name} of group {view.group} has no active schedule"]
    zone = f" in {view.schedule.timezone}" if view.schedule.timezone else ""
    lines = [
        f"{view.group}/{view.name} version {view.version}: {view.schedule.expression}{zone}",
        f"  {view.description}" if view.description else "",
        f"  fires nothing: {view.trouble}" if view.trouble else "",
        f"  {view.paused}" if view.paused else "",
        f"  catches up: {plural(view.backlog, 'instant')} left" if view.catching_up else "",
        f"  next: {', '.join(view.next)}" if view.next else "  nothing to come",
    ]
    if view.skipped:
        lines.append(f"  clocks skip: {', '.join(view.skipped)} (nothing is fired for them)")
    if view.last:
        rows = [
            (
                item.instant,
                f"{item.state} !" if item.state in _ENDED_BADLY else item.state,
                duration(item.lateness_s),
                item.run,
                item.note,
            )
            for item in view.last
        ]
        lines += ["", table(("instant", "state", "late", "run", "note"), rows)]
    for failure in view.failures:
        text = f"given up: {failure.instant:%Y-%m-%dT%H:%MZ} after {failure.tries} tries: {failure.error}"
        lines.append(f"{text}; `simrun schedule backfill {view.name} --from …` tries again")
    for loss in view.losses[-3:]:
        span = f"{loss.first:%Y-%m-%dT%H:%MZ} to {loss.last:%Y-%m-%dT%H:%MZ}"
        lines.append(f"not fired ({loss.why}): {plural(loss.count, 'instant')}, {span} {loss.note}")
    return [line for number, line in enumerate(lines) if line or number > 5]
