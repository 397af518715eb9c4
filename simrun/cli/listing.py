"""`simrun list`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from simrun.base.clock import SystemClock
from simrun.base.errors import DamagedRecord
from simrun.cli.formatting import as_json, duration, table
from simrun.cli.options import output_option, store_option, store_path

if TYPE_CHECKING:
    from simrun.model.record import RunRecord

STATES = ("submitting", "running", "succeeded", "failed", "cancelled")


@click.command("list", short_help="List the runs in the store.")
@store_option
@output_option
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most runs."
)
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
def command(store: str | None, output: str, limit: int, state: str | None) -> None:
    """List the runs in the store, newest first.

    A record that can't be read is told on stderr and stops nothing.
    """
    from simrun.cli.records import store_at

    records: list[RunRecord] = []
    for item in store_at(store_path(store)).records():
        if isinstance(item, DamagedRecord):
            click.echo(f"damaged: {item}", err=True)
        elif state in (None, item.state):
            records.append(item)
            if len(records) == limit:
                click.echo(f"the newest {limit} runs; --limit shows more", err=True)
                break
    if output == "json":
        click.echo(as_json([_data(record) for record in records]))
    elif records:
        heads = ("run", "name", "state", "tasks", "created", "took")
        click.echo(table(heads, [_row(record) for record in records], right=(3, 5)))
    else:
        click.echo("no runs", err=True)


def took(record: RunRecord) -> float:
    """Give how long a run took, or has taken until now, in seconds."""
    return (record.times.ended or SystemClock().wall()) - record.times.created


def time_text(seconds: float) -> str:
    """Give wall seconds as local time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _done(record: RunRecord) -> int:
    return sum(state == "done" for state in record.tasks.values())


def _row(record: RunRecord) -> list[str]:
    return [
        record.id,
        record.name,
        str(record.state),
        f"{_done(record)}/{len(record.tasks)}",
        time_text(record.times.created),
        duration(took(record)),
    ]


def _data(record: RunRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "name": record.name,
        "group": record.group,
        "state": str(record.state),
        "message": record.message,
        "tasks": len(record.tasks),
        "done": _done(record),
        "created": record.times.created,
        "ended": record.times.ended,
    }
