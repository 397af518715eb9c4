"""Points at which a process may be killed: calls that change what another process, or a later start, can see.

A name that is made, moved, linked or removed, a row of the index, an order or a signal to a supervisor, a call of the backend. Production code
knows nothing of this: the functions of `os` and the calls of the engine are wrapped.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from simrun.backends.local.engine import LocalBackend
from simrun.backends.local.launcher import Launcher
from simrun.backends.local.records import Order
from simrun.service.runindex import RunIndex

GAP_S = 0.05
"""After a point that long before the next one something else may happen meanwhile, so there the process dies after it too."""
_REAL_OPEN = builtins.open


class Points:
    """Names what this process does that lasts, writes it down, and ends the process at the point `die_at`."""

    def __init__(self, root: Path, trace: Path, die_at: str | None, begins: str) -> None:
        self._root, self._die_at = root, die_at
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._begins = begins
        self._armed = begins == "start"

    def reached(self, stage: str) -> None:
        """Begin to count, if it is to be from this stage on."""
        self._armed = self._armed or stage == self._begins

    @contextlib.contextmanager
    def around(self, what: str) -> Iterator[None]:
        """Two points: before a call, and after it when it did not raise."""
        if not self._armed:
            yield
            return
        with self._lock:
            self._counts[what] += 1
            number = self._counts[what]
            self._reach("before", what, number)
        yield
        with self._lock:
            self._reach("after", what, number)

    def _reach(self, when: str, what: str, number: int) -> None:
        name = f"{when} {what} #{number}"
        os.write(self._trace, f"{time.monotonic():.4f} {name}\n".encode())
        if name == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    def place(self, path: Any, dir_fd: int | None = None) -> str | None:
        """Give the name of a path for points; None for what is none of the service's business."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{text}"
        for top in ("store", "index"):
            start = f"{self._root}/{top}"
            if text.startswith(start):
                return _plain(text.removeprefix(f"{self._root}/"))
        if text.startswith("/sys/fs/cgroup/"):
            return _plain(f"cgroup/{Path(text).name}")
        return None


def _plain(text: str) -> str:
    """Take out of a path what differs from run to run: process ids, random parts."""
    text = re.sub(r"\.tmp\.[0-9a-f]+\.[0-9.a-f]+", ".tmp", text)
    text = re.sub(r"[0-9a-f]{32}", "UID", text)
    text = re.sub(r"(probe-|(?:workflows|ended)/\.[a-z0-9-]+\.)[0-9]+", r"\1PID", text)
    return re.sub(r"(/dead/.*)\.[0-9a-f]{8}$", r"\1.UID", text)


def instrument(points: Points) -> None:
    """Wrap whatever changes something lasting."""
    _wrap_os(points)
    _wrap_builtin_open(points)
    _wrap_method(points, RunIndex, "put", lambda rows: f"index {' '.join(row.id for row in rows)}")
    _wrap_method(points, Launcher, "send", partial(_describe_order, points))
    real_signal = signal.pidfd_send_signal

    def send(pidfd: int, number: int) -> None:
        with points.around(f"signal {signal.Signals(number).name}"):
            real_signal(pidfd, number)

    signal.pidfd_send_signal = send  # type: ignore[assignment]
    for name in ("submit", "stop", "delete", "reserve", "release"):
        _wrap_coroutine(points, LocalBackend, name)


def _describe_order(points: Points, order: Order) -> str:
    points.reached("ordered")
    return f"order {order.attempt}"


def _wrap_os(points: Points) -> None:
    """Wrap the functions that change names. What would change nothing is no point: a directory that is there already, say."""

    def wrap(name: str, describe: Callable[..., str | None]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **more: Any) -> Any:
            what = describe(*args, **more)
            if what is None:
                return real(*args, **more)
            with points.around(f"{name} {what}"):
                return real(*args, **more)

        setattr(os, name, call)

    def new(path: Any, *_args: Any, dir_fd: int | None = None) -> str | None:
        return None if _is_there(path, dir_fd) else points.place(path, dir_fd)

    def opened(path: Any, flags: int, *args: Any, dir_fd: int | None = None) -> str | None:
        where = new(path, *args, dir_fd=dir_fd) if flags & os.O_CREAT else None
        return None if where is not None and where.endswith("presence") else where

    def old(path: Any, *, dir_fd: int | None = None) -> str | None:
        return points.place(path, dir_fd) if _is_there(path, dir_fd) else None

    def target(_source: Any, path: Any, **more: Any) -> str | None:
        return points.place(path, more.get("dst_dir_fd"))

    wrap("open", opened)
    wrap("mkdir", new)
    for name in ("unlink", "remove", "rmdir"):
        wrap(name, old)
    for name in ("rename", "replace", "link"):
        wrap(name, target)


def _is_there(path: Any, dir_fd: int | None) -> bool:
    try:
        os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _wrap_builtin_open(points: Points) -> None:
    def open_(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        where = None
        if not isinstance(file, int) and set(mode) & set("wax"):
            where = points.place(file)
        if where is None or where.endswith("engine.log"):
            return _REAL_OPEN(file, mode, *args, **more)
        with points.around(f"write {where}"):
            return _REAL_OPEN(file, mode, *args, **more)

    builtins.open = open_  # type: ignore[assignment]


def _wrap_method(points: Points, owner: type, name: str, describe: Callable[[Any], str]) -> None:
    real = getattr(owner, name)

    def method(self: Any, argument: Any) -> Any:
        argument = list(argument) if isinstance(argument, Iterable) else argument
        if argument == []:
            return real(self, argument)
        with points.around(describe(argument)):
            return real(self, argument)

    setattr(owner, name, method)


def _wrap_coroutine(points: Points, owner: type, name: str) -> None:
    real = getattr(owner, name)

    async def method(self: Any, *args: Any, **more: Any) -> Any:
        with points.around(f"backend {name}"):
            return await real(self, *args, **more)

    setattr(owner, name, method)


def points_of(trace: list[tuple[float, str]], *, opening: bool) -> list[str]:
    """Choose the points of a trace: before everything, and after it where the next one lets others go on meanwhile.

    `opening`: those of the opening of store and engine too, which are the same in every scenario.
    """
    chosen = []
    for (at, name), (following, _) in zip(trace, [*trace[1:], (float("inf"), "")], strict=True):
        if not opening and _OPENING.search(name):
            continue
        if name.startswith("before ") or following - at > GAP_S:
            chosen.append(name)
    return chosen


_OPENING = re.compile(r" (store/\.tmp|store/engine/\.tmp|store/simrun\.lock|cgroup/)")
