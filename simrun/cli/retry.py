"""`simrun retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import output_option, quiet_option, run_argument, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord


@click.command("retry", short_help="Do what failed of a run again.")
@run_argument
@server_option
@output_option
@click.option("--wait", is_flag=True, help="Show the run until it has ended, as `simrun watch`.")
@quiet_option
def command(
    *,
    run: str,
    server: str | None,
    store: str | None,
    output: Literal["table", "json"],
    wait: bool,
    quiet: bool,
) -> int:
    """Do again what failed of a run, or was cancelled: the same run, in a new round. What is done is not done again.

    It runs the same workflow and the same plugin code, which are kept in the run: a plugin that was mended needs a new run.

    RUN is an id, the beginning of one, @latest or @latest:NAME. The id of the run is printed.
    """
    from simrun.cli import remote
    from simrun.cli.formatting import as_json

    async def again(session: RemoteSession) -> RunRecord:
        found = await remote.find_run(session.client, run)
        return await session.client.retry(found.id)

    async def begun(session: RemoteSession) -> str:
        return (await again(session)).id

    opened = remote.opener(server, store)
    if wait:
        return remote.follow_to_end(opened, begun, output=output, quiet=quiet)
    record = remote.call(opened, again)
    if not quiet:
        click.echo(f"run {record.id} is in round {record.round} now", err=True)
    click.echo(as_json(record.model_dump(mode="json")) if output == "json" else record.id)
    return 0
