"""Processes as /proc shows them: who one is, what descends from it, what it left behind.

A process id alone says little, since numbers are used again. Boot id, number and start time together never are.
Linux only, standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_PARENT, _SESSION, _START = 1, 3, 19
"""Fields of /proc/<pid>/stat, counted from the one after the name."""


class Identity(NamedTuple):
    """One process, for as long as anybody remembers it."""

    boot: str
    pid: int
    start: int
    """Clock ticks from boot to its start."""

    def is_alive(self) -> bool:
        """Whether this very process is there, be it as a zombie that nobody has waited for."""
        return self.boot == boot_id() and start_time(self.pid) == self.start


@cache
def boot_id() -> str:
    """Give what names this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def start_time(pid: int) -> int | None:
    """Give when a process started, in clock ticks since boot; None when there is no such process."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else None


def this_process() -> Identity:
    """Give the identity of the caller."""
    pid = os.getpid()
    return Identity(boot_id(), pid, start_time(pid) or 0)


def _stat(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold anything, parentheses too
    return text[text.rindex(")") + 2 :].split()


def _all() -> Iterable[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def children(pid: int) -> list[int]:
    """Give the children of a process, zombies too."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    except ProcessLookupError:
        pass  # it ended while we looked
    except FileNotFoundError:
        if os.path.exists(f"/proc/{pid}/task"):
            return _children_by_scan(
                pid
            )  # a kernel built without CONFIG_PROC_CHILDREN, or a thread that ended
    return found


def _children_by_scan(pid: int) -> list[int]:
    parents = ((other, _stat(other)) for other in _all())
    return [other for other, fields in parents if fields and int(fields[_PARENT]) == pid]


def descendants(pid: int) -> list[int]:
    """Give everything that descends from a process, parents before their children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children(waiting.pop())
        found += below
        waiting += below
    return found


def leftovers(uid: str, session: int) -> list[int]:
    """Give the processes that a supervisor which died left behind.

    They are known by SIMRUN_POD_UID in their environment, or by the session that the supervisor led: its number is not
    used again while a process of that session lives. Neither a daemon nor a cleared environment hides from both.
    """
    mark = f"SIMRUN_POD_UID={uid}".encode()
    reused = start_time(session) is not None
    found = []
    for pid in _all():
        if pid == os.getpid():
            continue
        fields = _stat(pid)
        if fields is None:
            continue
        if (not reused and int(fields[_SESSION]) == session) or mark in _environment(pid):
            found.append(pid)
    return found


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # ended, or somebody else's


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to processes; those that are gone, or that we may not touch, are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group; an empty one is fine."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def warm_up() -> None:
    """Find out now what every fork of this process will ask for."""
    _libc()
    boot_id()


def become_subreaper() -> None:
    """Become the parent of every orphan below this process, so that none gets away by making itself a daemon."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """Set the name that ps and top show; the kernel keeps 15 bytes."""
    _libc().prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)


def _prctl(option: int, value: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
