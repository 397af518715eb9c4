"""What the harness says of one attempt, as the service reads it; and what the service keeps of every attempt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simrun.model.base import StoredModel

Reason = Literal[
    "completed",
    "error",
    "oom",
    "evicted",
    "preempted",
    "lost",
    "deadline",
    "start_error",
    "asked",
    "cancelled",
]


class MemoryUse(StoredModel):
    """Bytes, as the cgroup of the attempt counted them; None where nothing could be measured."""

    limit: int | None = None
    peak: int | None = None
    """High-water mark of the cgroup, page cache included: an upper bound."""
    peak_unreclaimable: int | None = None
    """Highest sample of what the kernel could not have taken back: what sizes are planned from."""
    oom_kills: int = 0
    """Rise of the kernel's oom_kill counter during the attempt."""
    samples: int = 0


class UnitCounts(StoredModel):
    """What became of the units that this attempt touched."""

    done: int = 0
    failed: int = 0
    faults: int = 0
    lost: int = 0
    """Computed, but another holder had committed first."""


class WorkerReport(StoredModel):
    """reports/<worker>-<attempt>.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    protocol: int = 0
    """HARNESS_PROTOCOL of the harness that wrote it; 0 is one from before rounds."""
    harness: str = ""
    run: str
    task: str
    worker: str
    attempt: int
    role: str = "base"
    pod_uid: str = ""
    node: str = ""
    exit_code: int
    reason: Reason
    message: str = ""
    started: float
    ended: float
    """Wall times in seconds since 1970 UTC, on the clock of the node."""
    cpu_s: float | None = None
    cpus: float | None = None
    memory: MemoryUse = MemoryUse()
    units: UnitCounts = UnitCounts()
    merged: bool = False
    tail: list[str] = []
    """Last lines of the output of what failed."""


class AttemptEvidence(StoredModel):
    """attempts/<worker>-<attempt>.json: everything that was seen of an attempt, since pods go and take it with them."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    worker: str
    attempt: int
    pod_uid: str = ""
    node: str = ""
    reason: Reason | None = None
    """None while it runs."""
    leaving: Reason | None = None
    """It was told to leave for this reason while it ran."""
    preemptor: str = ""
    """Whom it had to make room for."""
    message: str = ""
    exit_code: int | None = None
    oom: bool = False
    enforced: Literal["cgroup", "polled"] | None = None
    """How the local engine holds the memory limit."""
    memory: int | None = None
    """Memory that the attempt was given, in bytes."""
    peak_memory: int | None = None
    """Highest unreclaimable memory in bytes, where the backend measures it."""
    cpu_s: float | None = None
    """Processor time, likewise."""
    created: float | None = None
    started: float | None = None
    ended: float | None = None


class Observation(StoredModel):
    """resources/<type>/<run>-<task>-<worker>-<attempt>.json: what an attempt used against what it was given."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    type: str
    run: str
    task: str
    worker: str
    attempt: int
    image: str | None = None
    given_memory: int
    peak_memory: int | None = None
    """Highest unreclaimable memory in bytes; of a kill for memory the limit, which is a lower bound."""
    oom: bool = False
    reason: Reason = "completed"
    """How the attempt ended; the peak of one that did not complete is a lower bound."""
    given_cpus: float | None = None
    cpu_s: float | None = None
    wall_s: float | None = None
    size_hint: float | None = None
    at: float
