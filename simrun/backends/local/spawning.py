"""Starting the command of an attempt: its files and directories, what it inherits, and why it could not be started.

Standard library only; used in a supervisor.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simrun.backends.local.limits import Limit
from simrun.backends.local.records import Order
from simrun.worker import trees

_VICTIM_SCORE = 500
"""When the whole machine is out of memory the kernel shall take a simulation, not the service or a supervisor."""
_MAKE_TRIES = 5
_SCORE = "/proc/self/oom_score_adj"

_DEFAULTED = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
"""What Python, the zygote or whoever started simrun ignores shall not stay ignored in a command."""

NOT_EXECUTABLE, NOT_FOUND, CANNOT_START = 126, 127, 128
"""Exit codes of what never ran, as shells and container runtimes give them."""


class StartError(Exception):
    """Raised when the command cannot be started: `code` as a shell would give it, the text for people."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def start(order: Order, limit: Limit) -> int:
    """Start the command of an attempt and give its process id. Raises StartError."""
    output, errors = _open_logs(order)
    try:
        _make_directories(order)
        return _spawn(order, limit, output, errors)
    finally:
        os.close(output)
        if errors != output:
            os.close(errors)


def _open_logs(order: Order) -> tuple[int, int]:
    """Open what becomes stdout and stderr.

    A bare command gets the log in the run store. A harness keeps that log itself, so its stdout, which says the same, goes
    nowhere; its stderr is kept by the engine.
    """
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        if order.log is None:
            errors = os.open(order.files.errors, append, 0o644)
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), errors
        os.makedirs(os.path.dirname(order.log), exist_ok=True)
        output = os.open(order.log, append, 0o644)
    except OSError as error:
        raise StartError(CANNOT_START, f"the log cannot be opened: {error}") from error
    return output, output


def _make_directories(order: Order) -> None:
    """Make an empty scratch directory, and the directory to start in."""
    try:
        trees.remove(Path(order.scratch))
        for attempt in range(_MAKE_TRIES):
            try:
                os.makedirs(order.scratch)
                break
            except FileNotFoundError:
                # The supervisor of a neighbour that ended has just removed the empty parent
                if attempt == _MAKE_TRIES - 1:
                    raise
        os.makedirs(order.cwd, exist_ok=True)
    except OSError as error:
        raise StartError(CANNOT_START, f"a directory cannot be made: {error}") from error


def put_scratch_aside(order: Order) -> Path | None:
    """Move the scratch directory out of the way of a next attempt, which may come as soon as the record is there."""
    scratch = Path(order.scratch)
    trash = scratch.with_name(f".{scratch.name}.{order.uid}")
    try:
        os.rename(scratch, trash)
    except OSError:
        return None
    return trash


def remove_scratch(order: Order, trash: Path) -> None:
    """Remove what was put aside, and the directories above it that nobody else uses."""
    try:
        trees.remove(trash)
    except OSError as error:
        print(f"scratch directory {trash} stays: {error}", file=sys.stderr, flush=True)
        return
    root = Path(order.scratch_root)
    for parent in trash.parents:
        if root not in parent.parents:
            return
        try:
            os.rmdir(parent)
        except OSError:
            return  # in use


def _spawn(order: Order, limit: Limit, output: int, errors: int) -> int:
    """Spawn it.

    The limit, the score and the directory are this process's own for a moment, since the command inherits them: a spawn
    takes half the time of a fork with Python in the child, and nothing of ours runs between fork and exec.
    """
    program = find_program(order.command[0], order.env.get("PATH", os.defpath), order.cwd)
    try:
        os.chdir(order.cwd)
        with limit.inherited(), _victim():
            return os.posix_spawn(
                program,
                order.command,
                order.env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                ],
                setpgroup=0,
                setsigmask=(),
                setsigdef=_DEFAULTED,
            )
    except OSError as error:
        raise _start_error(error, order.command[0], program) from error
    finally:
        os.chdir("/")


def _start_error(error: OSError, name: str, program: str) -> StartError:
    if error.errno == errno.ENOENT:
        text = f"{name}: the interpreter that its first line names was not found"
        return StartError(NOT_FOUND, text)
    if error.errno == errno.ENOEXEC:
        text = f"{program} is no program; a first line such as #!/bin/sh makes it one"
        return StartError(NOT_EXECUTABLE, text)
    if error.errno == errno.EACCES:
        return StartError(NOT_EXECUTABLE, f"{program} may not be executed: {error.strerror}")
    return StartError(CANNOT_START, f"{program} could not be started: {error.strerror}")


def tell_log(order: Order, text: str) -> None:
    """Put what went wrong where its user looks first: a bare command that never ran has no other log."""
    if order.log is None:
        return
    try:
        with open(order.log, "a", encoding="utf-8") as file:
            file.write(f"simrun: {text}\n")
    except OSError:
        pass  # the record says it too


def find_program(name: str, path: str, cwd: str) -> str:
    """Give the file that a command names, as a shell would find it. Raises StartError with where it was looked for."""
    if "/" in name:
        program = os.path.join(cwd, name)
        if not os.path.exists(program):
            raise StartError(NOT_FOUND, f"command {name!r} was not found")
        return program
    for directory in path.split(os.pathsep):
        program = os.path.join(cwd, directory, name)
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return program
    raise StartError(NOT_FOUND, f"command {name!r} was not found in PATH ({path})")


@contextmanager
def _victim() -> Iterator[None]:
    """Raise this process's chance to be taken when the machine runs out of memory, for what it starts meanwhile."""
    try:
        with open(_SCORE, encoding="ascii") as file:
            before = int(file.read())
        if before < _VICTIM_SCORE:
            _write_score(_VICTIM_SCORE)
    except OSError:
        before = _VICTIM_SCORE  # a wish, nothing depends on it
    try:
        yield
    finally:
        if before < _VICTIM_SCORE:
            _write_score(before)


def _write_score(score: int) -> None:
    with open(_SCORE, "w", encoding="ascii") as file:
        file.write(str(score))
