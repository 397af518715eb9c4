"""The log of an attempt: what the simulation prints goes to a file in the run store and to the harness's own output.

The file is what simrun keeps, the output is what the backend shows. Bytes pass as they are, since a simulator may print
anything; only the tail for the report is made text. Memory stays bounded, whatever the length of a line.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from pathlib import Path

from simrun.worker import files

_CHUNK = 64 * 1024
_TAIL_LINES = 40
_LINE_BYTES = 2000
_TAIL_BYTES = 16_000
_LEFT_OPEN_S = 0.5
"""How long a pipe that somebody holds open after the end of the program may be silent before it is left."""


class Tail:
    """The last lines of an output, 16 kB at most; a line keeps its first 2,000 bytes, a progress bar its last state."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self._open = b""

    def feed(self, data: bytes) -> None:
        """Take the next piece of output."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._lines.append(self._grown(piece))
            self._open = b""
        self._open = self._grown(rest)

    def _grown(self, piece: bytes) -> bytes:
        before, carriage_return, after = piece.rstrip(b"\r").rpartition(b"\r")
        line = after if carriage_return else self._open + after
        return (line or before)[:_LINE_BYTES]

    def lines(self) -> list[str]:
        """Give the lines as text; what is no UTF-8 is replaced."""
        lines = [*self._lines, self._open] if self._open else list(self._lines)
        kept, room = [], _TAIL_BYTES
        for line in reversed(lines):
            if (room := room - len(line)) < 0:
                break
            kept.append(line.decode("utf-8", "replace"))
        return kept[::-1]


class Log:
    """Where output goes: the file of the attempt and standard output. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        files.make_directory(path.parent)
        # Appended to: a pod that is made again under the same attempt goes on with the same file
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file: int | None = os.open(path, flags, 0o644)
        self._path = path
        self._stdout: int | None = 1
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Write to both places; one that fails is given up, since the work matters more than its log."""
        with self._lock:
            if self._file is not None:
                try:
                    _write_all(self._file, data)
                except OSError as error:
                    os.close(self._file)
                    self._file = None
                    data += f"simrun: the log {self._path} ends here: {error}\n".encode()
            if self._stdout is not None:
                try:
                    _write_all(self._stdout, data)
                except OSError:
                    self._stdout = None  # whoever read it is gone

    def say(self, text: str) -> None:
        """Write a line of the harness itself."""
        self.write(f"simrun: {text}\n".encode(errors="replace"))

    def close(self) -> None:
        """Flush and close the file."""
        with self._lock:
            if self._file is None:
                return
            try:
                os.fsync(self._file)
                os.close(self._file)
            except OSError:
                pass  # the attempt has ended; its report says how
            self._file = None


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Somebody who shares the output made it non-blocking
            select.select([], [fd], [], 1.0)


class Pump(threading.Thread):
    """Carries what a program prints from a pipe to the log, until the pipe is closed."""

    def __init__(self, pipe: int, log: Log) -> None:
        super().__init__(name="pump", daemon=True)
        self.tail = Tail()
        self._pipe = pipe
        self._log = log
        self._ended = threading.Event()

    def run(self) -> None:
        """Read until the end; or, when the program has ended but a process it left behind holds the pipe, until silence."""
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while True:
            if not poll.poll(_LEFT_OPEN_S * 1000):
                if self._ended.is_set():
                    break
                continue
            data = os.read(self._pipe, _CHUNK)
            if not data:
                break
            self.tail.feed(data)
            self._log.write(data)
        os.close(self._pipe)

    def finish(self) -> list[str]:
        """Say that the program has ended, wait for the rest of its output and give the tail."""
        self._ended.set()
        self.join()
        return self.tail.lines()
