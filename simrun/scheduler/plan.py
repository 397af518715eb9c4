"""What is due: from a timetable, what was considered before and the time now, the instants to fire.

Pure, and the same function for the catch-up at a start and for every tick after it: both ask for the fires in (considered, now].
Whoever calls it saves `now` as considered once all that was given has been dealt with, so an instant on the very edge belongs to
one window and not to two. Firing an instant twice is harmless all the same (execution.py); losing one is not, so where clocks
went wrong this errs towards asking again.

Nothing here grows with the length of an outage: fires are given one at a time, and what is dropped is counted, not listed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from simrun.model.launchplan import CATCH_UP_CAP, CatchUp, Overlap
from simrun.scheduler.cron import Every, Timetable, parse

__all__ = [
    "CATCH_UP_CAP",
    "CatchUp",
    "Dropped",
    "Due",
    "Overlap",
    "Policy",
    "Verdict",
    "between",
    "considered",
    "due",
    "next_due",
    "timetable_of",
    "verdict",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_INSTANT: Final = timedelta.resolution


class Verdict(enum.StrEnum):
    """What to do about one instant."""

    FIRE = "fire"
    EXISTS = "exists"
    """It has its run already, which counts as success."""
    SKIP = "skip"
    WAIT = "wait"
    CANCEL = "cancel"
    """Cancel the run that is going, and fire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a schedule treats what it missed, and runs that are still going.

    `cap` is for CatchUp.ALL. Instants at most `on_time` old are not missed but due now, and every policy fires them; an instant
    equal to the time now always is.
    """

    catch_up: CatchUp = CatchUp.ALL
    cap: int = CATCH_UP_CAP
    on_time: timedelta = timedelta(0)
    overlap: Overlap = Overlap.ALLOW

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(f"the cap must be at least 1, not {self.cap}")


@dataclass(frozen=True, slots=True)
class Dropped:
    """Missed instants that are not fired: how many, the first and the last of them. A backfill may fire them."""

    count: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """The instants to fire, in order: those of `timetable` in (after, until]. Iterating computes them one at a time."""

    timetable: Timetable
    after: datetime
    until: datetime
    count: int
    dropped: Dropped | None = None

    def __iter__(self) -> Iterator[datetime]:
        return self.timetable.instants(self.after, self.until)


_DEFAULT: Final = Policy()


def timetable_of(
    expression: str,
    *,
    activated: datetime,
    zone: str | None = None,
    anchor: datetime | None = None,
) -> Timetable:
    """Give the timetable of an active schedule; raise CronError.

    A fixed rate (`@every`) becomes a grid through `anchor`, or through the activation where none is given. Neither a fire nor a
    restart moves the grid: a job of one hour runs each hour however often the service is rolled out.
    """
    timetable = parse(expression, zone)
    return timetable.anchored(anchor or activated) if isinstance(timetable, Every) else timetable


def considered(mark: datetime | None, since: datetime, now: datetime) -> datetime:
    """Give the instant up to which everything has been considered.

    It is the later of `mark`, the last instant that a snapshot says was dealt with, and `since`, the activation (or the end of a
    pause). One that lies in the future comes from a clock that was ahead. Waiting until the time has caught up could
    take years, so a mark in the future counts as now: what it covers comes again, and has its run already.
    """
    if mark is None:
        return min(since, now)
    if mark > now:
        return now
    return max(mark, since) if since <= now else mark


def due(
    timetable: Timetable,
    *,
    mark: datetime | None,
    since: datetime,
    now: datetime,
    policy: Policy = _DEFAULT,
) -> Due:
    """Give what is to be fired now: at a start what was missed, at a tick what has become due since the last."""
    if isinstance(timetable, Every) and timetable.anchor is None:
        raise ValueError(f"{timetable.text!r} has no anchor; timetable_of gives it one")
    begin = considered(mark, since, now)
    total = timetable.count(begin, now)
    kept = _kept(timetable, begin, now, policy)
    if total <= kept:
        return Due(timetable, begin, now, total)
    first, last = timetable.next_after(begin), _last_but(kept, timetable, begin, now)
    if first is None:
        raise AssertionError("what was counted is there")
    return Due(timetable, last, now, kept, Dropped(total - kept, first, last))


def next_due(
    timetable: Timetable, *, mark: datetime | None, since: datetime, now: datetime
) -> datetime | None:
    """Give the instant to wait for; it is in the past when something is due already."""
    return timetable.next_after(considered(mark, since, now))


def between(timetable: Timetable, first: datetime, last: datetime) -> Iterator[datetime]:
    """Give the instants of a backfill: those in [first, last], both ends included."""
    return timetable.instants(first - _INSTANT, last)


def verdict(overlap: Overlap, *, exists: bool, earlier_is_running: bool) -> Verdict:
    """Say what to do about an instant.

    `exists` comes first: its own run, found by a repeated catch-up, is no earlier one that it would have to give way to.
    """
    if exists:
        return Verdict.EXISTS
    return _WHILE_RUNNING[overlap] if earlier_is_running else Verdict.FIRE


_WHILE_RUNNING: Final = {
    Overlap.ALLOW: Verdict.FIRE,
    Overlap.SKIP: Verdict.SKIP,
    Overlap.QUEUE: Verdict.WAIT,
    Overlap.CANCEL: Verdict.CANCEL,
}


def _kept(timetable: Timetable, begin: datetime, now: datetime, policy: Policy) -> int:
    """Give how many of the latest instants in (begin, now] the policy fires at most."""
    on_time = timetable.count(max(begin, now - policy.on_time - _INSTANT), now)
    kept = {CatchUp.ALL: policy.cap, CatchUp.LATEST: 1, CatchUp.NONE: 0}[policy.catch_up]
    return max(kept, on_time)


def _last_but(number: int, timetable: Timetable, begin: datetime, end: datetime) -> datetime:
    """Give the instant in (begin, end] that `number` others follow, by halving: two centuries take 33 counts, each of a shorter time."""
    low, high = (begin - _EPOCH) // _SECOND, (end - _EPOCH) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if timetable.count(_EPOCH + middle * _SECOND, end) > number:
            low = middle
        else:
            high = middle
    return _EPOCH + high * _SECOND
