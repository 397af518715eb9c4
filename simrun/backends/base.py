"""The protocol of a backend, and the words in which it tells the state of a workflow.

A backend runs the pods of a run and says what it saw. It decides nothing: what a state means for a run is decided in
`simrun.service.decide`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.report import Reason
from simrun.model.tasktype import TaskType


class Phase(StrEnum):
    """Phase of a workflow, of a node of its DAG, or of one attempt."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ERROR = "Error"
    OMITTED = "Omitted"

    def __init__(self, word: str) -> None:
        # An attribute: a look at a run asks this of every attempt, and a member of an enum is slow to find by its name
        self.ended = word not in ("Pending", "Running")
        """Whether nothing more will happen to what is in this phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a worker as the backend saw it.

    `n` is the attempt number (base of the round included). `oom` is the backend's own evidence: the reason OOMKilled of
    the container `main` with a non-zero exit, or the local supervisor's. `memory` is what it was given, in bytes.
    Times are wall seconds since 1970. A number may come twice, with two pods: one that vanished before it started is made
    again under its number.
    """

    n: int
    phase: Phase
    reason: Reason | None = None
    exit_code: int | None = None
    oom: bool = False
    message: str = ""
    """While it waits, what for; once it has ended, why, as far as somebody said."""
    pod_uid: str = ""
    node: str = ""
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    memory: int | None = None
    leaving: Reason | None = None
    """It was told to leave, and will have ended for this reason, unless the program ends before."""
    preemptor: str = ""
    """Whom it had to make room for."""
    enforced: Literal["cgroup", "polled"] | None = None
    peak: int | None = None
    """Memory at its highest in bytes, page cache included; like the next two only where the backend measures."""
    peak_unreclaimable: int | None = None
    """Highest sample of what the kernel could not have taken back."""
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A worker in the DAG: its phase after retries, and its attempts in order."""

    phase: Phase
    attempts: tuple[Attempt, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendStatus:
    """The state of a workflow. `nodes` by worker name; a worker without a node has not been started."""

    phase: Phase
    message: str = ""
    nodes: Mapping[str, Node] = field(default_factory=dict)
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much there is of a resource and how much of it is in use: processors, bytes of memory, or pieces.

    `given` is None where nobody said a limit, or where we may not look.
    """

    given: float | None
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What pods are admitted through, at one moment. waiting, admitted: pods (of everybody, not of simrun alone)."""

    name: str
    active: bool
    message: str = ""
    waiting: int = 0
    admitted: int = 0
    resources: Mapping[str, Quota] = field(default_factory=dict)
    """By resource: `cpu`, `memory`, or an extended one."""


class Backend(Protocol):
    """What runs the pods of runs. Every call may raise BackendUnavailable; trying again later is right then."""

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        """Start the workflow of a run and give its name; one that exists and is this run's counts as started.

        Raises Conflict when the name is taken by something else.
        """
        ...

    async def status(self, name: str) -> BackendStatus | None:
        """Give the state of a workflow; None only when a consistent read says that it does not exist."""
        ...

    async def stop(self, name: str, *, now: bool = False) -> None:
        """End all pods of a workflow, with their grace (`now`: without); one that does not exist counts as stopped."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a workflow with its pods; one that does not exist counts as removed."""
        ...

    async def reserve(self, run: str) -> str:
        """Take a node for one run alone and give its name."""
        ...

    async def release(self, node: str | None, run: str) -> None:
        """Give a node back, if it is reserved for this run; an unknown node counts as released.

        None: whatever is reserved for the run. A service that was stopped right after a reservation knows no name.
        """
        ...

    async def queues(self) -> list[QueueState]:
        """Give the queues that pods of runs wait in, with what is in use of them."""
        ...

    def logs(self, name: str, worker: str, attempt: int) -> AsyncIterator[bytes]:
        """Give the output of an attempt in chunks; empty when there is none (any more)."""
        ...

    def events(self) -> AsyncIterator[str]:
        """Yield ids of runs of which something changed, for as long as the backend lives."""
        ...


class WatchHealth(Protocol):
    """How a watch does. failures: of its lists and calls; expired: times it had to list anew; drift: changes it did not tell of.

    age_s: seconds since the server was last heard; None: never.
    """

    lists: int
    watches: int
    events: int
    failures: int
    expired: int
    drift: int
    age_s: float | None


@runtime_checkable
class Watching(Protocol):
    """A backend that watches, and says how its watches do."""

    def statistics(self) -> Mapping[str, WatchHealth]:
        """Give how each does, by what it watches."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is where the pods run."""

    user: str
    groups: frozenset[str]


@runtime_checkable
class Reviewing(Protocol):
    """A backend that knows people: their tokens for simrun are told from others'."""

    async def review(self, token: str) -> Identity | None:
        """Say whose token it is, None for one that is not good here. Raises BackendUnavailable, BackendError."""
        ...


@runtime_checkable
class Followed(Protocol):
    """A backend that follows something elsewhere, and may lose sight of it."""

    def trouble(self) -> list[str]:
        """Say what keeps it from being followed; empty when nothing does."""
        ...

    def age_s(self) -> float | None:
        """Give the seconds since it was last heard of; None before it ever was."""
        ...
