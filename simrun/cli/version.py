"""`simrun version`."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from simrun.cli.formatting import as_json
from simrun.cli.options import output_option


@click.command("version", short_help="Print the version.")
@output_option
def command(output: str) -> None:
    """Print the version of simrun, and of the Python that it runs on."""
    own, python = version("simrun"), platform.python_version()
    if output == "json":
        click.echo(as_json({"simrun": own, "python": python}))
    else:
        click.echo(f"simrun {own} (Python {python})")
