from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.worker.log import Log, Tail


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30)))
def test_the_tail_is_that_of_the_text_however_it_was_cut(pieces: list[bytes]) -> None:
    pieces = [piece.replace(b"\r", b"") for piece in pieces]
    tail = Tail()
    for piece in pieces:
        tail.feed(piece)
    lines = b"".join(pieces).split(b"\n")
    if not lines[-1]:
        lines.pop()
    assert (
        tail.lines()
        == [line.decode("utf-8", "replace") for line in lines[-41:]][-len(tail.lines()) :]
    )
    assert len(tail.lines()) == min(len(lines), 40 + (not b"".join(pieces).endswith(b"\n")))


def test_the_tail_is_short_however_long_the_lines() -> None:
    tail = Tail()
    tail.feed((b"x" * 5000 + b"\n") * 100)
    assert [len(line) for line in tail.lines()] == [2000] * 8


def test_of_a_progress_bar_the_last_state_is_kept() -> None:
    tail = Tail()
    tail.feed(b"step 1\rstep 2\rste")
    tail.feed(b"p 3\ndone\r\n")
    assert tail.lines() == ["step 3", "done"]


def test_a_second_pod_under_the_same_attempt_goes_on_with_the_log(tmp_path: Path) -> None:
    for text in ("first", "second"):
        log = Log(tmp_path / "logs" / "w-0.log")
        log.say(text)
        log.close()
    assert (tmp_path / "logs" / "w-0.log").read_text() == "simrun: first\nsimrun: second\n"


def test_a_reader_that_went_away_does_not_stop_the_log(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from simrun.worker.log import Log
log = Log(Path({str(tmp_path)!r}) / "log")
for _ in range(3):
    log.write(b"x" * 100_000)
log.close()
"""
    reading, writing = os.pipe()
    os.close(reading)
    subprocess.run([sys.executable, "-c", script], stdout=writing, check=True)
    os.close(writing)
    assert (tmp_path / "log").stat().st_size == 300_000
