"""Launch plans: a workflow under a name, in versions that never change, and the schedule on which it runs.

A version holds everything that a run of it needs, so what fires in a year is what was looked at today. Which version is active is
no part of it: that stands in active.json beside it, and nowhere else.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field, field_validator, model_validator

from simrun.base import ids
from simrun.model.base import Model, StoredModel
from simrun.model.faults import Fault, FieldFaults
from simrun.model.tasktype import Params
from simrun.model.workflow import Submission, Workflow

CATCH_UP_CAP: Final = 1_000
"""Missed instants that a schedule makes up for at once: more than a weekend of an hourly one, and a load that a cluster survives."""
RESERVED_VERSION: Final = "active"
"""Its file would be the one that says which version is active."""

Settings = dict[str, Params]
"""Task -> parameter -> value."""

PLAN_LABEL: Final = "simrun/launch-plan"
VERSION_LABEL: Final = "simrun/launch-plan-version"
INSTANT_LABEL: Final = "simrun/scheduled-at"
"""Labels of the runs of launch plans, by which one knows whose a run is; the last only of those that a schedule made."""


_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def _instant(value: datetime) -> datetime:
    """Give an instant in UTC; outside of these years sums of times and durations would leave the calendar."""
    if not _FIRST <= value <= _LAST:
        raise ValueError("must lie between 1970 and 9000")
    return value.astimezone(UTC)


Instant = Annotated[AwareDatetime, AfterValidator(_instant)]
"""A time with its offset, kept in UTC."""


class CatchUp(StrEnum):
    """Which missed instants are fired later."""

    ALL = "all"
    """All of them, oldest first; of more than the cap the latest."""
    LATEST = "latest"
    NONE = "none"


class Overlap(StrEnum):
    """What happens at an instant while a run of an earlier instant is still going."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    """The instant waits for the end of that run."""
    CANCEL = "cancel"
    """That run is cancelled."""


class Schedule(Model):
    """When a launch plan runs: exactly one of `cron` and `every`."""

    cron: str | None = None
    """Five fields, or a descriptor such as @daily."""
    every: str | None = None
    """A fixed rate: a duration as in Go, 1h30m."""
    timezone: str | None = None
    """An IANA name; UTC when not given."""
    anchor: Instant | None = None
    """An instant of the grid of a fixed rate; the activation when not given."""
    time_param: str | None = None
    """TASK.PARAM: the parameter that receives the scheduled time, 2026-03-08T07:30:00Z."""
    catch_up: CatchUp = CatchUp.ALL
    catch_up_cap: int = Field(default=CATCH_UP_CAP, ge=1, le=1_000_000)
    overlap: Overlap = Overlap.ALLOW
    not_before: Instant | None = None
    not_after: Instant | None = None
    """Instants outside of [not_before, not_after] don't count."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        faults = []
        if (self.cron is None) == (self.every is None):
            faults.append(Fault((), "needs exactly one of cron and every"))
        if self.every is not None and self.timezone is not None:
            faults.append(Fault(("timezone",), "a fixed rate takes no notice of clocks on walls"))
        if self.anchor is not None and self.every is None:
            faults.append(Fault(("anchor",), "is for a fixed rate, with `every`"))
        if self.not_before and self.not_after and self.not_before > self.not_after:
            faults.append(Fault(("not_after",), "lies before not_before", str(self.not_after)))
        if self.time_param is not None and not all(self.time_param.partition(".")):
            faults.append(Fault(("time_param",), "must be TASK.PARAM", repr(self.time_param)))
        if faults:
            raise FieldFaults(faults)
        return self

    @property
    def expression(self) -> str:
        """The expression as the cron engine reads it."""
        return f"@every {self.every}" if self.cron is None else self.cron


class LaunchPlan(Model):
    """One version of a launch plan: `<version>.json`. It never changes."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    group: str
    name: str
    version: str
    description: str = ""
    submission: Submission
    """Workflow, types and request as submitted; the local files they name stand beside the version."""
    defaults: Settings = {}
    """Parameters over those of the workflow, which a launch may give otherwise."""
    fixed: Settings = {}
    """Parameters that nobody may give otherwise."""
    schedule: Schedule | None = None
    files: dict[str, str] = {}
    """Local files that the workflow names: where they go in a run -> sha256."""
    created_at: float
    """Wall time in seconds since 1970 UTC."""
    created_by: str = ""
    fingerprint: str = ""
    """Of everything that a person gave: two creations of one version are the same, or a conflict."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if problem := ids.plan_name_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if problem := version_problem(value):
            raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _one_group(self) -> Self:
        if self.group != self.submission.request.group:
            raise ValueError("the group of the plan and that of its request differ")
        return self

    @property
    def head(self) -> PlanHead:
        """What a scheduler needs to know of the version."""
        return PlanHead.model_validate(self.model_dump(exclude={"submission"}))


class PlanHead(StoredModel):
    """The part of a version that a scheduler reads of thousands: without the workflow."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    group: str
    name: str
    version: str
    description: str = ""
    schedule: Schedule | None = None
    created_at: float = 0.0
    created_by: str = ""
    fingerprint: str = ""


class Active(StoredModel):
    """active.json: which version is active. With none it says who deactivated the plan, and when."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    version: str | None = None
    activated_at: float
    """Wall time in seconds since 1970 UTC of the activation, or of the deactivation."""
    by: str = ""

    @property
    def since(self) -> datetime:
        """The time as an instant."""
        return instant_of(self.activated_at)


def version_problem(text: str) -> str | None:
    """Say why `text` can't be the version of a launch plan, or None when it can."""
    if text == RESERVED_VERSION:
        return f"must not be {RESERVED_VERSION!r}, the name of what says which version is active"
    return ids.version_problem(text)


def with_settings(workflow: Workflow, settings: Settings) -> Workflow:
    """Give the workflow with parameters over those of its tasks; tasks that it does not have are left out."""
    tasks = {
        task_id: task.model_copy(update={"params": {**task.params, **settings[task_id]}})
        if settings.get(task_id)
        else task
        for task_id, task in workflow.tasks.items()
    }
    return workflow.model_copy(update={"tasks": tasks})


def instant_of(seconds: float) -> datetime:
    """Give the instant of a wall time in seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def instant_text(instant: datetime) -> str:
    """Give an instant as it is told everywhere: 2026-03-08T07:30:00Z, with a fraction only where it has one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
