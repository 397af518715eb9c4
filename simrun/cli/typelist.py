"""`simrun types`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json, cut, table
from simrun.cli.options import output_option

if TYPE_CHECKING:
    from simrun.model.tasktype import TaskType


@click.command("types", short_help="Show the task types of a workflow file.")
@click.argument("file")
@output_option
def command(file: str, output: str) -> None:
    """Show the task types of FILE: what they run, on what, over how many workers, and how many tasks have them.

    A type that a task makes for itself is listed too: under the task's name, or as TYPE@TASK when the task only
    changes the resources or the workers of another type.
    """
    from simrun.cli.workflowfile import read_workflow

    loaded = read_workflow(file)
    used = Counter(task.type for task in loaded.workflow.tasks.values())
    if output == "json":
        click.echo(
            as_json(
                [
                    {**item.model_dump(mode="json", exclude_defaults=True), "tasks": used[name]}
                    for name, item in loaded.types.items()
                ]
            )
        )
        return
    heads = ("type", "runs", "workers", "units", "cpu", "memory", "retry memory", "tasks")
    rows = [_row(name, item, used[name]) for name, item in loaded.types.items()]
    click.echo(table(heads, rows, right=(2, 3, 4, 7)))


def _row(name: str, item: TaskType, tasks: int) -> list[str]:
    from simrun.model.quantities import format_memory

    resources, split = item.resources, item.split
    retry = resources.retry_memory
    return [
        name,
        cut(item.plugin or _command(item.command or []), 40),
        str(split.workers) if split else "1",
        _units(item),
        f"{resources.cpu:g}",
        format_memory(resources.memory),
        format_memory(retry) if retry else "-",
        str(tasks),
    ]


def _command(items: list[str]) -> str:
    """Give a command as it was written: a line for the shell without the shell."""
    return " ".join(items[2:] if items[:2] == ["/bin/sh", "-c"] else items)


def _units(item: TaskType) -> str:
    """Give the number of units, or what will tell it."""
    if item.split is None:
        return "-"
    units = item.split.units
    if units.kind in ("plugin", "table"):
        return units.kind
    from simrun.worker import designs

    design = units.model_dump(mode="json", exclude_none=True)
    return str(designs.size(design, replicates=item.split.replicates))
