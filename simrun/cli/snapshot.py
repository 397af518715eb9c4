"""`simrun snapshot`: read-only data sets for runs, in a store or on a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from simrun.cli.options import output_option, quiet_option, server_option

if TYPE_CHECKING:
    from simrun.cli.where import Where
    from simrun.client import AsyncClient
    from simrun.model.snapshot import Entry, Snapshot
    from simrun.store.snapshots import SnapshotStore

T = TypeVar("T")


@click.group("snapshot", short_help="Make, list, verify and delete snapshots: data sets for runs.")
def command() -> None:
    """Make, list, verify and delete snapshots: read-only data sets that runs of a group use.

    \b
    simrun snapshot create meshes/ --name meshes    a directory, as it is now
    inputs: {mesh: snapshot:meshes/fine.vtk}        in a workflow file
    inputs: {mesh: snapshot:./meshes}               made, or found again, when the workflow is submitted

    They are in the store, or on a server where one is named.
    """


@command.command("create")
@click.argument("path", type=click.Path(path_type=Path))
@server_option
@output_option
@quiet_option
@click.option("--name", metavar="NAME", help="What it is called. [default: from PATH and content]")
@click.option("--group", metavar="GROUP", help="Group that it belongs to.")
def create(
    *,
    path: Path,
    server: str | None,
    store: str | None,
    output: str,
    quiet: bool,
    name: str | None,
    group: str | None,
) -> None:
    """Make a snapshot of the directory or file PATH, and print its name.

    The same content in the same group is the same snapshot: then the name of the one that is there is printed, and nothing is sent to a server.
    Links are followed inside of PATH. A link that leads out, a FIFO, a socket or a device is an error.
    """
    from simrun.base import ids
    from simrun.base.errors import InvalidInput
    from simrun.cli.reading import ReadingProgress
    from simrun.cli.where import where
    from simrun.model.snapshot import check_name

    found = where(server, store)
    group = group or found.group or "default"
    if problem := ids.group_problem(group):
        raise InvalidInput.one("--group", problem, value=group)
    if name is not None:
        check_name(name, "--name")
    step = ReadingProgress(shown=not quiet and sys.stderr.isatty())
    if found.server is None:
        made = _made_here(found.store, path, group, name, step)
    else:
        made = _asked(
            found,
            lambda client: client.create_snapshot(path, group=group, name=name, step=step),
        )
    step.end()
    if not quiet and name not in (None, made.name):
        text = f"group {group!r} has this content already, as snapshot {made.name!r}"
        click.echo(text, err=True)
    click.echo(_json(made) if output == "json" else made.name)


@command.command("list")
@server_option
@output_option
@click.option("--group", metavar="GROUP", help="Only those of this group.")
def list_snapshots(
    *, server: str | None, store: str | None, output: str, group: str | None
) -> None:
    """List the snapshots."""
    from simrun.cli.formatting import as_json, table
    from simrun.cli.listing import time_text
    from simrun.cli.reading import size_text
    from simrun.cli.where import where

    found = where(server, store)
    if found.server is None:
        rows = _store(found).all(None if group is None else {group})
    else:

        async def ask(client: AsyncClient) -> list[Snapshot]:
            return [item async for item in client.all_snapshots(group=group)]

        rows = _asked(found, ask)
    if output == "json":
        click.echo(as_json([_data(row) for row in rows]))
    elif rows:
        cells = [
            [
                row.name,
                row.group,
                str(row.files),
                size_text(row.bytes),
                time_text(row.created),
                row.digest[:19],
            ]
            for row in rows
        ]
        heads = ("snapshot", "group", "files", "size", "created", "digest")
        click.echo(table(heads, cells, right=(2, 3)))
    else:
        click.echo("no snapshots", err=True)


@command.command("show")
@click.argument("name")
@server_option
@output_option
@click.option("--files", is_flag=True, help="List its files too, with size and SHA-256.")
def show(*, name: str, server: str | None, store: str | None, output: str, files: bool) -> None:
    """Show a snapshot."""
    from simrun.cli.formatting import as_json, clean, table
    from simrun.cli.listing import time_text
    from simrun.cli.where import where

    found = where(server, store)
    if found.server is None:
        local = _store(found)
        item = local.get(name)
        entries = list(local.entries(name)) if files else []
    else:

        async def ask(client: AsyncClient) -> tuple[Snapshot, list[Entry]]:
            there = await client.snapshot(name)
            return there, [entry async for entry in client.snapshot_files(name)] if files else []

        item, entries = _asked(found, ask)
    if output == "json":
        listed = {"entries": [entry._asdict() for entry in entries]} if files else {}
        click.echo(as_json({**_data(item), **listed}))
        return
    for key, value in (
        ("snapshot", item.name),
        ("group", item.group),
        ("owner", item.owner or "-"),
        ("created", time_text(item.created)),
        ("digest", item.digest),
        ("files", str(item.files)),
        ("bytes", str(item.bytes)),
    ):
        click.echo(f"{key + ':':<10}{clean(value)}")
    if entries:
        rows = [[entry.path, str(entry.size), entry.sha256] for entry in entries]
        click.echo("\n" + table(("path", "bytes", "sha256"), rows, right=(1,)))


@command.command("verify")
@click.argument("name")
@server_option
@output_option
@quiet_option
def verify(*, name: str, server: str | None, store: str | None, output: str, quiet: bool) -> int:
    """Read all of a snapshot, and print by path what is not as it was.

    Exit codes: 0 it is what it was, 1 it is not.
    """
    from simrun.cli.formatting import as_json, clean
    from simrun.cli.where import where

    found = where(server, store)
    if found.server is None:
        from simrun.cli.reading import ReadingProgress
        from simrun.store.verification import verify as read_all

        local = _store(found)
        step = ReadingProgress(shown=not quiet and sys.stderr.isatty())
        digest, wrong = local.get(name).digest, read_all(local, name, step)
        step.end()
    else:
        checked = _asked(found, lambda client: client.verify_snapshot(name))
        digest, wrong = checked.digest, list(checked.differences)
    if output == "json":
        click.echo(as_json({"digest": digest, "whole": not wrong, "differences": wrong}))
    else:
        for line in wrong:
            click.echo(clean(line))
        if not quiet:
            text = f"differs from {digest}" if wrong else f"is {digest}"
            click.echo(f"snapshot {name} {text}", err=True)
    return 1 if wrong else 0


@command.command("delete")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@server_option
def delete(*, names: tuple[str, ...], server: str | None, store: str | None) -> None:
    """Delete snapshots that no live run uses. What a run that has ended read can't be read again by a retry of it."""
    from simrun.cli.where import where

    found = where(server, store)
    for name in names:
        _delete(found, name)
        click.echo(f"deleted {name}", err=True)


