"""`simrun run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import Memory, output_option, params_option, store_option, store_path

if TYPE_CHECKING:
    from simrun.cli.attached import OpenSession
    from simrun.model.load import WorkflowFile
    from simrun.model.record import RunRecord
    from simrun.model.workflow import Submission


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `simrun run` was asked for. cpus and memory (bytes) bound what local workers may have all together."""

    file: str
    store: Path
    output: Literal["table", "json"] = "table"
    backend: Literal["local", "kubernetes"] = "local"
    cluster: Path | None = None
    kubeconfig: Path | None = None
    cpus: float | None = None
    memory: int | None = None
    group: str | None = None
    name: str | None = None
    run_id: str | None = None
    params: tuple[str, ...] = ()
    quiet: bool = False


@click.command("run", short_help="Run a workflow file and follow it to its end.")
@click.argument("file")
@store_option
@output_option
@click.option(
    "--backend",
    type=click.Choice(["local", "kubernetes"]),
    default="local",
    show_default=True,
    help="Where the workers run: on this machine, or on a cluster with Argo and Kueue.",
)
@click.option(
    "--cluster",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="How runs are placed on the cluster (YAML).",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Access to the cluster. [default: as kubectl]",
)
@click.option(
    "--cpus",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Processors that local workers share. [default: all]",
)
@click.option(
    "--memory",
    type=Memory(),
    metavar="SIZE",
    help="Memory that local workers share, such as 4Gi. [default: what there is]",
)
@click.option("--group", metavar="GROUP", help="Group that the run belongs to.")
@click.option("--name", metavar="NAME", help="Name of the run. [default: the workflow's]")
@click.option("--id", "run_id", metavar="ID", help="Id of the run. [default: a new one]")
@params_option
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(file: str, store: str | None, **others: object) -> int:
    """Run the workflow in FILE (YAML or JSON; - for stdin), follow it to its end, and print what each task used and where its output is.

    Ctrl-C cancels the run and waits for its workers; once more kills them.
    Exit codes: 0 succeeded, 1 failed, 2 wrong usage or input, 3 cancelled.
    """
    options = RunOptions(file=file, store=store_path(store), **others)  # type: ignore[arg-type]  # click has checked them
    if options.backend == "local" and (options.cluster or options.kubeconfig):
        raise click.UsageError("--cluster and --kubeconfig need --backend kubernetes")
    if options.backend == "kubernetes" and (options.cpus or options.memory):
        raise click.UsageError(
            "--cpus and --memory bound local workers; the queue bounds a cluster's"
        )
    return run_attached(options)


def run_attached(options: RunOptions, open_session: OpenSession | None = None) -> int:
    """Run a workflow and follow it to its end; the exit code. `open_session` is for those who bring their own backend.

    Raises InvalidInput before anything was made, and whatever keeps a run from being followed.
    """
    import asyncio
    import os

    from simrun.cli import engine
    from simrun.cli.attached import Left, follow
    from simrun.cli.display import open_display
    from simrun.cli.failures import ExitCode
    from simrun.cli.workflowfile import base_of, read_workflow

    loaded = read_workflow(options.file, options.params, check_syntax=options.backend == "local")
    submission = submission_of(loaded, options)
    _make_store(options.store)
    open_session = open_session or engine.session_opener(options)
    display = open_display(sys.stderr, os.environ, quiet=options.quiet)
    if not options.quiet:
        display.notice(f"store {options.store}")
    try:
        record = asyncio.run(
            follow(open_session, submission, base_of(options.file), options.run_id, display)
        )
    except Left as left:
        display.notice(_farewell(left, options))
        return ExitCode.CANCELLED
    finally:
        display.close()
    return _finish(options, record)


def _make_store(store: Path) -> None:
    """Make the directory of the store. Raises InvalidInput where that can't be."""
    from simrun.base.errors import InvalidInput, Problem

    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text, remedy = f"can't be made: {error.strerror}", "name another directory with --store"
        raise InvalidInput([Problem("--store", text, repr(str(store)), remedy)]) from error


def submission_of(loaded: WorkflowFile, options: RunOptions) -> Submission:
    """Give the submission of a file, with what the command line says over the file's own `run:`.

    Raises InvalidInput that names the option.
    """
    from simrun.base import ids
    from simrun.base.errors import InvalidInput, Problem

    problems = []
    if options.group is not None and (problem := ids.group_problem(options.group)):
        problems.append(Problem("--group", problem, repr(options.group)))
    if options.run_id is not None and (problem := ids.run_id_problem(options.run_id)):
        problems.append(Problem("--id", problem, repr(options.run_id)))
    if problems:
        raise InvalidInput(problems)
    given = {"group": options.group, "name": options.name}
    request = loaded.request.model_copy(
        update={key: value for key, value in given.items() if value is not None}
    )
    return loaded.submission.model_copy(update={"request": request})


def _farewell(left: object, options: RunOptions) -> str:
    from simrun.cli.attached import Left

    if not isinstance(left, Left) or left.run_id is None:
        return "cancelled; nothing was submitted"
    return (
        f"left before the end of run {left.run_id} was recorded; "
        f"`simrun show {left.run_id} --store {options.store}` shows how it stands"
    )


def _finish(options: RunOptions, record: RunRecord) -> int:
    """Print what the run came to, data on stdout and what went wrong on stderr; give the exit code."""
    from simrun.base.errors import SimrunError
    from simrun.cli import show
    from simrun.cli.failures import ExitCode
    from simrun.cli.formatting import as_json, clean
    from simrun.store.runs import RunStore

    store = RunStore(options.store)
    if options.output == "json":
        click.echo(as_json(show.run_document(store, record)))
    else:
        click.echo(f"run {record.id} {record.state}\n\n{show.end_text(store, record)}")
    codes = {
        "succeeded": ExitCode.SUCCEEDED,
        "failed": ExitCode.FAILED,
        "cancelled": ExitCode.CANCELLED,
    }
    if str(record.state) not in codes:
        raise SimrunError(f"run {record.id} is {record.state}, and nobody follows it any more")
    if record.state == "failed":
        click.echo("\n".join(show.failure_lines(store, record)), err=True)
    elif record.message:
        click.echo(clean(record.message), err=True)
    return codes[str(record.state)]
