"""The fields of an expression as bits of a day and of a month, and the search over local time.

A local minute is the number of minutes of the wall clock since 1970-01-01 00:00, as if every day had 24 hours. What an
expression matches within a day is one integer of 1,440 bits, what it matches within a month is an integer of 31 bits for each
weekday that the month can begin with. A search is then a shift and the lowest (or highest) bit, whatever the expression.
"""

from __future__ import annotations

import functools
from datetime import date
from typing import Final

from simrun.scheduler.cron.fields import KINDS, Field
from simrun.scheduler.cron.zones import DAY

_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LAST_MONTH: Final = 9999 * 12 + 11
_FIRST_MONTH: Final = 12
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
# Bit n of a week, seven bits wide, times this is a week repeated over six weeks
_SIX_WEEKS: Final = sum(1 << 7 * week for week in range(6))
_31_DAYS: Final = (1 << 31) - 1


class Calendar:
    """What five fields match in local time, whatever the zone."""

    __slots__ = ("_days", "_first_time", "_last_time", "_months", "_times", "never", "times_a_day")

    def __init__(self, fields: tuple[Field, ...]) -> None:
        minute, hour, day, month, weekday = fields
        self._times = 0
        for number in range(24):
            if hour.values >> number & 1:
                self._times |= minute.values << 60 * number
        self._first_time = (self._times & -self._times).bit_length() - 1
        self._last_time = self._times.bit_length() - 1
        self.times_a_day = self._times.bit_count()
        self._months = month.values
        self._days = tuple(_days(day, weekday, begins) for begins in range(7))
        self.never = not any(
            days & _first_bits(longest)
            for number, longest in enumerate(_LONGEST, 1)
            if month.values >> number & 1
            for days in self._days
        )
        """Whether no date of any year matches. Otherwise one does within eight years: a 29 February, at worst."""

    @property
    def everyday(self) -> bool:
        """Whether every date matches."""
        return self._months == KINDS[3].full and all(days == _31_DAYS for days in self._days)

    def at_or_after(self, local: int) -> int | None:
        """Give the first local minute at or after `local` that matches; None beyond the year 9999 or when none ever does."""
        if self.never:
            return None
        number, minute = divmod(local, DAY)
        month, day = _day(number)
        days = self._days_of(month) >> day - 1
        if days & 1:
            times = self._times >> minute
            if times & 1:
                return local
            if times:
                return local + (times & -times).bit_length() - 1
        days >>= 1
        if days:
            return (number + (days & -days).bit_length()) * DAY + self._first_time
        while month < _LAST_MONTH:
            month += 1
            days = self._days_of(month)
            if days:
                number = _month(month)[0] + (days & -days).bit_length() - 1 - _ORDINAL
                return number * DAY + self._first_time
        return None

    def at_or_before(self, local: int) -> int | None:
        """Give the last local minute at or before `local` that matches; None before the year 1 or when none ever does."""
        if self.never:
            return None
        number, minute = divmod(local, DAY)
        month, day = _day(number)
        days = self._days_of(month) & _first_bits(day)
        if days >> (day - 1):
            times = self._times & _first_bits(minute + 1)
            if times:
                return number * DAY + times.bit_length() - 1
            days &= _first_bits(day - 1)
        if days:
            return (number - day + days.bit_length()) * DAY + self._last_time
        while month > _FIRST_MONTH:
            month -= 1
            days = self._days_of(month)
            if days:
                number = _month(month)[0] + days.bit_length() - 1 - _ORDINAL
                return number * DAY + self._last_time
        return None

    def count(self, begin: int, end: int) -> int:
        """Count the local minutes in [begin, end) that match; the cost is that of the months between, not of the minutes."""
        if self.never or begin >= end:
            return 0
        first, last = begin // DAY, end // DAY
        return (
            self._count_days(first, last) * self.times_a_day
            + self._before(last, end % DAY)
            - self._before(first, begin % DAY)
        )

    def _before(self, number: int, minute: int) -> int:
        """Count the matches of one day before its minute `minute`."""
        month, day = _day(number)
        if not self._days_of(month) >> (day - 1) & 1:
            return 0
        return (self._times & _first_bits(minute)).bit_count()

    def _count_days(self, first: int, last: int) -> int:
        """Count the days in [first, last), as days since 1970-01-01, that match."""
        month, day = _day(first)
        last_month, last_day = _day(last)
        count = (self._days_of(last_month) & _first_bits(last_day - 1)).bit_count()
        count -= (self._days_of(month) & _first_bits(day - 1)).bit_count()
        for number in range(month, last_month):
            count += self._days_of(number).bit_count()
        return count

    def _days_of(self, month: int) -> int:
        """Give the days of a month that match, day 1 as bit 0; months are counted from January of year 0."""
        if not self._months >> (month % 12 + 1) & 1:
            return 0
        ordinal, days = _month(month)
        return self._days[ordinal % 7] & days


def _days(day: Field, weekday: Field, begins: int) -> int:
    """Give the days that match in a month of 31 days whose first is the weekday `begins`, day 1 as bit 0.

    Two restricted fields mean either of them. A field that does not restrict holds every value, so "and" is right then.
    """
    of_month = day.values >> 1
    of_week = (weekday.values * _SIX_WEEKS) >> begins & _31_DAYS
    if day.star or weekday.star:
        return of_month & of_week
    return of_month | of_week


@functools.lru_cache(maxsize=8192)
def _day(number: int) -> tuple[int, int]:
    """Give the month, counted from January of year 0, and the day of the month of a day since 1970-01-01."""
    day = date.fromordinal(number + _ORDINAL)
    return day.year * 12 + day.month - 1, day.day


@functools.lru_cache(maxsize=8192)
def _month(month: int) -> tuple[int, int]:
    """Give the ordinal of the first of a month (modulo 7 its weekday, 0 for Sunday) and a bit for each of its days."""
    year, number = divmod(month, 12)
    first = date(year, number + 1, 1).toordinal()
    length = _LONGEST[number]
    if number == 1 and (year % 4 or (year % 100 == 0 and year % 400)):
        length = 28
    return first, _first_bits(length)


def _first_bits(number: int) -> int:
    return (1 << number) - 1
