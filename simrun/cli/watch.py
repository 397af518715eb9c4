"""`simrun watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import output_option, quiet_option, run_argument, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession


@click.command("watch", short_help="Show a run on a server until it has ended.")
@run_argument
@server_option
@output_option
@quiet_option
def command(
    *,
    run: str,
    server: str | None,
    store: str | None,
    output: Literal["table", "json"],
    quiet: bool,
) -> int:
    """Show a run on a server until it has ended, and print what each task used and where its output is.

    RUN is an id, the beginning of one, @latest or @latest:NAME. Ctrl-C leaves the run alone.
    Exit codes: those of the run, as of `simrun run`; 130 left, 5 no server, 6 no such run.
    """
    from simrun.cli import remote

    async def found(session: RemoteSession) -> str:
        return (await remote.find_run(session.client, run)).id

    return remote.follow_to_end(remote.opener(server, store), found, output=output, quiet=quiet)
