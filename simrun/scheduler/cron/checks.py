"""What a schedule that parses must satisfy beside, to be activated.

These are no errors of the syntax: a preview of `@every 30s` is fine, and a stored schedule that fires never is shown and does
nothing. Only activation refuses them.
"""

from __future__ import annotations

from typing import Final

from simrun.scheduler.cron.errors import FIELD_NAMES, CronError, CronFault
from simrun.scheduler.cron.every import Every
from simrun.scheduler.cron.syntax import Timetable, field_place
from simrun.scheduler.cron.words import month_names

SHORTEST_PERIOD_S: Final = 60
"""Flyte's granularity, and that of cron. Below it a run takes longer to start than to wait for."""


def check_activation(timetable: Timetable) -> None:
    """Raise CronError when the timetable may not be activated."""
    check_period(timetable)
    check_date(timetable)


def check_period(timetable: Timetable) -> None:
    """Refuse rates under one minute. Five fields can't say any."""
    if isinstance(timetable, Every) and timetable.seconds < SHORTEST_PERIOD_S:
        reason = f"the period of {timetable.seconds} s is shorter than a minute"
        remedy = "the shortest is @every 1m"
        raise CronError(timetable.text, CronFault(reason, remedy=remedy))


def check_date(timetable: Timetable) -> None:
    """Refuse an expression whose date exists in no year, e.g. 30 February."""
    if isinstance(timetable, Every) or not timetable.never:
        return
    day, month = timetable.fields[2:4]
    earliest = (day.values & -day.values).bit_length() - 1
    reason = f"never fires: there is no day {earliest} in {month_names(month, 'or')}, in any year"
    index = FIELD_NAMES.index("day of month")
    column, text = field_place(timetable.text, index)
    raise CronError(timetable.text, CronFault(reason, index, column, text))
