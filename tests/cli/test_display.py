"""Where progress goes: a live table on a terminal, lines elsewhere. Part of C61 of the trial cases."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from simrun.cli.display import LineDisplay, LiveDisplay, QuietDisplay, open_display
from simrun.cli.view import RunView, TaskView

VIEW = RunView(
    run="r1", state="running", seconds=3, tasks=(TaskView(id="a", state="running", seconds=1.0),)
)
DONE = replace(VIEW, state="succeeded", tasks=(TaskView(id="a", state="done", seconds=2.0),))


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    """Give a stream that is a terminal."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream:
        yield stream
    os.close(master)


def test_a_terminal_gets_a_live_table(terminal: io.TextIOWrapper) -> None:
    display = open_display(terminal, {"TERM": "xterm"}, quiet=False)
    display.close()

    assert isinstance(display, LiveDisplay)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_c61_a_terminal_without_colours_gets_lines(
    terminal: io.TextIOWrapper, environ: dict[str, str]
) -> None:
    assert isinstance(open_display(terminal, environ, quiet=False), LineDisplay)


def test_c61_an_empty_no_color_means_nothing(terminal: io.TextIOWrapper) -> None:
    display = open_display(terminal, {"NO_COLOR": "", "TERM": "xterm"}, quiet=False)
    display.close()

    assert isinstance(display, LiveDisplay)


def test_c61_a_pipe_gets_one_line_for_each_change_and_no_escape_bytes() -> None:
    stream = io.StringIO()
    display = open_display(stream, {"TERM": "xterm"}, quiet=False)

    for view in (VIEW, VIEW, DONE):
        display.show(view)
        display.tick()
    display.notice("cancelling")
    display.close()

    assert stream.getvalue().splitlines() == [
        "[  3.0s] a running",
        "[  3.0s] run r1 running",
        "[  3.0s] a done",
        "[  3.0s] run r1 succeeded",
        "cancelling",
    ]


def test_quiet_shows_notices_only() -> None:
    stream = io.StringIO()
    display = open_display(stream, {}, quiet=True)
    display.show(VIEW)
    display.tick()
    display.notice("cancelling")
    display.close()

    assert isinstance(display, QuietDisplay)
    assert stream.getvalue() == "cancelling\n"


def test_the_live_table_is_drawn_again_only_when_its_text_changes() -> None:
    stream = io.StringIO()
    now = [0.0]
    console = Console(file=stream, force_terminal=True, width=60, color_system=None)
    display = LiveDisplay(console, monotonic=lambda: now[0])
    display.show(VIEW)
    drawn = stream.tell()

    display.show(VIEW)
    now[0] += 0.01
    display.tick()
    assert stream.tell() == drawn

    now[0] += 5
    display.tick()
    assert stream.tell() > drawn
    display.notice("[bold] is no markup here")
    display.show(DONE)
    display.close()
    assert "a  running  6.0s" in stream.getvalue()
    assert "a  done  2.0s" in stream.getvalue()
    assert "[bold] is no markup here" in stream.getvalue()
