"""How much was read so far, for what reads a lot."""

from __future__ import annotations

import click

from simrun.base.clock import SystemClock


def size_text(count: int) -> str:
    """Give bytes as people read them: `12 B`, `3.4 MiB`."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1000 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


class ReadingProgress:
    """Says on a terminal how much was read, a few times a second."""

    def __init__(self, *, shown: bool) -> None:
        self._shown, self._clock = shown, SystemClock()
        self._total, self._told, self._next = 0, False, self._clock.monotonic() + 1

    def __call__(self, count: int) -> None:
        """Count what was read."""
        self._total += count
        if self._shown and self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + 0.3
            self._told = True
            click.echo(f"\r{size_text(self._total)} read\x1b[K", err=True, nl=False)

    def end(self) -> None:
        """Leave the line."""
        if self._told:
            click.echo("\r\x1b[K", err=True, nl=False)
