"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

STORE_VARIABLE = "SIMRUN_STORE"
STORE_DIRECTORY = ".simrun"


def store_path(given: str | None) -> Path:
    """Give the directory of the run store: --store, else $SIMRUN_STORE, else .simrun in the current directory."""
    return Path(given or os.environ.get(STORE_VARIABLE) or STORE_DIRECTORY).absolute()


def store_option(function: F) -> F:
    """Add --store."""
    return click.option(
        "--store",
        metavar="DIR",
        help=f"Directory of the run store. [default: ${STORE_VARIABLE}, else ./{STORE_DIRECTORY}]",
    )(function)


def output_option(function: F) -> F:
    """Add -o/--output."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Form of what goes to stdout.",
    )(function)


def params_option(function: F) -> F:
    """Add --param."""
    return click.option(
        "--param",
        "params",
        metavar="TASK.KEY=VALUE",
        multiple=True,
        help="Set a parameter of a task; the value is read as YAML. May be given again.",
    )(function)


if TYPE_CHECKING:
    _Bytes = click.ParamType[int]
else:
    _Bytes = click.ParamType  # not generic before click 8.3


class Memory(_Bytes):
    """An amount of memory, in bytes once read."""

    name = "memory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read `4Gi` or a number of bytes."""
        from simrun.model.quantities import parse_memory

        try:
            return parse_memory(int(value) if str(value).isdigit() else value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
