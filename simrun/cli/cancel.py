"""`simrun cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from simrun.cli.options import output_option, run_argument, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord


@click.command("cancel", short_help="Cancel a run on a server.")
@run_argument
@server_option
@output_option
@click.option("--now", is_flag=True, help="Kill its workers, without the grace of their types.")
def command(*, run: str, server: str | None, store: str | None, output: str, now: bool) -> None:
    """Cancel a run on a server: nothing of it is started any more, and what runs is told to end.

    RUN is an id, the beginning of one, @latest or @latest:NAME. A run that is cancelled already is told to end again, which is of use with
    --now. One that has ended in another way is left as it is, with exit code 1.
    """
    from simrun.base.errors import Conflict
    from simrun.cli import remote
    from simrun.cli.formatting import as_json

    async def cancelled(session: RemoteSession) -> RunRecord:
        found = await remote.find_run(session.client, run)
        return await session.client.cancel(found.id, now=now)

    remedy = "end it with Ctrl-C in its terminal, or with `kill -INT {pid}`"
    record = remote.call(remote.opener(server, store, remedy), cancelled)
    if record.state != "cancelled":
        raise Conflict(f"run {record.id} has ended before: it is {record.state}")
    if output == "json":
        click.echo(as_json(record.model_dump(mode="json")))
    else:
        click.echo(f"run {record.id} cancelled")
