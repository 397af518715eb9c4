"""`simrun delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json
from simrun.cli.options import complete_runs, output_option, server_option

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession


@click.command("delete", short_help="Delete ended runs with all that they made.")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_runs)
@server_option
@output_option
def command(*, runs: tuple[str, ...], server: str | None, store: str | None, output: str) -> None:
    """Delete ended runs on a server: records, logs, outputs. Their ids are never given to other runs.

    Each RUN is an id, or the beginning of one. All are looked up before the first is deleted; one that has not ended is refused, and so
    are those after it.
    """
    from simrun.base.errors import InvalidInput
    from simrun.cli import remote

    async def deleted(session: RemoteSession) -> list[str]:
        if wrong := next((run for run in runs if run.startswith("@")), None):
            remedy = "what is the newest may change under your hands; name its id"
            raise InvalidInput.one(
                "run", "can't be deleted by this name", value=wrong, remedy=remedy
            )
        found = [(await remote.find_run(session.client, run)).id for run in runs]
        for run_id in dict.fromkeys(found):
            await session.client.delete(run_id)
            if output == "table":
                click.echo(f"run {run_id} deleted")
        return found

    done = remote.call(remote.opener(server, store), deleted)
    if output == "json":
        click.echo(as_json({"deleted": list(dict.fromkeys(done))}))
