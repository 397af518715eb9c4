"""The log of `simrun serve` on stderr: lines for people, or a JSON object a line for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO, Literal


def configure(form: Literal["text", "json"], stream: IO[str] | None = None) -> None:
    """Have everything from INFO on logged to `stream`, stderr when not given."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Text(logging.Formatter):
    """`2026-12-01T10:00:00.123Z WARNING simrun.service: what happened`, and below it the trace of a bug."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the text of a record."""
        text = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class Json(logging.Formatter):
    """{time, level, logger, message, trace}: always one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give a record as JSON."""
        value = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            value["trace"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False)
