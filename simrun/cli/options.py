"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

STORE_VARIABLE = "SIMRUN_STORE"
STORE_DIRECTORY = ".simrun"
SERVER_VARIABLE = "SIMRUN_SERVER"


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


def server_option(function: F) -> F:
    """Add --server and --store: two ways to say which `simrun serve` is meant."""
    return click.option(
        "--server",
        metavar="URL",
        help=f"Address of a `simrun serve`. [default: ${SERVER_VARIABLE}, else whoever serves the store]",
    )(store_option(function))


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


def quiet_option(function: F) -> F:
    """Add -q/--quiet."""
    return click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")(function)


def request_options(function: F) -> F:
    """Add what is said of a run over its file: --group, --name, --id, --param."""
    for option in (
        params_option,
        click.option("--id", "run_id", metavar="ID", help="Id of the run. [default: a new one]"),
        click.option("--name", metavar="NAME", help="Name of the run. [default: the workflow's]"),
        click.option("--group", metavar="GROUP", help="Group that the run belongs to."),
    ):
        function = option(function)
    return function


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Where workers run. cpus and memory (bytes) bound what those of this machine may have all together.

    Raises UsageError for options of the other backend.
    """

    backend: Literal["local", "kubernetes"] = "local"
    cluster: Path | None = None
    kubeconfig: Path | None = None
    cpus: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.backend == "local" and (self.cluster or self.kubeconfig):
            raise click.UsageError("--cluster and --kubeconfig need --backend kubernetes")
        if self.backend == "kubernetes" and (self.cpus or self.memory):
            raise click.UsageError(
                "--cpus and --memory bound local workers; the queue bounds a cluster's"
            )


def backend_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of BackendOptions, which the function gets as its argument `backend`."""

    @functools.wraps(function)
    def gathered(*args: Any, **given: Any) -> Any:
        named = {field.name: given.pop(field.name) for field in fields(BackendOptions)}
        return function(*args, backend=BackendOptions(**named), **given)

    for option in _BACKEND_OPTIONS:
        gathered = option(gathered)
    return gathered


_BACKEND_OPTIONS = (
    click.option(
        "--memory",
        type=Memory(),
        metavar="SIZE",
        help="Memory that local workers share, such as 4Gi. [default: what there is]",
    ),
    click.option(
        "--cpus",
        type=click.FloatRange(min=0, min_open=True),
        metavar="N",
        help="Processors that local workers share. [default: all]",
    ),
    click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Access to the cluster. [default: as kubectl]",
    ),
    click.option(
        "--cluster",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="How runs are placed on the cluster (YAML).",
    ),
    click.option(
        "--backend",
        type=click.Choice(["local", "kubernetes"]),
        default="local",
        show_default=True,
        help="Where the workers run: on this machine, or on a cluster with Argo and Kueue.",
    ),
)
"""The last first, since each is put before those that are there."""
