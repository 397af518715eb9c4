"""The errors that simrun raises on purpose.

    SimrunError
    ├── InvalidInput          the user's text is wrong; every problem at once
    │   └── CronError         (simrun.scheduler.cron) an expression that is no schedule
    ├── NotFound              no such run, task or file
    ├── Conflict              the name is taken, or the state does not allow it
    │   └── Gone              what had the name was deleted, and the name is not used again
    ├── Unauthorized          nobody knows who asks
    ├── Forbidden             who asks may not do that
    ├── Exhausted             a limit is reached; trying again later is right
    ├── Locked                another process holds the store
    ├── UnsupportedStore      the file system cannot carry a run store
    ├── DamagedRecord         a record that cannot be read
    ├── UnknownSchema         a file written by a newer simrun
    ├── BackendError          the backend refused, or answered nonsense
    ├── BackendUnavailable    the backend cannot be reached now; trying again is right
    └── Unreachable           there is no `simrun serve` where one was looked for

One tree, so that the command line and the API can turn every one of them into an exit code or a problem document, and
so that anything else that is raised is a bug and looks like one.
"""

from __future__ import annotations

from dataclasses import dataclass


class SimrunError(Exception):
    """Something that simrun expects can go wrong; its text is meant for a person."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in what a user gave.

    `field` is a dotted path (`tasks.sweep.split.workers`), `place` the spot in a file (`sweep.yaml:12:5`).
    """

    field: str
    message: str
    value: str | None = None
    remedy: str | None = None
    place: str | None = None

    def __str__(self) -> str:
        """Give the problem on one line."""
        text = f"{self.field}: {self.message}" if self.field else self.message
        if self.value is not None:
            text += f" (got {self.value})"
        if self.remedy:
            text += f"; {self.remedy}"
        return f"{self.place}: {text}" if self.place else text


class InvalidInput(SimrunError, ValueError):  # noqa: N818 - reads as what it is
    """Raised when what a user gave is wrong; carries all the problems that were found."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))

    @classmethod
    def one(
        cls, field: str, message: str, *, value: object = None, remedy: str | None = None
    ) -> InvalidInput:
        """Make the error of a single problem."""
        shown = None if value is None else repr(value)
        return cls([Problem(field, message, shown, remedy)])


class NotFound(SimrunError, KeyError):  # noqa: N818
    """Raised when a run, a task or a file does not exist."""

    def __str__(self) -> str:
        """Give the text without the quotes that KeyError puts around it."""
        return str(self.args[0]) if self.args else "not found"


class Conflict(SimrunError):  # noqa: N818
    """Raised when a name is taken by something else, or a state does not allow what was asked."""


class Gone(Conflict):
    """Raised when a name belonged to something that was deleted; it is not given to anything else."""


class Unauthorized(SimrunError):  # noqa: N818
    """Raised when a request carries no token, or one that nobody knows."""


class Forbidden(SimrunError):  # noqa: N818
    """Raised when who asks is known and may not do what was asked."""


class Exhausted(SimrunError):  # noqa: N818
    """Raised when a limit of a group or of the service is reached; `retry_after_s` says when to ask again, if anybody knows."""

    def __init__(self, text: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Locked(SimrunError):  # noqa: N818
    """Raised when another process holds the store; the text names it."""


class UnsupportedStore(SimrunError):  # noqa: N818
    """Raised when the file system of a store lacks something that records need, e.g. hard links."""


class DamagedRecord(SimrunError):  # noqa: N818
    """Raised when a record exists and cannot be read; it is never overwritten."""


class UnknownSchema(DamagedRecord):
    """Raised when a file says a schema newer than this simrun knows."""


class BackendError(SimrunError):
    """Raised when the backend refused what was asked for good."""


class BackendUnavailable(SimrunError):  # noqa: N818
    """Raised when the backend cannot be reached or is overloaded now."""


class Unreachable(SimrunError):  # noqa: N818
    """Raised when a server can't be reached, or what answers is no server of simrun."""
