"""Instants on the command line: read from options, and told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    _Instant = click.ParamType[datetime]
else:
    _Instant = click.ParamType  # not generic before click 8.3


class Instant(_Instant):
    """A date, or a date and time, in ISO form; one without an offset is of UTC."""

    name = "instant"

    def convert(
        self,
        value: str | datetime,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> datetime:
        """Read an instant, or fail with what is right."""
        if isinstance(value, datetime):
            return value
        try:
            read = datetime.fromisoformat(value)
            return (read.replace(tzinfo=UTC) if read.tzinfo is None else read).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no instant; write 2026-03-08, 2026-03-08T07:30Z or 2026-03-08T02:30-05:00",
                param,
                ctx,
            )


INSTANT = Instant()
