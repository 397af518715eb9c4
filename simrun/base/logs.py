"""The log: lines for people, or a JSON object a line for programs, with what they are about.

What a line is about is bound where it is known, and stands in everything that is logged meanwhile, also by code that knows nothing of it:

    with bound(run=run_id):
        ...

Threads take it over (aio.threads), tasks that are started meanwhile too. What `extra` gives stands in the line as well. Tokens never do: a
last look at each line takes out what has their form, whoever put it there.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import queue
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from simrun.base.errors import InvalidInput

_log = logging.getLogger(__name__)

Form = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

_EMPTY: Mapping[str, str] = {}
_BOUND: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("bound", default=_EMPTY)
_OF_RECORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRETS = re.compile(r"simrun_[A-Za-z0-9_-]{43}|(?i:(?<=bearer )[A-Za-z0-9._~+/=-]{8,})")
_HIDDEN = "(a token)"
_CLOSE_S = 2.0
_BATCH = 1000
LINES_MOST = 50_000
"""Lines that wait for a file; behind a disk that hangs there would be no end of them."""


@contextlib.contextmanager
def bound(**fields: str) -> Iterator[None]:
    """Have fields in all lines that are logged meanwhile: `run`, `task`, `request`."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(form: Form, stream: IO[str] | None = None, *, level: Level = "info") -> None:
    """Have everything from a level on logged to `stream`, stderr when not given."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


def silence(logger: str, *, unless: bool) -> None:
    """Let what a logger says from INFO on be heard only where it is wanted."""
    logging.getLogger(logger).setLevel(logging.INFO if unless else logging.WARNING)


def divert(logger: str, file: Path) -> None:
    """Have what a logger says from INFO on appended to a file, as JSON, and nowhere else. Raises InvalidInput where that can't be."""
    named = logging.getLogger(logger)
    named.setLevel(logging.INFO)
    named.propagate = False
    named.addHandler(Appending(file))


class Appending(logging.Handler):
    """Appends lines to a file from a thread of its own: whoever logs waits for no disk.

    The file is opened for each batch, so that another one may take its place (logrotate). What can't be written is told on the log, once until
    it works again; where more than `most` lines wait, the newest are lost, and told likewise.
    """

    def __init__(self, file: Path, *, most: int = LINES_MOST) -> None:
        super().__init__()
        self.setFormatter(Json())
        self._file = file
        self._lines: queue.Queue[str | None] = queue.Queue(most)
        self._lost = 0
        self._failing = False
        try:
            with file.open("a"):
                pass
        except OSError as error:
            raise InvalidInput.one(
                str(file), f"can't be written: {error.strerror}", remedy="name another file"
            ) from error
        self._thread = threading.Thread(target=self._write, name="log file", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Write what is left, for a while."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=_CLOSE_S)
            self._thread.join(timeout=_CLOSE_S)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            batch = [line]
            ended = False
            while not self._lines.empty() and len(batch) < _BATCH:
                more = self._lines.get()
                if more is None:
                    ended = True
                    break
                batch.append(more)
            self._append(batch)
            if ended:
                return

    def _append(self, batch: list[str]) -> None:
        try:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write("".join(f"{line}\n" for line in batch))
        except OSError as error:
            if not self._failing:
                _log.error("%s can't be written, lines are lost: %s", self._file, error.strerror)
            self._failing = True
        else:
            self._failing = False
            self._tell_lost()

    def _tell_lost(self) -> None:
        self.acquire()  # as logging holds it while a line is taken
        try:
            lost, self._lost = self._lost, 0
        finally:
            self.release()
        if lost:
            _log.error("%s could not be written for a while, %d lines are lost", self._file, lost)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Give what a record is about: what is bound, and what came as `extra`."""
    extra = {key: value for key, value in vars(record).items() if key not in _OF_RECORDS}
    return {**_BOUND.get(), **extra}


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_secrets(text: str) -> str:
    return _SECRETS.sub(_HIDDEN, text)


class Text(logging.Formatter):
    """`2026-12-01T10:00:00.123Z WARNING simrun.service: what happened run=r1`, and below it the trace of a bug."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the text of a record."""
        text = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        for key, value in fields_of(record).items():
            plain = isinstance(value, int | float) or re.fullmatch(r"[\w./:{}-]+", str(value))
            text += f" {key}={value if plain else json.dumps(str(value), ensure_ascii=False)}"
        if record.exc_info:
            text += f"\n{self.formatException(record.exc_info)}"
        return _without_secrets(text)


class Json(logging.Formatter):
    """{time, level, logger, message, what it is about, trace}: always one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as JSON."""
        value = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        about = fields_of(record)
        value |= {key: about[key] for key in about if key not in value}
        if record.exc_info:
            value["trace"] = self.formatException(record.exc_info)
        return _without_secrets(json.dumps(value, ensure_ascii=False, default=str))
