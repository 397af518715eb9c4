"""Killed for memory, then evicted: what earlier attempts of a worker left behind decides whether this one computes.

A workflow engine knows the last exit code only, and a preempted pod leaves none. So an attempt that follows "killed, then
evicted" is started with the first memory, and would be killed again. Each attempt therefore reads what earlier ones of its worker in
this round left, before it computes:

- an earlier kill, or signs of one, and this attempt has less than the retry memory: it exits 137 at once, which makes the
  engine give the next one the retry memory. The report says `asked` and counts no kill.
- a kill whose attempt had the retry memory already, after an earlier kill: it exits 3. More attempts would change nothing.

Kills are what a report says with 137 and a rise of the kernel's counter, and what the service stored in memory/. A rise in
the last heartbeat is a sign: enough to ask, never a kill.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simrun.worker import files, heartbeat
from simrun.worker.endings import MemoryAskedError, SimulationError
from simrun.worker.environment import Environment
from simrun.worker.protocol import GIB, Exit

_MIB = 2**20
_ROUNDING = 4096
"""Memory travels as decimal text in GiB, and a cgroup keeps whole pages."""


class Evidence(NamedTuple):
    """What earlier attempts of a worker left. `kills`: attempt -> memory it had, in bytes, None when nobody says."""

    kills: dict[int, int | None]
    signs: frozenset[int] = frozenset()
    """Attempts whose last heartbeat, or a report without 137, shows a rise of the counter."""


def gather(env: Environment) -> Evidence:
    """Read what attempts of this worker before this one, in this round, left behind."""
    kills: dict[int, int | None] = {}
    signs: set[int] = set()
    for attempt, path in _of_worker(env, env.task_dir.reports, ".json"):
        report = _json(path)
        if report.get("pod_uid") == env.pod_uid or not _kill_count(report):
            continue
        if report.get("exit_code") == Exit.MEMORY and report.get("reason") != "asked":
            kills[attempt] = _larger(kills.get(attempt), _memory(report.get("memory"), "limit"))
        else:
            signs.add(attempt)
    for attempt, path in _of_worker(env, env.task_dir.memory, ""):
        had = _memory(_json(path), "memory")
        if had is None:
            had = _memory(_json(env.task_dir.attempts / f"{path.name}.json"), "memory")
        kills[attempt] = _larger(kills.get(attempt), had)
    for attempt, path in _of_worker(env, env.task_dir.heartbeats, ""):
        if path.name == env.holder:
            continue
        journal = heartbeat.read_journal(files.read(path))
        if journal is not None and (journal.oom_kills or 0) > 0:
            signs.add(attempt)
    return Evidence(kills, frozenset(signs))


def judge(env: Environment, evidence: Evidence, memory: int | None) -> None:
    """Raise what the evidence asks for, if anything. `memory` is what this attempt has, in bytes; None when nobody knows."""
    retry = env.retry_memory
    if retry is None:
        return
    attempts = sorted(evidence.kills)
    for earlier, attempt in itertools.pairwise(attempts):
        had = evidence.kills[attempt]
        if had is not None and had >= retry - _ROUNDING:
            raise SimulationError(
                f"attempt {attempt} was killed for memory again with the retry memory of {_text(retry)}, after attempt "
                f"{earlier}; raise resources.retry_memory"
            )
    if memory is None or memory >= retry - _ROUNDING:
        return
    seen = [*attempts, *sorted(evidence.signs)]
    if seen:
        raise MemoryAskedError(
            f"attempt {seen[0]} was killed for memory, and this one has {_text(memory)}: asks for the retry memory of "
            f"{_text(retry)}"
        )


def _of_worker(env: Environment, directory: Path, suffix: str) -> Iterator[tuple[int, Path]]:
    """Yield the files about this worker's attempts of this round up to this one, with or without a pod uid in the name."""
    name = re.compile(rf"{re.escape(env.worker)}-([0-9]+)(?:\.[^.]+)?{re.escape(suffix)}")
    for entry in sorted(files.listing(directory)):
        if (match := name.fullmatch(entry)) and env.attempt_base <= int(match[1]) <= env.attempt:
            yield int(match[1]), directory / entry


def _json(path: Path) -> dict[str, Any]:
    """Read a file of evidence; one that is damaged or of another make is none."""
    try:
        value = files.read_json(path)
    except ValueError:
        return {}
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: it is no regular file
            raise
        return {}
    return value if isinstance(value, dict) else {}


def _kill_count(report: dict[str, Any]) -> int:
    memory = report.get("memory")
    count = memory.get("oom_kills") if isinstance(memory, dict) else None
    return count if isinstance(count, int) else 0


def _memory(source: Any, name: str) -> int | None:
    value = source.get(name) if isinstance(source, dict) else None
    return value if isinstance(value, int) else None


def _larger(one: int | None, other: int | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return max(known) if known else None


def _text(memory: int) -> str:
    return f"{memory / GIB:g} GiB" if memory >= GIB else f"{memory / _MIB:g} MiB"
