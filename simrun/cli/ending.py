"""What a command prints of a run that has ended, and its exit code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from simrun.base.errors import SimrunError
from simrun.cli import show
from simrun.cli.failures import ExitCode
from simrun.cli.formatting import as_json, clean
from simrun.model.record import RunRecord
from simrun.service.runreport import RunReport
from simrun.store.runs import RunStore

_CODES = {
    "succeeded": ExitCode.SUCCEEDED,
    "failed": ExitCode.FAILED,
    "cancelled": ExitCode.CANCELLED,
}


def finish(
    record: RunRecord,
    store: Path | None,
    output: str,
    *,
    report: RunReport | None = None,
    options: str = "",
) -> int:
    """Print what the run came to, data on stdout and what went wrong on stderr; give the exit code.

    `store` is None where the run is in a store of another machine: then there are its record and `report` to tell of, and `options`
    name the server again.
    """
    runs = None if store is None else RunStore(store)
    if output == "json":
        # Read again: a server does not tell all that is in a record
        value = show.run_document(runs, runs.read(record.id)) if runs else _plain(record, report)
        click.echo(as_json(value))
    elif runs is None:
        click.echo(f"run {record.id} {record.state}")
        if report is not None:
            click.echo(f"\n{show.far_end_text(record, report, options)}")
    else:
        click.echo(f"run {record.id} {record.state}\n\n{show.end_text(runs, record)}")
    if str(record.state) not in _CODES:
        raise SimrunError(f"run {record.id} is {record.state}, and nobody follows it any more")
    if record.state == "failed":
        lines = show.failure_lines(runs, record) if runs else [show.failure_line(record)]
        click.echo("\n".join(lines), err=True)
    elif record.message and record.message != record.state:
        click.echo(clean(record.message), err=True)
    return _CODES[str(record.state)]


def _plain(record: RunRecord, report: RunReport | None) -> dict[str, Any]:
    value = record.model_dump(mode="json")
    return value if report is None else {**value, "usage": [asdict(use) for use in report.tasks]}
