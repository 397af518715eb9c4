"""`simrun list`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simrun.base.clock import SystemClock
from simrun.base.errors import DamagedRecord
from simrun.cli.formatting import as_json, duration, table
from simrun.cli.options import output_option, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord

STATES = ("submitting", "running", "succeeded", "failed", "cancelled")


@click.command("list", short_help="List the runs in the store.")
@server_option
@output_option
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most runs."
)
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--group", metavar="GROUP", help="Only runs of this group.")
@click.option("--name", metavar="NAME", help="Only runs of this name.")
@click.option(
    "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only runs with all of these."
)
def command(
    *,
    server: str | None,
    store: str | None,
    output: str,
    limit: int,
    state: str | None,
    group: str | None,
    name: str | None,
    labels: tuple[str, ...],
) -> None:
    """List the runs in the store, newest first. They are read from the store, or asked of a server where one is named.

    A record that can't be read is told on stderr and stops nothing.
    """
    found = where(server, store)
    wanted = Wanted(state, group, name, _pairs(labels))
    if found.server is None:
        rows, more = _of_store(found.store, wanted, limit)
    else:
        from simrun.cli import remote

        async def asked(session: RemoteSession) -> tuple[list[Row], bool]:
            return await _of_server(session, wanted, limit)

        rows, more = remote.call(remote.opener(server, store), asked)
    if more:
        shown = "run" if limit == 1 else f"{limit} runs"
        click.echo(f"the newest {shown}; --limit shows more", err=True)
    if output == "json":
        click.echo(as_json([asdict(row) for row in rows]))
    elif rows:
        heads = ("run", "name", "state", "tasks", "created", "took")
        click.echo(table(heads, [_cells(row) for row in rows], right=(3, 5)))
    else:
        click.echo("no runs", err=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs are listed."""

    state: str | None
    group: str | None
    name: str | None
    labels: dict[str, str]

    def takes(self, record: RunRecord) -> bool:
        """Whether a run is one of these."""
        return (
            self.state in (None, record.state)
            and self.group in (None, record.group)
            and self.name in (None, record.name)
            and self.labels.items() <= record.labels.items()
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A run in the list. tasks: how many, done: of them."""

    id: str
    name: str
    group: str
    state: str
    message: str | None
    tasks: int
    done: int
    created: float
    ended: float | None


def _of_store(root: Path, wanted: Wanted, limit: int) -> tuple[list[Row], bool]:
    """Give the newest runs, and whether there are more."""
    from simrun.cli.records import newest_first, store_at

    rows: list[Row] = []
    for item in newest_first(store_at(root)):
        if isinstance(item, DamagedRecord):
            click.echo(f"damaged: {item}", err=True)
        elif wanted.takes(item):
            if len(rows) == limit:
                return rows, True
            rows.append(_row(item))
    return rows, False


async def _of_server(session: RemoteSession, wanted: Wanted, limit: int) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    cursor: str | None = None
    while True:
        page = await session.client.runs(
            limit=min(500, limit - len(rows)),
            cursor=cursor,
            state=wanted.state or "",
            group=wanted.group,
            name=wanted.name,
            labels=wanted.labels,
        )
        for item in page.runs:
            if item.damaged:
                click.echo(f"damaged: run {item.id}: {item.damaged}", err=True)
            rows.append(
                Row(
                    item.id,
                    item.name,
                    item.group,
                    item.state,
                    None,
                    sum(item.tasks.values()),
                    item.tasks.get("done", 0),
                    item.created,
                    item.ended,
                )
            )
        cursor = page.cursor
        if cursor is None or len(rows) >= limit:
            return rows, cursor is not None


def _pairs(labels: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in labels:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.UsageError(f"--label takes KEY=VALUE, not {text!r}")
        found[key] = value
    return found


def took(record: RunRecord) -> float:
    """Give how long a run took, or has taken until now, in seconds."""
    return (record.times.ended or SystemClock().wall()) - record.times.created


def time_text(seconds: float) -> str:
    """Give wall seconds as local time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _row(record: RunRecord) -> Row:
    return Row(
        record.id,
        record.name,
        record.group,
        str(record.state),
        record.message,
        len(record.tasks),
        sum(state == "done" for state in record.tasks.values()),
        record.times.created,
        record.times.ended,
    )


def _cells(row: Row) -> list[str]:
    took_s = (row.ended or SystemClock().wall()) - row.created
    return [
        row.id,
        row.name,
        row.state,
        f"{row.done}/{row.tasks}",
        time_text(row.created),
        duration(took_s),
    ]
