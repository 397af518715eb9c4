"""The supervisor: one small process per attempt, which outlives the engine and ends only after everything it started.

It leads a session of its own and adopts every orphan below it, so nothing an attempt starts gets away. It holds the limits
of memory and time, passes SIGTERM on and kills after the grace, and ends the attempt when no engine has been there for
`orphan_s`. What it saw goes to disk before it ends; an engine reads that, this one or a later one. It runs in a fork of
the zygote: one thread, the standard library, no descriptor but /dev/null and a log.

Signals: SIGTERM ends the attempt with its grace, SIGUSR1 at once.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from simrun.backends.local import processes, records, spawning
from simrun.backends.local.limits import Limit, make_limit
from simrun.backends.local.records import TERMINATED_EXIT, Exit, Order, Start
from simrun.backends.local.spawning import StartError
from simrun.backends.local.verdict import Cause, Verdict, verdict

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1)
"""Blocked from before the fork, so that none is missed, and taken one by one."""

_PRESENCE_LOOK_S = 15.0
_WRITE_TRIES_S = 60.0
_FIRST_LOOK_S = 0.05
"""Short commands use memory too."""


def supervise(order: Order) -> NoReturn:
    """Run an attempt to its end and exit; never returns to the zygote's loop."""
    try:
        Supervisor(order).run()
    except BaseException as error:  # noqa: BLE001 - the last place that can say anything
        print(f"supervisor of {order.attempt}: {error!r}", file=sys.stderr, flush=True)
        processes.kill(processes.descendants(os.getpid()))
        os._exit(1)
    os._exit(0)


