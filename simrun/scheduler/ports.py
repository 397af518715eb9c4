"""What the scheduler asks of its surroundings: which plans are active, runs, and files that outlive it.

The service implements these over the run store; the simulation of a year does over dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from simrun.base.errors import SimrunError
from simrun.base.labeltext import label_value
from simrun.model.launchplan import Schedule
from simrun.scheduler.cron import Timetable
from simrun.scheduler.execution import scheduled_run_id

if TYPE_CHECKING:
    from simrun.scheduler.snapshots import LaneRecord, Snapshot


def schedule_key(group: str, name: str) -> str:
    """Give the key of a schedule: the label value of its group and the name of its plan, which has no dot."""
    return f"{label_value(group)}.{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSchedule:
    """The schedule of the active version of a launch plan.

    `since` is the activation, or the end of the last pause if that was later: what comes before it was not missed. `trouble` says
    why it fires nothing; then there may be no timetable.
    """

    key: str
    group: str
    name: str
    version: str
    activated: datetime
    schedule: Schedule
    timetable: Timetable | None = field(default=None, compare=False)
    since: datetime
    paused: str = ""
    """Who paused it and when, in words; "" when nobody did."""
    trouble: str = ""

    def same_activation(self, other: ActiveSchedule) -> bool:
        """Whether this is the same version, activated at the same time."""
        return (self.version, self.activated) == (other.version, other.activated)

    def run_id(self, instant: datetime) -> str:
        """Give the id of the run of an instant."""
        return scheduled_run_id(self.group, self.name, self.version, instant)


class Outcome(StrEnum):
    """What came of a fire."""

    CREATED = "created"
    EXISTS = "exists"
    """Its run was there, or had been and was deleted: success."""


class PlanUnfit(SimrunError):  # noqa: N818 - says the state of the plan
    """Raised when the active version can't be run at all; trying again would not help, activating a good version does."""


class PlanSource(Protocol):
    """Which plans are active."""

    async def load(self) -> Mapping[str, ActiveSchedule]:
        """Give the schedules of all active plans, read anew. Raises OSError."""
        ...

    async def changes(self) -> Mapping[str, ActiveSchedule | None]:
        """Give what has changed since the last look; None for what is active no more. Raises OSError."""
        ...

    async def look(self, key: str) -> ActiveSchedule | None:
        """Give one, read anew. Raises OSError."""
        ...


class Runs(Protocol):
    """The runs of schedules."""

    async def fire(self, plan: ActiveSchedule, instant: datetime) -> Outcome:
        """Make the run of an instant exist.

        Raises PlanUnfit, Conflict when the id stands for something else, and whatever may pass when it is tried again.
        """
        ...

    async def exists(self, plan: ActiveSchedule, instant: datetime) -> bool:
        """Whether an instant has its run, or had it."""
        ...

    async def going(self, plan: ActiveSchedule, before: datetime) -> list[str]:
        """Give the ids of the runs of earlier instants of a plan, of any version, that have not ended."""
        ...

    async def cancel(self, run_id: str) -> None:
        """Cancel a run; one that has ended is left as it is."""
        ...


class Notes(Protocol):
    """What the scheduler writes for its next start. All of it may be lost: then more instants are looked at, and have their runs."""

    async def load(self) -> Snapshot:
        """Give the last snapshot; an empty one when there is none that can be read."""
        ...

    async def save(self, at: datetime, records: Mapping[str, str]) -> None:
        """Write a snapshot of records, which are JSON, by their keys."""
        ...

    async def load_progress(self) -> Mapping[str, LaneRecord]:
        """Give how far the catch-ups had come that a stopped process left."""
        ...

    async def save_progress(self, key: str, record: str) -> None:
        """Write how far a catch-up is."""
        ...

    async def clear_progress(self) -> None:
        """Forget all catch-ups: a snapshot says more now."""
        ...
