"""A term of leadership: for how long, and with which number, this process may write what belongs to one writer.

The number (epoch) goes into every record and grows with each new leader, so that a record tells who wrote it last and refuses who came
before. The time is checked besides, since a paused process wakes up without a notion that its term has passed.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from simrun.base.errors import BackendUnavailable, SimrunError

T = TypeVar("T")


class NotLeading(BackendUnavailable):
    """Raised when something that only a leader may do is about to be done without a valid term."""


class LeadershipLost(SimrunError):  # noqa: N818 - reads as what it is
    """Raised when a leader could not renew its term in time, or somebody else leads."""


class Term(Protocol):
    """The term of this process; cheap to ask, from any thread."""

    @property
    def epoch(self) -> int | None:
        """Number of the term; None where none is needed: a lock, held for as long as this process lives, does without."""
        ...

    def valid(self) -> bool:
        """Whether this process leads now."""
        ...


class Election(Protocol[T]):
    """How one of several processes comes to lead."""

    @property
    def leader(self) -> str:
        """Who leads, as far as is known; "" for nobody."""
        ...

    async def acquire(self) -> T:
        """Wait until this process leads."""
        ...

    def holding(self, term: T) -> AbstractAsyncContextManager[Term]:
        """Lead until left. Raises LeadershipLost once what runs inside was cancelled and has ended."""
        ...

    async def release(self) -> None:
        """Give leadership back without having led."""
        ...


class Unlimited:
    """The term of who holds the store's lock."""

    epoch: int | None = None

    def valid(self) -> bool:
        """Hold for as long as the process lives."""
        return True


UNLIMITED = Unlimited()


def check(term: Term, what: str) -> None:
    """Raise NotLeading, which names `what`, when the term is over."""
    if not term.valid():
        raise NotLeading(f"{what} is left to whoever leads now: this process does not any more")
