"""What became of the instants of one schedule: counted for ever, and the last of each kind kept for people to read.

A run is the word on an instant that has one; this is for those that have none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime

from simrun.model.base import StoredModel

FAILURES_KEPT: Final = 50
LOSSES_KEPT: Final = 20


class Why(StrEnum):
    """Why instants were not fired."""

    POLICY = "policy"
    """The catch-up policy, or its cap."""
    OVERLAP = "overlap"
    """An earlier run was going."""
    PAUSED = "paused"
    UNFIT = "unfit"
    """The plan could not be run."""


class LastFire(StoredModel):
    """The fire that came to its end last."""

    instant: AwareDatetime
    run: str
    at: AwareDatetime
    outcome: str


class Failure(StoredModel):
    """An instant that was given up."""

    instant: AwareDatetime
    run: str
    version: str
    tries: int
    error: str
    at: AwareDatetime


class Loss(StoredModel):
    """Instants in a row that were not fired, for one reason. A backfill may fire them."""

    why: Why
    count: int
    first: AwareDatetime
    last: AwareDatetime
    note: str = ""


class Counts(StoredModel):
    """How many instants came to which end."""

    created: int = 0
    exists: int = 0
    failed: int = 0
    policy: int = 0
    overlap: int = 0
    paused: int = 0
    unfit: int = 0


class History:
    """What became of the instants of one schedule, in memory."""

    __slots__ = ("counts", "failures", "last", "losses")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(Counts.model_fields, 0)
        self.last: LastFire | None = None
        self.failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self.losses: deque[Loss] = deque(maxlen=LOSSES_KEPT)

    @classmethod
    def of(
        cls,
        counts: Counts,
        last: LastFire | None,
        failures: Iterable[Failure],
        losses: Iterable[Loss],
    ) -> History:
        """Give the history that a snapshot kept."""
        made = cls()
        made.counts.update(counts.model_dump())
        made.last = last
        made.failures.extend(failures)
        made.losses.extend(losses)
        return made

    def copy(self) -> History:
        """Give what is known now, for who reads it in a thread or later."""
        return History.of(self.totals, self.last, self.failures, self.losses)

    def fired(self, instant: datetime, run: str, at: datetime, outcome: str) -> None:
        """Note an instant that has its run."""
        self.counts[outcome] += 1
        self.last = LastFire.model_construct(instant=instant, run=run, at=at, outcome=outcome)

    def failed(self, failure: Failure) -> None:
        """Note an instant that was given up."""
        self.counts["failed"] += 1
        self.failures.append(failure)

    def lost(self, why: Why, count: int, first: datetime, last: datetime, note: str = "") -> None:
        """Note instants that were not fired; those that go on from the last ones for the same reason are one range with them."""
        self.counts[why] += count
        before = self.losses[-1] if self.losses else None
        if (
            before is not None
            and (before.why, before.note) == (why, note)
            and (before.last < first and not self._fired_between(before.last, first))
        ):
            self.losses.pop()
            count, first = before.count + count, before.first
        self.losses.append(Loss(why=why, count=count, first=first, last=last, note=note))

    def _fired_between(self, first: datetime, last: datetime) -> bool:
        return self.last is not None and first < self.last.instant < last

    @property
    def totals(self) -> Counts:
        """The counts as they are kept."""
        return Counts(**self.counts)

    @property
    def empty(self) -> bool:
        """Whether nothing was noted yet."""
        return not any(self.counts.values())
