"""How the memory limit of an attempt is held.

A cgroup of its own is a wall: the kernel kills inside it, and its counter is the evidence. Where none may be made, the
unreclaimable memory of the process tree is looked at five times a second and the tree is killed when it is over. That is
no wall (a process can take more between two looks, and files in a tmpfs that nobody maps are not seen), so the records
say which of the two it was. Limits per process (RLIMIT_AS) are no third way: they leave no evidence.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, Protocol

from simrun.backends.local import footprint, groups, processes
from simrun.backends.local.records import Enforced
from simrun.worker import cgroup

POLL_S = 0.2
SAMPLE_S = 1.0
"""In a cgroup the kernel holds the limit; samples are for the peak only."""

_EXACT_S = 1.0


class Peak(NamedTuple):
    """What an attempt used at most, in bytes; None where it was not seen."""

    total: int | None = None
    unreclaimable: int | None = None


class Limit(Protocol):
    """Holds the memory limit of one attempt."""

    enforced: Enforced | None
    interval_s: float | None
    """How often `look` wants to be called, more often at first; None: never."""

    def inherited(self) -> AbstractContextManager[None]:
        """Put this process under the limit for as long as it takes to start the command, which inherits it."""
        ...

    def look(self, pid: int) -> bool:
        """Measure what descends from `pid`; whether it has to be killed."""
        ...

    def killed(self) -> bool:
        """Whether something was killed for memory by this limit."""
        ...

    def peak(self) -> Peak:
        """Give what was used at most."""
        ...

    def close(self) -> None:
        """Give back what the limit needed, once no process is left under it."""
        ...


class NoLimit:
    """An attempt that may have all the memory there is."""

    enforced: Enforced | None = None
    interval_s: float | None = None

    def inherited(self) -> AbstractContextManager[None]:
        """Nothing to inherit."""
        return nullcontext()

    def look(self, pid: int) -> bool:
        """Nothing is over no limit."""
        del pid
        return False

    def killed(self) -> bool:
        """No limit kills nobody."""
        return False

    def peak(self) -> Peak:
        """Nothing was measured."""
        return Peak()

    def close(self) -> None:
        """Nothing to give back."""


class CgroupLimit:
    """A memory cgroup below `parent` for one attempt, of version 1 or 2."""

    enforced: Enforced | None = "cgroup"
    interval_s: float | None = SAMPLE_S

    def __init__(self, parent: Path, uid: str, memory: int, *, whole: bool = False) -> None:
        """Make it. `whole`: a kill takes all of it (version 2 only). Raises OSError where it may not be made."""
        self._home = groups.home()
        self.directory = groups.group_of(parent, uid)
        os.mkdir(self.directory)
        try:
            groups.set_limit(self.directory, memory, whole=whole)
            self._cgroup = cgroup.at(self.directory)
            self._kills = self._cgroup.oom_kill() or 0
        except BaseException:
            os.rmdir(self.directory)
            raise
        self._highest: int | None = None

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Move this process in, and back to where it was.

        To move the command once it runs would be too late: what it has by then is charged elsewhere for good.
        """
        groups.write(self.directory / "cgroup.procs", "0")
        try:
            yield
        finally:
            groups.write(self._home / "cgroup.procs", "0")

    def look(self, pid: int) -> bool:
        """Take a sample; the kernel does the killing."""
        del pid
        seen = self._cgroup.read().unreclaimable
        if seen is not None:
            self._highest = max(self._highest or 0, seen)
        return False

    def killed(self) -> bool:
        """Whether the kernel's counter rose."""
        return (self._cgroup.oom_kill() or 0) > self._kills

    def peak(self) -> Peak:
        """Give the kernel's high-water mark and the highest sample."""
        return Peak(self._cgroup.read().peak, self._highest)

    def close(self) -> None:
        """Remove the cgroup."""
        groups.remove(self.directory)


class PolledLimit:
    """Looks at the process tree of one attempt."""

    enforced: Enforced | None = "polled"
    interval_s: float | None = POLL_S

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._highest: int | None = None
        self._over = False
        self._exact_at = 0.0

    def inherited(self) -> AbstractContextManager[None]:
        """Nothing to inherit: the tree is found by its root."""
        return nullcontext()

    def look(self, pid: int) -> bool:
        """Measure everything below `pid`; True when it is over the limit.

        The cheap sum counts pages that processes share once for each of them; only when it may matter is the exact one
        asked for, whose price is a walk over all page tables.
        """
        tree = processes.descendants(pid)
        now = time.monotonic()
        memory = footprint.upper_bound(tree)
        if memory > self._memory or (
            len(tree) > 1 and memory > (self._highest or 0) and now >= self._exact_at
        ):
            memory = footprint.proportional(tree)
            self._exact_at = now + _EXACT_S
        elif len(tree) > 1:
            return False  # no exact figure, and none that would matter
        self._highest = max(self._highest or 0, memory)
        self._over = self._over or memory > self._memory
        return memory > self._memory

    def killed(self) -> bool:
        """Whether the tree was over its limit, upon which it is killed."""
        return self._over

    def peak(self) -> Peak:
        """Give the highest sample; the page cache is not seen."""
        return Peak(None, self._highest)

    def close(self) -> None:
        """Nothing to give back."""


def make_limit(memory: int, parent: str | None, uid: str, *, whole: bool) -> Limit:
    """Give the limit of an attempt: in a cgroup below `parent` where one can be made, else polled; none for 0 bytes."""
    if memory <= 0:
        return NoLimit()
    if parent is not None:
        try:
            return CgroupLimit(Path(parent), uid, memory, whole=whole)
        except OSError:
            pass  # the parent is gone, or full: the other way holds the limit too
    return PolledLimit(memory)
