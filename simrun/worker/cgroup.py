"""Memory as the kernel counts it for this process's cgroup, version 1 and 2.

Sizes are planned from memory that the kernel could not have taken back, since the high-water mark of a cgroup includes page
cache and reaches the limit whenever a simulation writes a big file. A kill is a rise of `oom_kill`, nothing else: the counters of
pressure (`failcnt`, `max`) rise in perfectly healthy attempts.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simrun.worker.cgroup_mounts import UNIFIED, find_places

_NO_LIMIT = 2**62
"""Version 1 writes "no limit" as the highest multiple of a page."""


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
    """Directory with cpuacct.usage (version 1) or cpu.stat (version 2); None when its cpu time is not that of `memory`."""

    def read(self) -> Reading:
        """Read all counters; those that cannot be read are None."""
        if self.version == 1:
            return Reading(
                current=_number(self.memory / "memory.usage_in_bytes"),
                peak=_number(self.memory / "memory.max_usage_in_bytes"),
                unreclaimable=_unreclaimable_v1(_table(self.memory / "memory.stat")),
                oom_kill=_table(self.memory / "memory.oom_control").get("oom_kill"),
                cpu_usec=self._cpu_usec(),
            )
        swap = _number(self.memory / "memory.swap.current") or 0
        return Reading(
            current=_number(self.memory / "memory.current"),
            peak=_number(self.memory / "memory.peak"),
            unreclaimable=_unreclaimable_v2(_table(self.memory / "memory.stat"), swap),
            oom_kill=_table(self.memory / "memory.events").get("oom_kill"),
            cpu_usec=self._cpu_usec(),
        )

    def oom_kill(self) -> int | None:
        """Read how many processes the kernel has killed here for memory; None when it doesn't say."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return _table(self.memory / name).get("oom_kill")

    def limit(self) -> int | None:
        """Give the memory limit that holds: the lowest of this cgroup and its ancestors; None when there is none."""
        limits = [_limit(directory / self._limit_name) for directory in self._lineage()]
        if self.version == 1:
            # Counts the ancestors that can't be seen from inside a container too
            limits.append(
                _bounded(_table(self.memory / "memory.stat").get("hierarchical_memory_limit"))
            )
        return min((limit for limit in limits if limit is not None), default=None)

    def own_limit(self) -> int | None:
        """Give the limit of this very cgroup; None when it has none."""
        return _limit(self.memory / self._limit_name)

    def is_of(self, memory: int) -> bool:
        """Whether this cgroup was made for an attempt with that much memory: its own limit is that, to the page.

        Without a cgroup of its own an attempt sees the one it shares with others, whose peaks and kills say nothing of it.
        """
        limit = self.own_limit()
        return limit is not None and abs(limit - memory) < os.sysconf("SC_PAGE_SIZE")

    @property
    def _limit_name(self) -> str:
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    def _lineage(self) -> list[Path]:
        """Give this directory and those above it, up to the mount point."""
        lineage = [self.memory]
        while lineage[-1] != self.mount and self.mount in lineage[-1].parents:
            lineage.append(lineage[-1].parent)
        return lineage

    def _cpu_usec(self) -> int | None:
        if self.cpu is None:
            return None
        if (usec := _table(self.cpu / "cpu.stat").get("usage_usec")) is not None:
            return usec
        nanoseconds = _number(self.cpu / "cpuacct.usage")
        return None if nanoseconds is None else nanoseconds // 1000


def _unreclaimable_v1(stat: dict[str, int]) -> int | None:
    if "total_rss" not in stat:
        return None
    return sum(stat.get(name, 0) for name in ("total_rss", "total_shmem", "total_swap"))


def _unreclaimable_v2(stat: dict[str, int], swap: int) -> int | None:
    if "anon" not in stat:
        return None
    # Kernels before 5.18 don't tell the kernel's share as one figure
    parts = ("kernel_stack", "pagetables", "percpu", "sock", "slab")
    kernel = stat["kernel"] if "kernel" in stat else sum(stat.get(name, 0) for name in parts)
    return stat["anon"] + stat.get("shmem", 0) + kernel - stat.get("slab_reclaimable", 0) + swap


