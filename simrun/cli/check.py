"""`simrun validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json, plural
from simrun.cli.options import output_option, params_option

if TYPE_CHECKING:
    from simrun.model.load import WorkflowFile


@click.command("validate", short_help="Check a workflow file, all of it, without running anything.")
@click.argument("file")
@params_option
@output_option
def command(file: str, params: tuple[str, ...], output: str) -> None:
    """Check FILE (YAML or JSON; - for stdin) and the plugins, tables and inputs that it names.

    All problems are told at once, each with its line and column. Exit code 2 when there is any.
    """
    from simrun.cli.workflowfile import read_workflow

    loaded = read_workflow(file, params)
    if output == "json":
        click.echo(as_json(_summary(file, loaded)))
    else:
        tasks, types = len(loaded.workflow.tasks), len(loaded.types)
        click.echo(f"{file}: {plural(tasks, 'task')} of {plural(types, 'type')}, no problems")


def _summary(file: str, loaded: WorkflowFile) -> dict[str, object]:
    return {
        "file": file,
        "name": loaded.workflow.name,
        "tasks": len(loaded.workflow.tasks),
        "types": len(loaded.types),
        "problems": [],
    }
