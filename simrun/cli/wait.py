"""`simrun wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import FloatRange, output_option, run_argument, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession


@click.command("wait", short_help="Wait for the end of a run on a server.")
@run_argument
@server_option
@output_option
@click.option(
    "--timeout",
    "timeout_s",
    type=FloatRange(min=0),
    metavar="SECONDS",
    help="Wait no longer. [default: for ever]",
)
def command(
    *,
    run: str,
    server: str | None,
    store: str | None,
    output: Literal["table", "json"],
    timeout_s: float | None,
) -> int:
    """Wait until a run on a server has ended and its workers are gone; for scripts.

    RUN is an id, the beginning of one, @latest or @latest:NAME.
    Exit codes: those of the run, as of `simrun run`; 4 when it has not ended in time, 130 left, 5 no server, 6 no such run.
    """
    from simrun.cli import remote

    async def found(session: RemoteSession) -> str:
        return (await remote.find_run(session.client, run)).id

    return remote.follow_to_end(
        remote.opener(server, store), found, output=output, quiet=True, timeout_s=timeout_s
    )
