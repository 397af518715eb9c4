"""The log of a server: one line each, for people or for programs, with what it is about and without secrets."""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simrun.aio.threads import Pool
from simrun.base import logs
from simrun.base.errors import InvalidInput
from simrun.base.logs import Form, bound
from simrun.model.access import new_token


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger without handlers, and give those it had back."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    logger.handlers = []
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logging.captureWarnings(False)


def logged(form: Form, write: Callable[[logging.Logger], None]) -> list[str]:
    stream = io.StringIO()
    logs.configure(form, stream)
    write(logging.getLogger("simrun.some.where"))
    return stream.getvalue().splitlines()


def some(log: logging.Logger) -> None:
    log.debug("not told")
    log.info("run %s\nsecond line", "r1")
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("failed")


@pytest.mark.usefixtures("root")
def test_text_has_time_level_and_place_and_the_trace_of_a_bug() -> None:
    first, *others = logged("text", some)

    assert first.endswith("Z INFO simrun.some.where: run r1")
    assert others[1].endswith("Z ERROR simrun.some.where: failed")
    assert others[-1] == "ValueError: a bug"


@pytest.mark.usefixtures("root")
def test_json_is_one_object_a_line() -> None:
    first, second = (json.loads(line) for line in logged("json", some))

    assert (first["level"], first["logger"]) == ("info", "simrun.some.where")
    assert list(first)[:2] == ["time", "level"]
    assert first["message"] == "run r1\nsecond line"
    assert first["time"].endswith("Z")
    assert second["trace"].endswith("ValueError: a bug")


@pytest.mark.usefixtures("root")
def test_what_is_bound_and_what_is_extra_stands_in_the_line() -> None:
    def write(log: logging.Logger) -> None:
        with bound(run="r1"), bound(task="sweep"):
            log.info("inside", extra={"path": "/a b", "delay_s": 0.5})
        log.info("outside")

    inside, outside = (json.loads(line) for line in logged("json", write))
    assert (inside["run"], inside["task"]) == ("r1", "sweep")
    assert (inside["path"], inside["delay_s"]) == ("/a b", 0.5)
    assert "run" not in outside
    inside_text, _ = logged("text", write)
    assert inside_text.endswith('inside run=r1 task=sweep path="/a b" delay_s=0.5')


@pytest.mark.usefixtures("root")
async def test_threads_know_what_their_caller_is_about() -> None:
    stream = io.StringIO()
    logs.configure("json", stream)
    pool = Pool("test", 1)
    with bound(run="r1"):
        await pool.run(logging.getLogger("simrun").info, "in a thread")
    pool.close()

    assert json.loads(stream.getvalue())["run"] == "r1"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_token_is_never_written(form: Form) -> None:
    token, foreign = new_token(), "eyJhbGciOi.J9-x_y.z012"

    def write(log: logging.Logger) -> None:
        log.info("got %s", token, extra={"header": f"Bearer {foreign}"})
        try:
            raise ValueError(token)
        except ValueError:
            log.exception("failed")

    text = "\n".join(logged(form, write))
    assert token not in text
    assert foreign not in text
    assert "(a token)" in text
    assert "simrun_some_metric_name" in "\n".join(
        logged(form, lambda log: log.info("simrun_some_metric_name"))
    )


@pytest.mark.usefixtures("root")
def test_a_line_break_in_a_field_makes_no_second_line() -> None:
    lines = logged("text", lambda log: log.info("asked", extra={"path": "/a\nERROR forged"}))

    assert len(lines) == 1


def appended(file: Path, lines: int) -> list[dict[str, object]]:
    """Wait for lines that another thread writes."""
    end = time.monotonic() + 20
    while (text := file.read_text()).count("\n") < lines:
        assert time.monotonic() < end
        time.sleep(0.005)
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def audit() -> Iterator[logging.Logger]:
    logger = logging.getLogger("simrun.test.audit")
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def test_what_is_diverted_stands_in_the_file_and_nowhere_else(
    tmp_path: Path, audit: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "audit.log"
    logs.divert(audit.name, file)
    with bound(request="r1"):
        audit.info("changed", extra={"who": "anna"})

    (line,) = appended(file, 1)
    assert (line["message"], line["who"], line["request"]) == ("changed", "anna", "r1")
    assert capsys.readouterr().err == ""

    file.rename(tmp_path / "audit.log.1")
    audit.info("once more")
    end = time.monotonic() + 20
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.005)
    assert appended(file, 1)[0]["message"] == "once more"


def test_closing_writes_what_is_left(tmp_path: Path, audit: logging.Logger) -> None:
    file = tmp_path / "audit.log"
    logs.divert(audit.name, file)
    for number in range(2500):
        audit.info("line %d", number)
    audit.handlers[0].close()  # waits for the disk, but not for ever

    assert len(appended(file, 2500)) == 2500


def test_behind_a_disk_that_hangs_lines_are_counted_and_not_kept_without_end(
    tmp_path: Path, audit: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "audit.log"
    handler = logs.Appending(file, most=100)
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)
    audit.propagate = False
    file.unlink()
    os.mkfifo(file)  # writing hangs until somebody reads

    for number in range(500):
        audit.info("line %d", number)
    pipe = os.open(file, os.O_RDWR | os.O_NONBLOCK)
    end = time.monotonic() + 20
    while "lines are lost" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    handler.close()
    seen = os.read(pipe, 2**16).splitlines()
    os.close(pipe)

    numbers = [int(json.loads(line)["message"].removeprefix("line ")) for line in seen]
    assert numbers == sorted(set(numbers))
    assert numbers[:100] == list(range(100))
    assert f"{500 - len(numbers)} lines are lost" in caplog.text


def test_a_file_that_can_not_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be written"):
        logs.divert("simrun.test.audit", tmp_path / "none" / "audit.log")


@pytest.mark.parametrize("wanted", [True, False])
def test_a_silenced_logger_is_heard_only_where_it_is_wanted(wanted: bool) -> None:
    logger = logging.getLogger("simrun.test.silent")

    logs.silence(logger.name, unless=wanted)

    assert logger.isEnabledFor(logging.INFO) == wanted
    assert logger.isEnabledFor(logging.WARNING)
