"""The log of a server: one line each, for people or for programs."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from simrun.cli import logformat


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger, and what it had back."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield logger
    for handler in logger.handlers:
        if handler not in handlers:
            handler.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logging.captureWarnings(False)


def logged(root: logging.Logger, form: Literal["text", "json"]) -> str:
    kept, root.handlers = root.handlers, []
    stream = io.StringIO()
    logformat.configure(form, stream)
    log = logging.getLogger("simrun.some.where")
    log.debug("not told")
    log.info("run %s\nsecond line", "r1")
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("failed")
    root.handlers[:] = kept
    return stream.getvalue()


def test_text_has_time_level_and_place_and_the_trace_of_a_bug(root: logging.Logger) -> None:
    first, *others = logged(root, "text").splitlines()

    assert first.endswith("Z INFO simrun.some.where: run r1")
    assert others[1].endswith("Z ERROR simrun.some.where: failed")
    assert others[-1] == "ValueError: a bug"


def test_json_is_one_object_a_line(root: logging.Logger) -> None:
    first, second = (json.loads(line) for line in logged(root, "json").splitlines())

    assert (first["level"], first["logger"]) == ("info", "simrun.some.where")
    assert first["message"] == "run r1\nsecond line"
    assert first["time"].endswith("Z")
    assert second["trace"].endswith("ValueError: a bug")