def _delete(found: Where, name: str) -> None:
    if found.server is not None:
        _asked(found, lambda client: client.delete_snapshot(name))
        return
    from simrun.cli.records import store_at
    from simrun.service.snapshots import Users

    _store(found).delete(name, Users(store_at(found.store), name))


def _store(found: Where) -> SnapshotStore:
    """Give the snapshots of a store that is there. Raises NotFound."""
    from simrun.cli.records import store_at
    from simrun.store.snapshots import SnapshotStore

    return SnapshotStore(store_at(found.store).layout)


def _made_here(
    root: Path, path: Path, group: str, name: str | None, step: Callable[[int], object]
) -> Snapshot:
    from simrun.base.clock import SystemClock
    from simrun.cli.run import make_store
    from simrun.store.runs import RunStore
    from simrun.store.snapshots import Making, SnapshotStore

    make_store(root)
    store = RunStore(root)
    store.open()
    snapshots = SnapshotStore(store.layout)
    snapshots.sweep()
    return snapshots.create(path, Making(group, SystemClock().wall(), name=name), step)[0]


def _asked(found: Where, ask: Callable[[AsyncClient], Awaitable[T]]) -> T:
    from simrun.cli.holder import server_at
    from simrun.client import AsyncClient

    async def done() -> T:
        token = found.read_token()
        server = await server_at(found.server or "", found.named, token)
        async with AsyncClient(server.url, token=token) as client:
            return await ask(client)

    return asyncio.run(done())


def _data(item: Snapshot) -> dict[str, object]:
    return item.model_dump(mode="json", exclude={"schema_"})


def _json(item: Snapshot) -> str:
    from simrun.cli.formatting import as_json

    return as_json(_data(item))
