"""What can ask the harness to stop while it waits: SIGTERM, or its time limit.

A signal handler runs in the main thread between any two instructions, perhaps while that thread holds a lock, so handler and
threads only set plain attributes and ring a bell: a pipe that the main thread waits at. Nothing is raised from the
handler; the main thread asks at places where it can stop (`check`, `wait`).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

from simrun.worker.endings import AttemptError, DeadlineError, TerminatedError

_REPORT_SHARE = 0.25
_REPORT_MAX_S = 5.0


class Bell:
    """A pipe that signal handlers and threads ring and the main thread waits at."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def ring(self) -> None:
        """End the wait that is under way, or the next one."""
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # rung 65,536 times and not heard yet

    def wait(self, seconds: float | None) -> None:
        """Wait until the bell rings, at most `seconds`."""
        if self._poll.poll(None if seconds is None else max(0.0, seconds * 1000)):
            os.read(self._read, 65536)

    def close(self) -> None:
        """Give the pipe back; nobody may ring any more."""
        os.close(self._read)
        os.close(self._write)


class Stopper:
    """Knows whether the attempt has to stop, why, and how long its simulation may still take for it.

    `grace_s`: what the pod is given after SIGTERM. `timeout_s`: time limit of the worker, counted from `started`, on the
    clock `now`.
    """

    def __init__(
        self,
        *,
        grace_s: float,
        timeout_s: float | None = None,
        started: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bell = Bell()
        self.now = now
        self.grace_s = grace_s
        self._timeout_s = timeout_s
        start = now() if started is None else started
        self._deadline = None if timeout_s is None else start + timeout_s
        self._terminated_at: float | None = None

    def install(self) -> None:
        """Take SIGTERM and SIGINT. A mask inherited from whoever started the harness must not hold them back."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._terminated_at is None:
            self._terminated_at = self.now()
        self.bell.ring()

    @property
    def terminated(self) -> bool:
        """Whether SIGTERM has come."""
        return self._terminated_at is not None

    def requested(self) -> AttemptError | None:
        """Give why the attempt has to stop; None while it has not to."""
        if self.terminated:
            return TerminatedError("ended by SIGTERM")
        if self._deadline is not None and self.now() >= self._deadline:
            return DeadlineError(f"the worker has used up its time limit of {self._timeout_s:g} s")
        return None

    def check(self) -> None:
        """Raise why the attempt has to stop, if it has."""
        if (error := self.requested()) is not None:
            raise error

    def wait(self, seconds: float | None = None) -> None:
        """Wait, at most `seconds`, until something happens; raise if it means to stop."""
        self.check()
        self.bell.wait(self.at_most(seconds))
        self.check()

    def at_most(self, seconds: float | None) -> float | None:
        """Shorten a time to wait to what is left until the time limit."""
        if self._deadline is None:
            return seconds
        left = max(0.0, self._deadline - self.now())
        return left if seconds is None else min(left, seconds)

    def kill_at(self) -> float:
        """Give when a simulation that was just asked to end is killed, so that there is time left for the report."""
        if self._terminated_at is None:
            return self.now() + self.grace_s
        return self._terminated_at + self.grace_s - min(_REPORT_MAX_S, _REPORT_SHARE * self.grace_s)
