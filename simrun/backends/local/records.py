"""What engine and supervisor tell each other: the order to run an attempt, and the two records a supervisor leaves.

Both sides import this module, and a supervisor is a fork of a small process, so it needs the standard library only. The
records are on a local disk in the directory of their workflow, each made once by link: `<attempt>.start.json` before the
command runs, `<attempt>.exit.json` after all of it is gone. A reader of a schema reads the one before it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from simrun.worker import files

SCHEMA = 1

Enforced = Literal["cgroup", "polled"]
"""How a memory limit is held: by the kernel in a cgroup of its own, or by looking at the processes again and again."""

KILLED_EXIT = 137
TERMINATED_EXIT = 143
DEADLINE_EXIT = 3
"""Exit codes as the contract has them; what the command itself returned is kept beside them as `status`."""


class AttemptFiles(NamedTuple):
    """The files of one attempt in the directory of its workflow."""

    directory: Path
    attempt: str
    """`<worker>-<index>`, the index within this round."""

    @property
    def start(self) -> Path:
        """Made before the command runs; whoever makes it runs the attempt."""
        return self.directory / f"{self.attempt}.start.json"

    @property
    def exit(self) -> Path:
        """Made after the last process of the attempt has ended."""
        return self.directory / f"{self.attempt}.exit.json"

    @property
    def stopped(self) -> Path:
        """Made when the workflow is asked to end: an attempt that is announced after that does not start its command."""
        return self.directory / "stopped"

    @property
    def errors(self) -> Path:
        """What a harness wrote to stderr: its own last words, should it fail before it has a log."""
        return self.directory / f"{self.attempt}.err"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a supervisor has to do. Goes over a socket, never to disk: `env` may hold secrets.

    Memory in bytes (0: no limit), times in seconds.
    """

    directory: str
    """Directory of the workflow in the engine's state."""
    attempt: str
    uid: str
    """Made for this start; tells apart two that were given one number."""
    command: list[str]
    env: dict[str, str]
    cwd: str
    scratch: str
    scratch_root: str = ""
    """Directories below it that are empty afterwards go too."""
    log: str | None = None
    """File that gets stdout and stderr of a bare command; None: a harness, which keeps its log itself."""
    memory: int = 0
    cgroup: str | None = None
    """Cgroup below which the attempt may have its own; None: poll."""
    deadline_s: float | None = None
    grace_s: float = 30.0
    presence: str = ""
    """File whose content changes as long as an engine lives."""
    orphan_s: float = 600.0

    @property
    def harness(self) -> bool:
        """Whether the command is the harness, which keeps log, time limit and report itself."""
        return self.log is None

    @property
    def files(self) -> AttemptFiles:
        """Where the records of the attempt belong."""
        return AttemptFiles(Path(self.directory), self.attempt)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`<attempt>.start.json`: who supervises an attempt, so that a later engine can find it again."""

    uid: str
    boot: str
    pid: int
    start: int
    """Start time of the supervisor in clock ticks since boot, which tells it from a later process of the same number."""
    started: float
    memory: int = 0
    enforced: Enforced | None = None
    cgroup: str | None = None
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """`<attempt>.exit.json`: how an attempt ended.

    `code` is the exit code that counts, None when there is none (lost); `status` and `signal` are what the kernel said of the
    command. `peak` includes page cache, `peak_unreclaimable` is the highest sample of what the kernel could not take back.
    """

    uid: str = ""
    code: int | None
    status: int | None = None
    signal: int | None = None
    reason: str
    oom: bool = False
    enforced: Enforced | None = None
    message: str = ""
    started: float | None = None
    ended: float
    memory: int = 0
    peak: int | None = None
    peak_unreclaimable: int | None = None
    cpu_s: float | None = None
    schema: int = SCHEMA


M = TypeVar("M", Order, Start, Exit)


def to_json(message: Order | Start | Exit) -> dict[str, Any]:
    """Give the fields of a message as JSON can say them."""
    return {item.name: getattr(message, item.name) for item in dataclasses.fields(message)}


def from_json(kind: type[M], value: Mapping[str, Any]) -> M:
    """Make a message of what JSON said; unknown fields are left out, a newer simrun may have written them.

    Raises TypeError when a field without a default is missing.
    """
    names = {item.name for item in dataclasses.fields(kind)}
    return kind(**{key: item for key, item in value.items() if key in names})


def write(path: Path, record: Start | Exit) -> bool:
    """Put a record on disk for good, unless there is one; whether this call did."""
    return files.create(path, files.encode(to_json(record)))


def read_start(path: Path) -> Start | None:
    """Read a start record; None when there is none, or none that was written whole."""
    return _read(Start, path)


def read_exit(path: Path) -> Exit | None:
    """Read an exit record; None when there is none, or none that was written whole."""
    return _read(Exit, path)


def _read(kind: type[M], path: Path) -> M | None:
    try:
        value = files.read_json(path)
        return None if value is None else from_json(kind, value)
    except (ValueError, TypeError, AttributeError):
        return None
