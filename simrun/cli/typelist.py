"""`simrun types`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json, cut, duration, table
from simrun.cli.options import output_option, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.tasktype import TaskType
    from simrun.service.api.resources import TypeUse


@click.command("types", short_help="Show the task types of a workflow file, or what types used.")
@click.argument("file", required=False)
@server_option
@output_option
def command(*, file: str | None, server: str | None, store: str | None, output: str) -> None:
    """Show the task types of FILE: what they run, on what, over how many workers, and how many tasks have them.

    A type that a task makes for itself is listed too: under the task's name, or as TYPE@TASK when the task only
    changes the resources or the workers of another type.

    Without FILE: the types of which attempts were observed in the store, or on a server where one is named, and what they used;
    memory is planned from that.
    """
    if file is None:
        _show_used(server, store, output)
        return
    if server or store:
        raise click.UsageError("FILE needs no --server or --store")
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


def _show_used(server: str | None, store: str | None, output: str) -> None:
    found = where(server, store)
    if found.server is None:
        from simrun.cli.records import store_at
        from simrun.service.api.resources import types_seen
        from simrun.service.auth import ANYBODY

        types = types_seen(store_at(found.store), ANYBODY)
    else:
        from simrun.cli import remote

        async def asked(session: RemoteSession) -> list[TypeUse]:
            return await session.client.types()

        types = remote.call(remote.opener(server, store), asked)
    if output == "json":
        click.echo(as_json([item.model_dump(mode="json") for item in types]))
    elif types:
        heads = ("type", "attempts", "oom", "peak memory", "cpu", "wall")
        rows = [_used_row(item) for item in types]
        click.echo(table(heads, rows, right=(1, 2, 4, 5)))
    else:
        click.echo("nothing was observed yet", err=True)


def _used_row(item: TypeUse) -> list[str]:
    from simrun.cli.usage import memory_text

    return [
        item.type,
        str(item.observations),
        str(item.oom),
        memory_text(item.peak_memory, item.given_memory),
        duration(item.cpu_s),
        duration(item.wall_s),
    ]


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
