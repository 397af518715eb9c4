"""`simrun report`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json
from simrun.cli.options import output_option, run_argument, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.service.runreport import RunReport


@click.command("report", short_help="Say what a run used of what it was given.")
@run_argument
@server_option
@output_option
def command(*, run: str, server: str | None, store: str | None, output: str) -> None:
    """Say of each task how long it waited and ran, what it used of the processors and the memory that it was given, and what was done twice.

    RUN is an id, the beginning of one, @latest or @latest:NAME. It is read from the store, or asked of a server where one is named.
    """
    from simrun.cli.usage import report_text

    found = where(server, store)
    if found.server is None:
        from simrun.cli.records import find_run, store_at
        from simrun.service.runreport import run_report

        runs = store_at(found.store)
        record = find_run(runs, run)
        report = run_report(runs, record, runs.submission(record.id))
    else:
        from simrun.cli import remote

        async def asked(session: RemoteSession) -> RunReport:
            record = await remote.find_run(session.client, run)
            return await session.client.report(record.id)

        report = remote.call(remote.opener(server, store), asked)
    click.echo(as_json(asdict(report)) if output == "json" else report_text(report))
