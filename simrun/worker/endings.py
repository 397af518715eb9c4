"""How an attempt ends, when it does not end well: the error carries the exit code and the reason of the report.

    AttemptError
    ├── BadSettingsError     2    environment or settings.json
    ├── SimulationError      3    the simulation failed, or more units than the policy allows
    ├── DeadlineError        3    time limit of the worker
    ├── StoreError           6    run store, inputs, staging
    ├── MemoryKillError    137    the kernel killed the simulation for memory
    ├── MemoryAskedError   137    an earlier attempt was killed for memory: asks for the retry memory
    └── TerminatedError    143    SIGTERM

Whoever finds out raises; only `simrun.worker.main` turns it into an exit code. OSError of the harness's own file work counts
as StoreError there.
"""

from __future__ import annotations

from collections.abc import Sequence

from simrun.worker.protocol import Exit


class AttemptError(Exception):
    """Base of all: `message` for people, `tail` the last lines of the output of what failed."""

    code: Exit = Exit.FAILED
    reason: str = "error"

    def __init__(self, message: str, tail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.tail = list(tail)


class BadSettingsError(AttemptError):
    """Raised when the environment or settings.json says something the harness cannot follow."""

    code = Exit.BAD_SETTINGS


class SimulationError(AttemptError):
    """Raised when the simulation failed in a way that trying the pod again would not change."""


class DeadlineError(AttemptError):
    """Raised when the worker has used up its time limit."""

    reason = "deadline"


class StoreError(AttemptError):
    """Raised when the run store, an input or the scratch directory fails; another pod may fare better."""

    code = Exit.STORE


class MemoryKillError(AttemptError):
    """Raised when the kernel's counter says that it killed in this cgroup, and the simulation ended badly."""

    code = Exit.MEMORY
    reason = "oom"


class MemoryAskedError(AttemptError):
    """Raised before any work when an earlier attempt was killed and this one was not given the retry memory."""

    code = Exit.MEMORY
    reason = "asked"


class TerminatedError(AttemptError):
    """Raised when SIGTERM asked the harness to end."""

    code = Exit.TERMINATED
    reason = "evicted"
