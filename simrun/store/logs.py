"""The logs that a task's workers left in the store: which there are, and reading them while they grow.

One way for the command line and for the API, live and years later: bytes as the simulation wrote them, opened only by names that were listed,
and never through a link that a run put in their place. All of it blocks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from simrun.base.errors import InvalidInput, NotFound
from simrun.store.files import open_beneath
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.protocol import attempt_name, parse_attempt_name

CHUNK = 1 << 18

_END = ".log"


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one attempt of a worker."""

    worker: str
    attempt: int

    @property
    def name(self) -> str:
        """`<worker>-<attempt>`."""
        return attempt_name(self.worker, self.attempt)


def logs_of(store: RunStore, run_id: str, task: str, worker: str | None = None) -> list[Log]:
    """Give the logs of a task in the order of worker and attempt. `worker` is a name such as `sweep-w2`, or `w2` alone."""
    found = []
    for name in files.listing(store.layout.run(run_id).task(task).logs):
        parsed = parse_attempt_name(name.removesuffix(_END)) if name.endswith(_END) else None
        if parsed and worker in (None, parsed[0], parsed[0].removeprefix(f"{task}-")):
            found.append(Log(*parsed))
    return sorted(found, key=lambda log: (len(log.worker), log.worker, log.attempt))


def of_attempt(logs: Iterable[Log], attempt: str) -> list[Log]:
    """Choose those of one attempt: a number, `last` of each worker, or `all`. Raises InvalidInput for anything else."""
    if attempt == "all":
        return list(logs)
    if attempt == "last":
        return list({log.worker: log for log in logs}.values())
    if not (attempt.isascii() and attempt.isdigit()):
        raise InvalidInput.one("attempt", "must be a number, last or all", value=attempt)
    return [log for log in logs if log.attempt == int(attempt)]


def open_log(store: RunStore, run_id: str, task: str, log: Log) -> int:
    """Open a log; the descriptor. Raises NotFound for what is no plain file of the run."""
    name = log.name + _END
    fd = open_beneath(store.layout.run(run_id).root, "tasks", task, "logs", name)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFound(f"no file {name!r}")
    return fd


def check_logs(store: RunStore, run_id: str, task: str, logs: Iterable[Log]) -> None:
    """Open logs and close them again, before anything of them is printed. Raises NotFound for what is no plain file of the run."""
    for log in logs:
        os.close(open_log(store, run_id, task, log))


def start_of_tail(file: BinaryIO, lines: int) -> int:
    """Give where the last `lines` lines begin, reading from the end so that a long log costs no more than a short one."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end
    position = end
    while position > 0:
        size = min(CHUNK, position)
        position -= size
        file.seek(position)
        chunk = file.read(size)
        if position + size == end and chunk.endswith(b"\n"):
            chunk = chunk[:-1]  # the end of the last line begins no other
        while (newline := chunk.rfind(b"\n")) >= 0:
            lines -= 1
            if lines == 0:
                return position + newline + 1
            chunk = chunk[:newline]
    return 0


def last_lines(store: RunStore, run_id: str, task: str, log: Log, lines: int) -> list[str]:
    """Give the last lines of an attempt's log as text; none where there is no log."""
    try:
        fd = open_log(store, run_id, task, log)
    except NotFound:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(start_of_tail(file, lines))
        return file.read(CHUNK).decode(errors="replace").splitlines()


class LogReader:
    """Reads the logs of a task, each on from where it stopped. `lines`, `size`: of what is there at first only the last.

    `attempt` as of `of_attempt`; with `last` those that come later are read too.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        task: str,
        *,
        worker: str | None = None,
        attempt: str = "all",
        lines: int | None = None,
        size: int | None = None,
    ) -> None:
        self._store, self._run, self._task, self._worker = store, run_id, task, worker
        self._attempt, self._lines, self._size = attempt, lines, size
        self._offsets: dict[Log, int] = {}
        self._first: dict[str, int] = {}
        """With `last`: the first attempt of each worker that is asked for."""
        self._began = False
        of_attempt((), attempt)  # refused here, not in the middle of an answer

    def read(self) -> Iterator[tuple[Log, bytes]]:
        """Yield what has come since the last time, in pieces of at most 256 KiB."""
        found = logs_of(self._store, self._run, self._task, self._worker)
        if self._attempt != "last":
            found = of_attempt(found, self._attempt)
        elif not self._began:
            found = of_attempt(found, "last")
            self._first = {log.worker: log.attempt for log in found}
        else:
            found = [log for log in found if log.attempt >= self._first.get(log.worker, 0)]
        first, self._began = not self._began, True
        for log in found:
            for piece in self._rest(log, first=first):
                yield log, piece

    def _rest(self, log: Log, *, first: bool) -> Iterator[bytes]:
        try:
            fd = open_log(self._store, self._run, self._task, log)
        except NotFound:
            return  # a link or a device where a log should be
        with os.fdopen(fd, "rb") as file:
            offset = self._offsets.get(log)
            if offset is None:
                offset = self._start(file) if first else 0
            self._offsets[log] = file.seek(offset)
            # As long as it is now: others have to be read too while this one grows
            end = os.fstat(file.fileno()).st_size
            while offset < end and (piece := file.read(min(CHUNK, end - offset))):
                offset += len(piece)
                self._offsets[log] = offset
                yield piece

    def _start(self, file: BinaryIO) -> int:
        if self._lines is not None:
            return start_of_tail(file, self._lines)
        if self._size is not None:
            return max(0, os.fstat(file.fileno()).st_size - self._size)
        return 0
