"""Cron expressions: what they mean, and when they fire. Pure: no clock, no waiting, no files but those of the time zones.

    timetable = parse("30 2 * * MON-FRI", "America/New_York")
    timetable.next_after(instant)

Simrun has an engine of its own because its schedules promise what Flyte's do, which follow Go's robfig/cron, and no Python library
does: they move or swallow fires when clocks change, or join the two day fields by "and". docs/reference/schedules.md has the rules.
"""

from __future__ import annotations

from simrun.scheduler.cron.checks import check_activation, check_date, check_period
from simrun.scheduler.cron.errors import CronError, CronFault
from simrun.scheduler.cron.every import Every
from simrun.scheduler.cron.syntax import Timetable, parse
from simrun.scheduler.cron.timetable import Cron, MissingTime

__all__ = [
    "Cron",
    "CronError",
    "CronFault",
    "Every",
    "MissingTime",
    "Timetable",
    "check_activation",
    "check_date",
    "check_period",
    "parse",
]
