"""Showing a run on stderr: a live table on a terminal, a line for each change anywhere else, or nothing.

rich is imported only where there is a terminal to draw on. NO_COLOR and TERM=dumb give plain lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Protocol

from simrun.cli.formatting import duration
from simrun.cli.view import RunView, aged, changes, lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES = {
    "failed": "red",
    "retrying": "yellow",
    "preempted": "yellow",
    "running": "cyan",
    "done": "green",
    "succeeded": "green",
    "cancelled": "yellow",
    "waiting": "dim",
    "queued": "dim",
    "skipped": "dim",
}


class Display(Protocol):
    """Where the progress of a run is shown."""

    def show(self, view: RunView) -> None:
        """Show the run as it is now."""
        ...

    def tick(self) -> None:
        """Let time go on: called about once a second."""
        ...

    def notice(self, text: str) -> None:
        """Say something to whoever watches."""
        ...

    def close(self) -> None:
        """Leave the last state on the screen, and the terminal as it was."""
        ...


def open_display(stream: IO[str], environ: Mapping[str, str], *, quiet: bool) -> Display:
    """Choose the display for a stream."""
    if quiet:
        return QuietDisplay(stream)
    if stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb":
        from rich.console import Console

        return LiveDisplay(Console(file=stream, highlight=False))
    return LineDisplay(stream)


class QuietDisplay:
    """Shows nothing but notices."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def show(self, view: RunView) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""


class LineDisplay:
    """Prints one line for each change, with the time since the run began."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last: RunView | None = None

    def show(self, view: RunView) -> None:
        """Print what has changed."""
        for change in changes(self._last, view):
            print(f"[{duration(view.seconds or 0.0):>6}] {change}", file=self._stream, flush=True)
        self._last = view

    def tick(self) -> None:
        """Do nothing: time is no change."""

    def notice(self, text: str) -> None:
        """Print a line."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""


class LiveDisplay:
    """Redraws a table in place, only when its text has changed."""

    def __init__(self, console: Console, monotonic: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._console = console
        self._monotonic = monotonic
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)
        self._view: RunView | None = None
        self._since = 0.0
        self._drawn: tuple[object, ...] = ()
        self._live.start()

    def show(self, view: RunView) -> None:
        """Draw the run."""
        self._view, self._since = view, self._monotonic()
        self._draw(view)

    def tick(self) -> None:
        """Draw the times that have gone on."""
        if self._view is not None:
            self._draw(aged(self._view, self._monotonic() - self._since))

    def notice(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()

    def _draw(self, view: RunView) -> None:
        drawn = lines(view, self._console.width - 1)
        if tuple(drawn) != self._drawn:
            self._drawn = tuple(drawn)
            self._live.update(self._text(view), refresh=True)

    def _text(self, view: RunView) -> Text:
        from rich.text import Text

        text = Text(no_wrap=True)
        for number, line in enumerate(lines(view, self._console.width - 1)):
            text.append("\n" if number else "")
            text.append(line.text, style=_STYLES.get(line.state, ""))
        return text
