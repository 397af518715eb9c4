"""When a cron expression fires.

A fire is a minute of UTC whose wall clock, in the schedule's zone, matches the five fields; there is no other rule. Local time
that is skipped when clocks go forward never comes, so nothing fires for it; local time that comes twice fires twice, at two
instants. This is what the Go library robfig/cron does, on which Flyte's scheduler stands; Vixie cron has special treatment for
both, which makes "once a day" out of some expressions and not of others.

Nothing here reads a clock or a file. Instants are aware datetimes in, UTC datetimes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from simrun.scheduler.cron import words
from simrun.scheduler.cron.calendar import Calendar
from simrun.scheduler.cron.fields import KINDS, Field
from simrun.scheduler.cron.zones import (
    BLOCK_BITS,
    DAY,
    EPOCH,
    FIRST,
    LAST,
    block_stretches,
    changes_between,
    stretch,
)


class MissingTime(NamedTuple):
    """A wall-clock time that matches but does not exist: clocks went forward over it at the instant `change`."""

    local: datetime
    """Naive: there is no instant to go with it."""
    change: datetime


class Cron:
    """A cron expression of five fields in a time zone."""

    __slots__ = ("_calendar", "_zone", "fields", "text")

    def __init__(self, text: str, fields: tuple[Field, ...], zone: ZoneInfo) -> None:
        self.text = text
        """The expression as it was written, a prefix for the zone included."""
        self.fields = fields
        self._zone = zone
        self._calendar = Calendar(fields)

    def __repr__(self) -> str:
        return f"<Cron {self.text!r} {self.zone}>"

    @property
    def zone(self) -> str:
        """Give the name of the zone in which the fields are read."""
        return str(self._zone)

    @property
    def never(self) -> bool:
        """Whether no date of any year matches, as with 30 February."""
        return self._calendar.never

    def describe(self) -> str:
        """Say in words when it fires."""
        return words.of_fields(self.fields, self.zone)

    def next_after(self, instant: datetime) -> datetime | None:
        """Give the first fire strictly after `instant`; None when there is none up to the year 9999."""
        minute = self._next(_begun(instant) + 1)
        return None if minute is None else EPOCH + timedelta(0, minute * 60)

    def previous_before(self, instant: datetime) -> datetime | None:
        """Give the last fire strictly before `instant`; None when there is none back to the year 1."""
        minute = self._previous(-((EPOCH - instant) // _MINUTE) - 1)
        return None if minute is None else EPOCH + timedelta(0, minute * 60)

    def instants(self, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """Give the fires in (after, until], or all after `after`, in order and one at a time."""
        last = LAST if until is None else _begun(until)
        minute = self._next(_begun(after) + 1)
        while minute is not None and minute <= last:
            yield EPOCH + timedelta(0, minute * 60)
            minute = self._next(minute + 1)

    def count(self, after: datetime, until: datetime) -> int:
        """Count the fires in (after, until] without going through them: two centuries of minutes take milliseconds."""
        minute, end = self._within(after, until)
        count = 0
        while minute < end:
            _, change, offset = stretch(self._zone, minute)
            change = min(change, end)
            count += self._calendar.count(minute + offset, change + offset)
            minute = change
        return count

    def missing_times(self, after: datetime, until: datetime) -> Iterator[MissingTime]:
        """Give the matching wall-clock times that clocks skip by going forward in (after, until], in order.

        An expression for all hours of all days has none: it goes on in the hour that follows and loses nothing.
        """
        if self._calendar.everyday and self.fields[1].values == KINDS[1].full:
            return
        for minute, before, offset in changes_between(self._zone, *self._within(after, until)):
            local = self._calendar.at_or_after(minute + before)
            while local is not None and local < minute + offset:
                change = EPOCH + timedelta(minutes=minute)
                yield MissingTime((EPOCH + timedelta(minutes=local)).replace(tzinfo=None), change)
                local = self._calendar.at_or_after(local + 1)

    def _within(self, after: datetime, until: datetime) -> tuple[int, int]:
        return max(_begun(after) + 1, FIRST), min(_begun(until) + 1, LAST + 1)

    def _next(self, minute: int) -> int | None:
        """Give the first fire at or after a minute.

        Local time that goes on from `minute` gives the answer unless the offset changes before it. Beyond a change the search
        begins anew; but not before the first match that any offset could bring there, so that years without a match cost nothing.
        """
        zone, at_or_after = self._zone, self._calendar.at_or_after
        minute = max(minute, FIRST)
        while minute <= LAST:
            for _, end, offset in block_stretches(zone, minute >> BLOCK_BITS):  # noqa: B007 - used where the loop broke off
                if minute < end:
                    break
            else:
                raise AssertionError("a block covers all of its minutes")
            local = at_or_after(minute + offset)
            if local is not None and local - offset < end:
                return local - offset if local - offset <= LAST else None
            local = at_or_after(end - DAY)
            if local is None:
                return None
            minute = max(end, local - DAY)
        return None

    def _previous(self, minute: int) -> int | None:
        """Give the last fire at or before a minute: the mirror of `_next`."""
        minute = min(minute, LAST)
        while minute >= FIRST:
            begin, _, offset = stretch(self._zone, minute)
            local = self._calendar.at_or_before(minute + offset)
            if local is not None and local - offset >= begin:
                return local - offset if local - offset >= FIRST else None
            local = self._calendar.at_or_before(begin - 1 + DAY)
            if local is None:
                return None
            minute = min(begin - 1, local + DAY)
        return None


def _begun(instant: datetime) -> int:
    """Give the minute since 1970 in which an instant lies. Dividing by a timedelta would do, and costs twice as much."""
    since = instant - EPOCH
    return since.days * DAY + since.seconds // 60


_MINUTE = timedelta(minutes=1)
