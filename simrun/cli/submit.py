"""`simrun submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import output_option, quiet_option, request_options, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord


@click.command("submit", short_help="Hand a run over to a server, and leave it there.")
@click.argument("file")
@server_option
@output_option
@request_options
@click.option(
    "--key",
    metavar="KEY",
    help="Submitting again with this key, and the same workflow, gives the same run.",
)
@click.option("--wait", is_flag=True, help="Show the run until it has ended, as `simrun watch`.")
@quiet_option
def command(
    *,
    file: str,
    server: str | None,
    store: str | None,
    output: Literal["table", "json"],
    wait: bool,
    quiet: bool,
    params: tuple[str, ...],
    group: str | None,
    name: str | None,
    run_id: str | None,
    key: str | None,
) -> int:
    """Hand the workflow in FILE (YAML or JSON; - for stdin) over to a server with the files it names, and print the id of the run.

    The server starts it and follows it to its end; `simrun watch` shows how far it is.
    Exit codes: 0 the server has it, 2 wrong usage or input, 5 no server; with --wait those of `simrun watch`.
    """
    if key is not None and run_id is not None:
        raise click.UsageError("--key stands for an id; leave --id out")
    if key is not None and not (key and key.isprintable()):
        raise click.UsageError(f"--key takes text on one line, not {key!r}")
    from simrun.cli import remote
    from simrun.cli.formatting import as_json
    from simrun.cli.workflowfile import base_of, read_workflow, submission_of

    # Under which Python plugins run is the server's matter
    loaded = read_workflow(file, params, check_syntax=False)
    submission = submission_of(
        loaded, group=group, name=name, run_id=run_id, place=where(server, store)
    )
    base = base_of(file)

    async def sent(session: RemoteSession) -> tuple[RunRecord, str]:
        return await session.send(submission, base, run_id, key), session.server.options

    async def begun(session: RemoteSession) -> str:
        return (await session.send(submission, base, run_id, key)).id

    opened = remote.opener(server, store, "use `simrun run`, which waits for its turn")
    if wait:
        return remote.follow_to_end(opened, begun, output=output, quiet=quiet)
    record, there = remote.call(opened, sent)
    if not quiet:
        click.echo(f"simrun watch {record.id}{there} shows how far it is", err=True)
    click.echo(as_json(record.model_dump(mode="json")) if output == "json" else record.id)
    return 0
