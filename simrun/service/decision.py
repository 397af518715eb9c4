"""What a decision is made from and what it is: the words that `decide` and the controller around it share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from simrun.backends.base import Attempt, BackendStatus
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.report import WorkerReport
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Workflow


class Gone(Enum):
    """A consistent read said that the workflow does not exist."""

    GONE = "gone"


GONE = Gone.GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is known of a run at one moment.

    status None: the backend was not asked, since there is nothing to ask for yet. markers: tasks whose out/ holds the marker
    of a merge. reports by `<worker>-<attempt>`. waited: by task, seconds for which the marker of its merge has been
    awaited, by a clock that no step of the wall clock moves; without an entry the record's wall time has to do.
    """

    record: RunRecord
    workflow: Workflow
    types: Mapping[str, TaskType]
    plans: Mapping[str, TaskPlan]
    status: BackendStatus | Gone | None = None
    markers: frozenset[str] = frozenset()
    reports: Mapping[str, WorkerReport] = field(default_factory=dict)
    waited: Mapping[str, float] = field(default_factory=dict)
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class KeepAttempt:
    """Keep the evidence of an attempt in attempts/; for one that has ended also in dead/, and memory/ for a kill."""

    task: str
    worker: str
    attempt: Attempt
    kill: bool


@dataclass(frozen=True, slots=True)
class Observe:
    """Store what the attempts of a task used, each once: the task has ended."""

    task: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Do what is pending of a terminal run."""


Effect = KeepAttempt | Observe | Settle


@dataclass(frozen=True, slots=True)
class Decision:
    """The next record, what to do once it is written, and when to look again (wall time) if nothing happens."""

    record: RunRecord
    effects: tuple[Effect, ...] = ()
    look_again_at: float | None = None
