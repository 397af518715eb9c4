"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from simrun.cli.where import (
    CONTEXT_META,
    SERVER_VARIABLE,
    STORE_DIRECTORY,
    STORE_VARIABLE,
    where,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

CPUS_MAX = 10_000

F = TypeVar("F", bound=Callable[..., Any])


class FloatRange(click.FloatRange):
    """A number within a range; click's own takes one that is none (nan) for within any."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Give the number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


def store_path(given: str | None) -> Path:
    """Give the directory of the run store that this process works in. Raises UsageError where --context names a server."""
    found = where(None, given)
    if found.level == "flag" and found.server is not None:
        raise click.UsageError(
            f"context {found.context!r} names a server; name one of a store, or --store"
        )
    return found.store


def store_option(function: F) -> F:
    """Add --store and --context."""
    return context_option(
        click.option(
            "--store",
            metavar="DIR",
            help=f"Directory of the run store. [default: ${STORE_VARIABLE}, else as configured, else ./{STORE_DIRECTORY}]",
        )(function)
    )


def server_option(function: F) -> F:
    """Add --server, --store and --context: three ways to say which `simrun serve` is meant."""
    return click.option(
        "--server",
        metavar="URL",
        help=f"Address of a `simrun serve`. [default: ${SERVER_VARIABLE}, else as configured, else whoever serves the store]",
    )(store_option(function))


def context_option(function: F) -> F:
    """Add --context, which is read by `where` without the command's help."""
    return click.option(
        "--context",
        metavar="NAME",
        expose_value=False,
        callback=_keep_context,
        shell_complete=complete_contexts,
        help="The server or store of a context of yours; see `simrun config`.",
    )(function)


def _keep_context(ctx: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[CONTEXT_META] = value


def complete_contexts(
    _ctx: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a context."""
    from simrun.cli.completions import contexts

    return contexts(incomplete)


def complete_runs(
    ctx: click.Context, _argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the id of a run."""
    from simrun.cli.completions import runs

    return runs(ctx, incomplete)


def run_argument(function: F) -> F:
    """Add the argument RUN."""
    return click.argument("run", shell_complete=complete_runs)(function)


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
        type=FloatRange(min=0, min_open=True, max=CPUS_MAX),
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
