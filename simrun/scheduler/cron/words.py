"""A cron expression in words, so that its author sees what it means before it runs."""

from __future__ import annotations

from collections.abc import Callable

from simrun.scheduler.cron.fields import KINDS, Field

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MOST_TIMES = 6
"""Times of a day that are listed one by one; more of them are easier to read as minutes and hours."""


def of_fields(fields: tuple[Field, ...], zone: str) -> str:
    """Describe five fields: `at 10:00 on days 1 to 7 of the month or on Mondays, Europe/Berlin`."""
    minute, hour, day, month, weekday = fields
    time = _time(_members(minute), _members(hour))
    date = _date(day, month, weekday)
    if not date and time.startswith("at ") and " hour" not in time:
        date = "every day"
    return f"{time} {date}, {zone}" if date else f"{time}, {zone}"


def month_names(month: Field, joined_by: str = "and") -> str:
    """Name the months of a field: `February, April and June`."""
    return _listed(_runs(_members(month), lambda number: _MONTHS[number - 1]), joined_by)


def _time(minutes: list[int], hours: list[int]) -> str:
    if minutes == [0] and (step := _even_step(hours, 24)):
        return "every hour" if step == 1 else f"every {step} hours from 00:00"
    all_hours = len(hours) == 24
    if len(minutes) * len(hours) <= _MOST_TIMES and not all_hours:
        return "at " + _listed([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    in_hours = "every hour" if all_hours else _named("hour", hours, str)
    if step := _even_step(minutes, 60):
        every = "every minute" if step == 1 else f"every {step} minutes"
        return every if all_hours else f"{every} in {in_hours}"
    return f"at {_named('minute', minutes, str)} of {in_hours}"


def _date(day: Field, month: Field, weekday: Field) -> str:
    months = ""
    if month.values != KINDS[3].full:
        months = month_names(month)
    choices = []
    if not day.star:
        choices.append(f"on {_named('day', _members(day), str)} of {months or 'the month'}")
    if not weekday.star:
        choices.append(_weekdays(weekday) + (f" in {months}" if months else ""))
    if not choices:
        return f"every day in {months}" if months else ""
    return " or ".join(choices)


def _weekdays(weekday: Field) -> str:
    # a week is read from Monday to Sunday, though Sunday is written 0
    days = sorted((number - 1) % 7 for number in _members(weekday))
    runs = _runs(days, lambda number: _WEEKDAYS[number])
    if len(runs) == 1 and " to " in runs[0]:
        return f"from {runs[0]}"
    return "on " + _listed([run if " to " in run else f"{run}s" for run in runs])


def _named(noun: str, numbers: list[int], write: Callable[[int], str]) -> str:
    if len(numbers) == 1:
        return f"{noun} {write(numbers[0])}"
    return f"{noun}s {_listed(_runs(numbers, write))}"


def _runs(numbers: list[int], write: Callable[[int], str]) -> list[str]:
    """Write numbers in order, three or more neighbours as `a to b`."""
    texts: list[str] = []
    begin = 0
    for position in range(1, len(numbers) + 1):
        if position < len(numbers) and numbers[position] == numbers[position - 1] + 1:
            continue
        run = numbers[begin:position]
        if len(run) > 2:
            texts.append(f"{write(run[0])} to {write(run[-1])}")
        else:
            texts += [write(number) for number in run]
        begin = position
    return texts


def _listed(texts: list[str], joined_by: str = "and") -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {joined_by} {texts[-1]}"


def _even_step(numbers: list[int], whole: int) -> int | None:
    """Give the step when two numbers or more go round `whole` in equal steps from 0, else None."""
    step = whole // len(numbers)
    even = len(numbers) > 1 and whole % step == 0 and numbers == list(range(0, whole, step))
    return step if even else None


def _members(field: Field) -> list[int]:
    return [number for number in range(field.values.bit_length()) if field.values >> number & 1]
