"""Signs of life: each holder rewrites a small record; others judge by whether its bytes change, on their own clock.

No time stamp of another machine is ever compared, so no clock has to be right. The record carries the memory journal as well,
so that a kill which takes the harness with it leaves what was measured up to the last beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from simrun.worker.protocol import HEARTBEAT_S, TaskDir

RECORD_BYTES = 512


def boottime() -> float:
    """Give seconds since the start of this machine, including time it was suspended."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Journal:
    """What a beat says. Bytes; None where nothing could be measured."""

    seq: int
    unix: float
    boottime: float
    limit: int | None = None
    current: int | None = None
    peak: int | None = None
    unreclaimable: int | None = None
    peak_unreclaimable: int | None = None
    cpu_usec: int | None = None
    """CPU time since the attempt began."""
    oom_kills: int | None = None
    """Rise of the kernel's oom_kill counter since the attempt began."""


def read_journal(data: bytes | None) -> Journal | None:
    """Take a heartbeat's bytes apart; None when there are none, or when they are torn or of another make."""
    raise NotImplementedError


class Ticker:
    """Calls a function at once and then every `interval` seconds, from a thread of its own, until stopped.

    An exception of the function doesn't end the thread: it is kept in `error` until a later call succeeds.
    """

    def __init__(self, name: str, action: Callable[[], object], interval: float) -> None:
        raise NotImplementedError

    @property
    def error(self) -> Exception | None:
        """What the last call raised; None when it succeeded."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the thread; the first call is made in it."""
        raise NotImplementedError

    def stop(self, timeout: float | None = 5.0) -> None:
        """Let no further call begin, and wait for the one under way at most `timeout` seconds."""
        raise NotImplementedError


class Heartbeat:
    """The record of one holder under heartbeats/. `measure` gives the fields of Journal below boottime, by name.

    The first beat is made by `start` itself, so that a holder is seen alive before it claims; the rest by a thread.
    """

    def __init__(
        self,
        task_dir: TaskDir,
        holder_name: str,
        measure: Callable[[], dict[str, int | None]],
        *,
        interval: float = HEARTBEAT_S,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Make the first beat, durably (OSError when the store fails), and start the thread."""
        raise NotImplementedError

    def beat(self) -> None:
        """Make one beat now: before a claim that may be the last thing this process does."""
        raise NotImplementedError

    def silent_for(self) -> float:
        """Give the seconds since the last beat that reached the store."""
        raise NotImplementedError

    def stop(self) -> None:
        """Make a last beat if the store lets it, and end the thread."""
        raise NotImplementedError


class Watcher:
    """Judges the heartbeats of others: a holder is stale when its bytes did not change for `stale_s` seconds.

    A holder without a heartbeat is judged like one that never changes. A long pause between two looks of this watcher itself
    (it was suspended, the store hung) counts as one short one, since whoever was paused with it could not beat.
    """

    def __init__(
        self, task_dir: TaskDir, stale_s: float, *, clock: Callable[[], float] = boottime
    ) -> None:
        raise NotImplementedError

    def look(self, holder_names: Iterable[str]) -> set[str]:
        """Read the heartbeats of these holders and give the stale ones; forgets those that are not asked for any more."""
        raise NotImplementedError


def heartbeat_path(task_dir: TaskDir, holder_name: str) -> Path:
    """Give where the heartbeat of a holder is."""
    return task_dir.heartbeats / holder_name
