"""Memory of a process tree, for attempts that have no cgroup of their own.

On a local machine where no cgroup may be made, the cgroup that an attempt sees is shared with others, and its figures say nothing of
the attempt. What /proc says of the harness's processes is the next best: sampled, so it misses short peaks, and no
evidence of a kill.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

_PAGE = os.sysconf("SC_PAGESIZE")
_SHARED_FIELDS = {"Pss:": "total", "Pss_Anon:": "own", "Pss_Shmem:": "own"}


class Use(NamedTuple):
    """Bytes of some processes. `own` is what the kernel could not take back: anonymous and shared memory."""

    total: int = 0
    own: int = 0

    def __add__(self, other: object) -> Use:
        """Sum up."""
        if not isinstance(other, Use):
            return NotImplemented
        return Use(self.total + other.total, self.own + other.own)


def tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """Give the process ids of `root` and its descendants, as far as they still live."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        try:
            threads = os.listdir(proc / str(pid) / "task")
        except OSError:
            continue  # it has ended
        for thread in threads:
            try:
                children = (proc / str(pid) / "task" / thread / "children").read_text()
            except OSError:
                continue
            waiting += [int(child) for child in children.split()]
    return found


def resident(pids: list[int], proc: Path = Path("/proc")) -> Use:
    """Sum what is resident: cheap to read, but counts a page once for every process that shares it."""
    use = Use()
    for pid in pids:
        try:
            _, pages, shared, *_ = (proc / str(pid) / "statm").read_text().split()
        except (OSError, ValueError):
            continue
        use += Use(int(pages) * _PAGE, (int(pages) - int(shared)) * _PAGE)
    return use


def proportional(pids: list[int], proc: Path = Path("/proc")) -> Use | None:
    """Sum what is resident with shared pages counted once; None when the kernel doesn't say.

    Dear for big processes, whose page tables the kernel walks for it.
    """
    use = Use()
    for pid in pids:
        try:
            text = (proc / str(pid) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
        sums = {"total": 0, "own": 0}
        for line in text.splitlines():
            name, *rest = line.split()
            if name in _SHARED_FIELDS and rest:
                sums[_SHARED_FIELDS[name]] += int(rest[0]) * 1024
        use += Use(**sums)
    return use


class TreeMeter:
    """Measures the harness and what it runs as `simrun.worker.cgroup.Meter` measures a cgroup. Safe to use from threads.

    `limit`: the memory that this attempt was given, in bytes.
    """

    def __init__(self, limit: int | None, *, root: int | None = None) -> None:
        self._limit = limit
        self._root = os.getpid() if root is None else root
        self._peak = Use()
        self._samples = 0
        self._lock = threading.Lock()

    def sample(self) -> Use:
        """Take a sample; pages are attributed exactly only where that could make a new peak."""
        pids = tree(self._root)
        use = resident(pids)
        if use.own > self._peak.own or use.total > self._peak.total:
            use = proportional(pids) or use
        with self._lock:
            self._samples += 1
            self._peak = Use(max(self._peak.total, use.total), max(self._peak.own, use.own))
        return use

    def oom_kills(self) -> int:
        """Give 0: without a cgroup nobody counts."""
        return 0

    def cpu_s(self) -> float | None:
        """Give the cpu seconds of this process and of the children that have ended."""
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def journal(self) -> dict[str, int | None]:
        """Take a sample and give the measured fields of heartbeat.Journal."""
        use = self.sample()
        return {
            "limit": self._limit,
            "current": use.total,
            "peak": self._peak.total,
            "unreclaimable": use.own,
            "peak_unreclaimable": self._peak.own,
            "cpu_usec": int((self.cpu_s() or 0) * 1e6),
            "oom_kills": None,
        }

    def memory_use(self) -> dict[str, Any]:
        """Take a sample and give the report's `memory`."""
        self.sample()
        return {
            "limit": self._limit,
            "peak": self._peak.total,
            "peak_unreclaimable": self._peak.own,
            "oom_kills": 0,
            "samples": self._samples,
        }
