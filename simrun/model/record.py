"""run.json: the only truth about a run. What `decide` needs and no more, at most about 200 bytes a task."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from simrun.model.base import StoredModel
from simrun.model.plan import TaskPlan
from simrun.model.workflow import Workflow

RECORD_SCHEMA = 1


class RunState(StrEnum):
    """The state of a run; the service's word, not the backend's."""

    SUBMITTING = "submitting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    def __init__(self, word: str) -> None:
        self.terminal = word in ("succeeded", "failed", "cancelled")
        """Whether the run has ended."""


class TaskState(StrEnum):
    """The state of a task."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    PREEMPTED = "preempted"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"

    def __init__(self, word: str) -> None:
        # An attribute: a look at a run asks this of every task, and a member of an enum is slow to find by its name
        self.final = word in ("done", "failed", "skipped")
        """Whether the task has ended."""


class RunTimes(StoredModel):
    """Wall times in seconds since 1970 UTC."""

    created: float
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None


class RunRecord(StoredModel):
    """The record of a run. Written only by the service, and only when the one on disk is still the one it was made from."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    id: str
    group: str = "default"
    owner: str = ""
    name: str = ""
    labels: dict[str, str] = {}
    revision: int = 0
    """Grows by one with each write."""
    epoch: int = 0
    """Of the leader that wrote it; a lower one may not overwrite."""
    round: int = 0
    """0, and one more with each retry of the run."""
    attempt_base: dict[str, int] = {}
    """By task: added to the attempts of this round. Missing means 0."""
    state: RunState = RunState.SUBMITTING
    message: str | None = None
    tasks: dict[str, TaskState] = {}
    plans: dict[str, TaskPlan] = {}
    oom_kills: dict[str, list[int]] = {}
    """Attempts killed for memory, by worker, with the evidence of the out-of-memory killer."""
    merge_pending: dict[str, float] = {}
    """By task: wall time at which the coordinator was first seen succeeded without the marker of its merge."""
    evictions: dict[str, int] = {}
    """By worker: attempts that ended through no fault of theirs."""
    max_evictions: int = 5
    reserve_node: bool = False
    priority: str | None = None
    workflow_name: str | None = None
    workflow_uid: str | None = None
    node: str | None = None
    """The reserved node."""
    pending_logs: bool = False
    pending_release: bool = False
    pending_cancel: bool = False
    times: RunTimes
    fingerprint: str = ""
    workflow: Workflow | None = Field(default=None, exclude=True, repr=False)
    """Read from submission.json where it is needed (to_argo, pods_of); never part of run.json."""

    @property
    def pending(self) -> bool:
        """Whether an effect of a terminal run is still to be done."""
        return self.pending_logs or self.pending_release or self.pending_cancel

    def base_of(self, task: str) -> int:
        """Give the number that is added to the attempts of a task in this round."""
        return self.attempt_base.get(task, 0)

    def with_workflow(self, workflow: Workflow) -> RunRecord:
        """Give the same record with the workflow at hand."""
        return self.model_copy(update={"workflow": workflow})

    def changed(self, **update: Any) -> RunRecord:
        """Give the record with other values; a tiny word for the many places that do it."""
        return self.model_copy(update=update)