def find(proc: Path = Path("/proc/self")) -> Cgroup | None:
    """Find the memory cgroup of this process; None when none is mounted. Memory on version 1 wins in a hybrid set-up."""
    places = find_places(proc, "memory", "cpuacct", UNIFIED)
    if (place := places.get("memory")) is not None:
        cpu = places.get("cpuacct")
        own_cpu = cpu.directory if cpu is not None and cpu.path == place.path else None
        return Cgroup(1, place.directory, place.mount, own_cpu)
    place = places.get(UNIFIED)
    # The root has no memory.current: it is the whole machine
    if place is not None and (place.directory / "memory.current").exists():
        return Cgroup(2, place.directory, place.mount, place.directory)
    return None


def at(directory: Path, mount: Path | None = None) -> Cgroup:
    """Give the cgroup of a memory directory, whose files tell the version; `mount` bounds the ancestors that are seen."""
    version: Literal[1, 2] = 1 if (directory / "memory.usage_in_bytes").exists() else 2
    return Cgroup(version, directory, mount or directory, directory if version == 2 else None)


class Meter:
    """Measures an attempt: peaks over samples, and rises since it was made. Safe to use from several threads.

    Without a cgroup everything is None and no kill is counted: absence of evidence.
    """

    def __init__(self, cgroup: Cgroup | None) -> None:
        self._cgroup = cgroup
        self._lock = threading.Lock()
        self._limit = cgroup.limit() if cgroup else None
        self._first = cgroup.read() if cgroup else Reading()
        self._first_process_s = _process_cpu_s()
        self._peak: int | None = None
        self._peak_unreclaimable: int | None = None
        self._samples = 0
        self.sample()

    def sample(self) -> Reading:
        """Take a sample; to be called about twice a second while something runs (heartbeat.Ticker)."""
        if self._cgroup is None:
            return Reading()
        reading = self._cgroup.read()
        with self._lock:
            self._samples += 1
            # Where the kernel keeps no high-water mark the highest sample stands for it
            self._peak = _higher(self._peak, _higher(reading.peak, reading.current))
            self._peak_unreclaimable = _higher(self._peak_unreclaimable, reading.unreclaimable)
        return reading

    def oom_kills(self) -> int:
        """Read now how many kills for memory the kernel counted since the meter was made; 0 where it cannot be known."""
        now = self._cgroup.oom_kill() if self._cgroup else None
        return _rise(self._first.oom_kill, now) or 0

    def cpu_s(self) -> float:
        """Give the cpu seconds since the meter was made; where no cgroup tells, of this process and its ended children."""
        usec = _rise(self._first.cpu_usec, self.sample().cpu_usec)
        return _process_cpu_s() - self._first_process_s if usec is None else usec / 1e6

    def journal(self) -> dict[str, int | None]:
        """Take a sample and give the measured fields of heartbeat.Journal."""
        reading = self.sample()
        with self._lock:
            return {
                "limit": self._limit,
                "current": reading.current,
                "peak": self._peak,
                "unreclaimable": reading.unreclaimable,
                "peak_unreclaimable": self._peak_unreclaimable,
                "cpu_usec": _rise(self._first.cpu_usec, reading.cpu_usec),
                "oom_kills": _rise(self._first.oom_kill, reading.oom_kill),
            }

    def memory_use(self) -> dict[str, int | None]:
        """Take a sample and give the report's `memory`: limit, peak, peak_unreclaimable, oom_kills, samples."""
        self.sample()
        kills = self.oom_kills()
        with self._lock:
            return {
                "limit": self._limit,
                "peak": self._peak,
                "peak_unreclaimable": self._peak_unreclaimable,
                "oom_kills": kills,
                "samples": self._samples,
            }


def _process_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _higher(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _rise(first: int | None, now: int | None) -> int | None:
    return None if first is None or now is None else max(now - first, 0)


# --- files of the kernel ---------------------------------------------------------------------------------------------------


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None  # an older kernel, or a cgroup that has gone


def _lines(path: Path) -> list[str]:
    return (_text(path) or "").splitlines()


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:
        return None


def _table(path: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _limit(path: Path) -> int | None:
    """Read a limit; `max`, and what isn't there, is none."""
    return _bounded(_number(path))


def _bounded(limit: int | None) -> int | None:
    return None if limit is None or limit >= _NO_LIMIT else limit
