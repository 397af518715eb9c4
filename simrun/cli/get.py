"""`simrun get`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json, plural
from simrun.cli.options import output_option, quiet_option, run_argument, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession


@click.command("get", short_help="Download the outputs of a run.")
@run_argument
@click.argument("names", metavar="[TASK] DIR", nargs=-1, required=True)
@server_option
@output_option
@quiet_option
@click.option("--prefix", default="", metavar="PATH", help="Only files whose path begins so.")
def command(
    *,
    run: str,
    names: tuple[str, ...],
    server: str | None,
    store: str | None,
    output: str,
    quiet: bool,
    prefix: str,
) -> None:
    """Download what the tasks of a run have made into DIR, as TASK/PATH; of one TASK as PATH.

    RUN is an id, the beginning of one, @latest or @latest:NAME. A file appears in DIR when it is whole. What is there already, and as it
    was, is not sent again; what a cut connection left is gone on with. Without a server the files are copied from the store.
    """
    if len(names) > 2:
        raise click.UsageError(
            "too many arguments: RUN, then TASK if one alone is wanted, then DIR"
        )
    task = names[0] if len(names) == 2 else None
    directory = Path(names[-1])
    counted = _Counted(directory, quiet=quiet or output == "json")
    found = where(server, store)
    if found.server is None:
        _copy(found.store, run, task, prefix, counted)
    else:
        from simrun.cli import remote

        async def downloaded(session: RemoteSession) -> None:
            from simrun.cli.records import find_task

            record = await remote.find_run(session.client, run)
            name = None if task is None else find_task(record, task)
            files = session.client.download(record.id, directory, task=name, prefix=prefix)
            async for path, fresh in files:
                counted.add(path, fresh=fresh)

        remote.call(remote.opener(server, store), downloaded)
    counted.tell(as_data=output == "json")


class _Counted:
    """Tells each file that has come, and at the end how many there were."""

    def __init__(self, directory: Path, *, quiet: bool) -> None:
        self.directory = directory
        self.files: list[dict[str, object]] = []
        self._quiet = quiet

    def add(self, path: Path, *, fresh: bool) -> None:
        self.files.append({"path": str(path), "fresh": fresh})
        if fresh and not self._quiet:
            click.echo(str(path), err=True)

    def tell(self, *, as_data: bool) -> None:
        if as_data:
            click.echo(as_json({"directory": str(self.directory), "files": self.files}))
            return
        fresh = sum(bool(item["fresh"]) for item in self.files)
        kept = len(self.files) - fresh
        more = f", {kept} there already" if kept else ""
        click.echo(f"{plural(fresh, 'file')} in {self.directory}{more}")


def _copy(root: Path, run: str, task: str | None, prefix: str, counted: _Counted) -> None:
    """Copy from a store on this machine."""
    from simrun.cli.records import find_run, find_task, store_at
    from simrun.client.landing import Incoming, Landing
    from simrun.store.artifacts import artifacts, open_artifact

    store = store_at(root)
    record = find_run(store, run)
    tasks = sorted(record.tasks) if task is None else [find_task(record, task)]
    with Landing(counted.directory) as landing:
        for name in tasks:
            for item in artifacts(store, record.id, name, prefix=prefix):
                path = item.path if task is None else item.path.partition("/")[2]
                file = Incoming(path, item.size, item.modified, item.etag)
                fresh = not landing.has(file)
                if fresh:
                    source = open_artifact(store, record.id, item.path)
                    try:
                        with landing.part(file, 0) as target:
                            _copy_bytes(source, target)
                    finally:
                        os.close(source)
                    landing.land(file)
                counted.add(counted.directory / path, fresh=fresh)


def _copy_bytes(source: int, target: int) -> None:
    while chunk := os.read(source, 2**20):
        view = memoryview(chunk)
        while view:
            view = view[os.write(target, view) :]
