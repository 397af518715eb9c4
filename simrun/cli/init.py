"""`simrun init`."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simrun.cli.formatting import as_json
from simrun.cli.options import output_option

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@click.command("init", short_help="Write a small example workflow to start from.")
@click.argument("directory", metavar="[DIR]", default=".")
@output_option
def command(directory: str, output: str) -> None:
    """Write an example into DIR (the current directory when not given): workflow.yaml and the plugin it uses.

    Files that are there already are never overwritten.
    """
    from simrun.base.errors import InvalidInput, Problem
    from simrun.worker import files

    target = Path(directory)
    examples = example_files()
    if taken := [name for name in examples if (target / name).exists()]:
        remedy = "name another directory: simrun init DIR"
        raise InvalidInput(
            [Problem(str(target / name), "exists already", remedy=remedy) for name in taken]
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, example in examples.items():
            files.create(target / name, example.read_bytes())
    except OSError as error:
        raise InvalidInput(
            [Problem(str(target), f"can't be written to: {error.strerror}")]
        ) from error
    if output == "json":
        click.echo(as_json({"directory": str(target), "files": list(examples)}))
        return
    for name in examples:
        click.echo(target / name)
    start = "" if directory == "." else f"cd {directory} && "
    click.echo(f"now: {start}simrun run workflow.yaml", err=True)


def example_files() -> dict[str, Traversable]:
    """Give the files of the example by name, from the package."""
    found = resources.files("simrun.cli").joinpath("examples").iterdir()
    names = {item.name: item for item in found if item.is_file()}
    return {name: names[name] for name in sorted(names, reverse=True)}
