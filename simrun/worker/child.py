"""Runs one program of a task: a unit, a merge, or the whole of an unsplit task.

The program runs in a process group of its own, so that everything it started can be ended with it, and so that a signal for
the harness's group reaches it through the harness alone. Its oom_score_adj is raised: when memory runs out the kernel is to
take the simulation, not the harness, which has to say what happened. Threads carry the output and wait for the end; the main
thread waits at the stopper's bell, where SIGTERM, time limits and the end of the program all arrive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from simrun.worker.endings import AttemptError
from simrun.worker.log import Log, Pump
from simrun.worker.stopping import Stopper

_CANNOT_START = 127
_VICTIM_FIRST = b"1000"


class Outcome(NamedTuple):
    """How a program ended. `exit_code` or `signal` is set; `stopped`: it ended because the attempt has to."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    stopped: AttemptError | None = None
    oom_kills: int = 0
    """Rise of the kernel's counter of kills for memory while it ran."""
    message: str = ""
    tail: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.exit_code == 0 and not self.timed_out and self.stopped is None

    @property
    def killed_for_memory(self) -> bool:
        """Whether the kernel killed in it for memory and it did not get over that, whatever code came of it.

        A program that hangs until a time limit because one of its processes was killed counts; not one that SIGTERM
        ended (Ruling 40).
        """
        if self.oom_kills <= 0 or self.ok:
            return False
        return self.stopped is None or self.stopped.reason == "deadline"


class Runner(NamedTuple):
    """What running a program needs, besides the program. `oom_kills` reads the kernel's counter."""

    log: Log
    stopper: Stopper
    oom_kills: Callable[[], int]

    def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout_s: float | None = None,
    ) -> Outcome:
        """Run a program to its end. OSError only where the harness's own means fail, not for a program that can't start."""
        kills_before = self.oom_kills()
        try:
            process = self._start(command, cwd, env)
        except OSError as error:
            if error.filename != command[0]:
                raise  # no more processes, no directory: not the program's fault
            message = f"cannot start {command[0]!r}: {error.strerror}"
            self.log.say(message)
            return Outcome(exit_code=_CANNOT_START, message=message)
        assert process.stdout is not None
        pump = Pump(os.dup(process.stdout.fileno()), self.log)
        process.stdout.close()
        pump.start()
        ended = _watch(process.pid, self.stopper)
        timed_out, stopped = self._wait(process.pid, ended, timeout_s)
        _kill_group(process.pid, signal.SIGKILL)  # what it left behind
        _, status, _ = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        _reap_orphans()
        tail = pump.finish()
        code = process.returncode
        outcome = Outcome(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            stopped=stopped,
            oom_kills=self.oom_kills() - kills_before,
            tail=tail,
        )
        return outcome._replace(message=_message(outcome, timeout_s))

    def _start(
        self, command: Sequence[str], cwd: Path, env: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            process_group=0,
        )
        try:
            fd = os.open(f"/proc/{process.pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return process  # it has ended already, or there is no /proc
        try:
            os.write(fd, _VICTIM_FIRST)
        except OSError:
            pass  # then the kernel takes the biggest, which is the simulation as well
        finally:
            os.close(fd)
        return process

    def _wait(
        self, pid: int, ended: threading.Event, timeout_s: float | None
    ) -> tuple[bool, AttemptError | None]:
        """Wait for the end; ask the group to end at a time limit or when the attempt has to stop, kill it after its grace."""
        stopper = self.stopper
        limit = None if timeout_s is None else stopper.now() + timeout_s
        timed_out, stopped, kill_at = False, None, None
        while not ended.is_set():
            if stopped is None and (request := stopper.requested()) is not None:
                stopped, kill_at = request, stopper.kill_at()
                self.log.say(f"ending the simulation: {request}")
                _kill_group(pid, signal.SIGTERM)
            elif stopped is None and not timed_out and limit is not None and stopper.now() >= limit:
                timed_out, kill_at = True, stopper.kill_at()
                self.log.say(f"ending the simulation: time limit of {timeout_s:g} s")
                _kill_group(pid, signal.SIGTERM)
            elif kill_at is not None and stopper.now() >= kill_at:
                _kill_group(pid, signal.SIGKILL)
                kill_at = None
            if ended.is_set():
                break
            times = [at for at in (kill_at, None if timed_out else limit) if at is not None]
            pause = min(times) - stopper.now() if times else None
            stopper.bell.wait(pause if stopped is not None else stopper.at_most(pause))
        if stopped is None and stopper.terminated:
            # Whoever sent SIGTERM may have sent it to the simulation too, so a good exit code proves nothing
            stopped = stopper.requested()
        return timed_out, stopped


def _watch(pid: int, stopper: Stopper) -> threading.Event:
    """Wait for the end of a process in a thread. It is left unreaped, so that the number of its group stays its own."""
    ended = threading.Event()

    def wait() -> None:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended.set()
        stopper.bell.ring()

    threading.Thread(target=wait, name="waiter", daemon=True).start()
    return ended


def _kill_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # nobody is left, or only processes that became another user's


def _reap_orphans() -> None:
    """As process 1 of a container the harness inherits what programs left; give their process numbers back."""
    if os.getpid() != 1:
        return
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # there are none


def _message(outcome: Outcome, timeout_s: float | None) -> str:
    if outcome.stopped is not None:
        return outcome.stopped.message
    if outcome.timed_out:
        return f"ran longer than its time limit of {timeout_s:g} s"
    if outcome.signal is not None:
        try:
            name = signal.Signals(outcome.signal).name
        except ValueError:
            name = f"signal {outcome.signal}"
        return f"killed by {name}"
    return f"ended with exit code {outcome.exit_code}" if outcome.exit_code else ""
