"""Memory as the kernel counts it for this process's cgroup, version 1 and 2.

Sizes are planned from memory that the kernel could not have taken back, since the high-water mark of a cgroup includes page
cache and reaches the limit whenever a simulation writes a big file. A kill is a rise of `oom_kill`, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a cgroup, in bytes; None where the kernel has no such file."""

    current: int | None = None
    peak: int | None = None
    unreclaimable: int | None = None
    oom_kill: int | None = None
    cpu_usec: int | None = None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The directories of one cgroup."""

    version: Literal[1, 2]
    memory: Path
    """Directory with the memory files."""
    mount: Path
    """Mount point of that hierarchy: the highest visible ancestor."""
    cpu: Path | None = None
    """Directory with cpuacct.usage (version 1) or cpu.stat (version 2)."""

    def read(self) -> Reading:
        """Read all counters; those that cannot be read are None."""
        raise NotImplementedError

    def limit(self) -> int | None:
        """Give the memory limit that holds: the lowest of this cgroup and its ancestors; None when there is none."""
        raise NotImplementedError

    def own_limit(self) -> int | None:
        """Give the limit of this very cgroup; None when it has none."""
        raise NotImplementedError

    def is_of(self, memory: int) -> bool:
        """Whether this cgroup was made for an attempt with that much memory: its own limit is that, to the page.

        Without a cgroup of its own an attempt sees the one it shares with others, whose peaks and kills say nothing of it.
        """
        raise NotImplementedError


def find(proc: Path = Path("/proc/self")) -> Cgroup | None:
    """Find the memory cgroup of this process; None when none is mounted. Memory on version 1 wins in a hybrid set-up."""
    raise NotImplementedError


def at(directory: Path) -> Cgroup:
    """Give the cgroup of a directory whose version its files tell."""
    raise NotImplementedError


class Meter:
    """Measures an attempt: peaks over samples, and rises since it was made. Safe to use from several threads.

    Without a cgroup everything is None and no kill is counted: absence of evidence.
    """

    def __init__(self, cgroup: Cgroup | None) -> None:
        raise NotImplementedError

    def sample(self) -> Reading:
        """Take a sample; to be called about twice a second while something runs (heartbeat.Ticker)."""
        raise NotImplementedError

    def oom_kills(self) -> int:
        """Read now how many kills for memory the kernel counted since the meter was made; 0 where it cannot be known."""
        raise NotImplementedError

    def cpu_s(self) -> float | None:
        """Give the cpu seconds since the meter was made."""
        raise NotImplementedError

    def journal(self) -> dict[str, int | None]:
        """Take a sample and give the measured fields of heartbeat.Journal."""
        raise NotImplementedError

    def memory_use(self) -> dict[str, int | None]:
        """Take a sample and give the report's `memory`: limit, peak, peak_unreclaimable, oom_kills, samples."""
        raise NotImplementedError