class Supervisor:
    """The life of one attempt, in the order of its methods."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._main = 0
        self._status: int | None = None
        self._cause: Cause | None = None
        self._kill_at: float | None = None
        self._deadline: float | None = None
        self._look_at: float | None = None
        self._look_s = _FIRST_LOOK_S
        self._presence: bytes | None = None
        self._presence_changed = time.monotonic()
        self._presence_at = 0.0
        self._started = time.time()

    def run(self) -> None:
        """Announce, start, watch, clean up, record."""
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.become_subreaper()
        processes.name_process("simrun-attempt")
        order = self._order
        limit = make_limit(order.memory, order.cgroup, order.uid, whole=not order.harness)
        if not self._announce(limit):
            limit.close()
            return
        if order.files.stopped.exists():
            # Whoever stopped the workflow may have died before it could tell us, or not have heard of us yet
            self._record(self._exit(limit, Verdict("cancelled", TERMINATED_EXIT)))
            limit.close()
            return
        try:
            self._start(limit)
        except StartError as error:
            self._sweep()
            spawning.tell_log(order, str(error))
            record = self._exit(limit, Verdict("start_error", error.code, message=str(error)))
        else:
            self._watch(limit)
            self._sweep()
            record = self._judge(limit)
        trash = spawning.put_scratch_aside(order)
        self._record(record)
        limit.close()
        if trash is not None:
            spawning.remove_scratch(order, trash)

    # --- start ---------------------------------------------------------------------------------------------------------

    def _announce(self, limit: Limit) -> bool:
        """Say who runs this attempt; False when somebody else does."""
        me = processes.this_process()
        start = Start(
            uid=self._order.uid,
            boot=me.boot,
            pid=me.pid,
            start=me.start,
            started=self._started,
            memory=self._order.memory,
            enforced=limit.enforced,
            cgroup=self._order.cgroup,
        )
        return records.write(self._order.files.start, start)

    def _start(self, limit: Limit) -> None:
        """Start the command and the clocks. Raises StartError."""
        self._main = spawning.start(self._order, limit)
        now = time.monotonic()
        if self._order.deadline_s is not None:
            self._deadline = now + self._order.deadline_s
        if limit.interval_s is not None:
            self._look_at = now + self._look_s

    # --- watch ---------------------------------------------------------------------------------------------------------

    def _watch(self, limit: Limit) -> None:
        """Wait for the end of the command, and hold the limits until then."""
        while not self._reap():
            caught = signal.sigtimedwait(SIGNALS, self._pause())
            if caught is not None and caught.si_signo == signal.SIGTERM:
                self._end("asked")
            elif caught is not None and caught.si_signo == signal.SIGUSR1:
                self._end("asked")
                self._kill_at = time.monotonic()
            self._tick(limit)

    def _pause(self) -> float:
        """Give the seconds until something has to be looked at."""
        times = [self._deadline, self._kill_at, self._look_at, self._presence_at]
        due = min(moment for moment in times if moment is not None)
        return max(0.0, due - time.monotonic())

    def _tick(self, limit: Limit) -> None:
        now = time.monotonic()
        if self._look_at is not None and now >= self._look_at:
            if limit.look(os.getpid()):
                self._cause = self._cause or "memory"
                self._kill_all()
            self._look_s = min(2 * self._look_s, limit.interval_s or self._look_s)
            self._look_at = time.monotonic() + self._look_s
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._end("deadline")
        if now >= self._presence_at:
            self._look_for_engine(now)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + 1.0  # again, for what was forked meanwhile
            self._kill_all()

    def _look_for_engine(self, now: float) -> None:
        """End the attempt when the engine's counter has not changed for too long, on this process's own clock."""
        orphan_s = self._order.orphan_s
        self._presence_at = now + min(_PRESENCE_LOOK_S, orphan_s / 10)
        try:
            seen: bytes | None = Path(self._order.presence).read_bytes()
        except OSError:
            seen = self._presence
        if seen != self._presence:
            self._presence, self._presence_changed = seen, now
        elif now - self._presence_changed >= orphan_s:
            self._end("orphaned")

    def _end(self, cause: Cause) -> None:
        """Ask the command to end, once, and remember when to kill it."""
        if self._cause is not None:
            return
        self._cause = cause
        self._kill_at = time.monotonic() + self._order.grace_s
        processes.kill_group(self._main, signal.SIGTERM)

    def _reap(self) -> bool:
        """Take what has ended, adopted orphans too; whether the command itself has."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return self._status is not None
            if pid == self._main:
                self._status = status

    def _kill_all(self) -> None:
        processes.kill(processes.descendants(os.getpid()))

    def _sweep(self) -> None:
        """Kill what the command left, as the end of a container does. No child left means no descendant left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    self._kill_all()
                    pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return
            if pid == self._main:
                self._status = status

    # --- end -----------------------------------------------------------------------------------------------------------

    def _judge(self, limit: Limit) -> Exit:
        if self._status is None:
            raise RuntimeError("the command is gone, and nobody saw how it ended")
        status = os.waitstatus_to_exitcode(self._status)
        judged = verdict(self._order, status, self._cause, killed=limit.killed())
        if judged.reason == "error":
            judged = judged._replace(message=self._last_words())
        return self._exit(limit, judged, status)

    def _exit(self, limit: Limit, judged: Verdict, status: int | None = None) -> Exit:
        peak = limit.peak()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Exit(
            uid=self._order.uid,
            code=judged.code,
            status=status if status is not None and status >= 0 else None,
            signal=-status if status is not None and status < 0 else None,
            reason=judged.reason,
            oom=judged.oom,
            enforced=limit.enforced,
            message=judged.message,
            started=self._started,
            ended=time.time(),
            memory=self._order.memory,
            peak=peak.total,
            peak_unreclaimable=peak.unreclaimable,
            cpu_s=round(used.ru_utime + used.ru_stime, 3),
        )

    def _last_words(self) -> str:
        """Give the last line that a harness wrote to stderr; the log of a bare command speaks for itself."""
        if not self._order.harness:
            return ""
        try:
            with open(self._order.files.errors, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")

    def _record(self, record: Exit) -> None:
        """Put the record on disk. A full disk is waited for a while: without the record the attempt counts as lost."""
        errors = self._order.files.errors
        if self._order.harness and os.path.exists(errors) and not os.path.getsize(errors):
            os.unlink(errors)
        until = time.monotonic() + _WRITE_TRIES_S
        while True:
            try:
                records.write(self._order.files.exit, record)
                return
            except OSError as error:
                if time.monotonic() > until:
                    raise
                print(f"exit record of {self._order.attempt}: {error}", file=sys.stderr, flush=True)
                time.sleep(1.0)
