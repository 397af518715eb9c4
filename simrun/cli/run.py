"""`simrun run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import (
    BackendOptions,
    backend_options,
    output_option,
    quiet_option,
    request_options,
    store_option,
)
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.attached import Left, OpenSession, RunSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `simrun run` was asked for."""

    file: str
    store: Path
    output: Literal["table", "json"] = "table"
    backend: BackendOptions = field(default_factory=BackendOptions)
    group: str | None = None
    name: str | None = None
    run_id: str | None = None
    params: tuple[str, ...] = ()
    quiet: bool = False


@click.command("run", short_help="Run a workflow file and follow it to its end.")
@click.argument("file")
@store_option
@output_option
@backend_options
@request_options
@quiet_option
def command(file: str, store: str | None, **others: object) -> int:
    """Run the workflow in FILE (YAML or JSON; - for stdin), follow it to its end, and print what each task used and where its output is.

    Ctrl-C cancels the run and waits for its workers; once more kills them. A store that another `simrun run` holds is waited for;
    one that is served gets the run, and then Ctrl-C leaves it there. So does the server of a --context.
    Exit codes: 0 succeeded, 1 failed, 2 wrong usage or input, 3 cancelled, 130 left on a server.
    """
    found = where(None, store)
    options = RunOptions(file=file, store=found.store, **others)  # type: ignore[arg-type]  # click has checked them
    if found.level == "flag" and found.server is not None:
        return run_there(options)
    return run_attached(options)


def run_there(options: RunOptions) -> int:
    """Hand a workflow over to the server of --context, and follow it to its end; the exit code. Raises UsageError for options of a backend."""
    from simrun.cli import remote
    from simrun.cli.workflowfile import base_of, read_workflow, submission_of

    if options.backend != BackendOptions():
        raise click.UsageError(
            "where it runs and on how much is the matter of the context's server"
        )
    loaded = read_workflow(options.file, options.params, check_syntax=False)
    submission = submission_of(
        loaded,
        group=options.group,
        name=options.name,
        run_id=options.run_id,
        place=where(),
    )

    async def begun(session: remote.RemoteSession) -> str:
        return await session.submit(submission, base_of(options.file), options.run_id)

    return remote.follow_to_end(
        remote.opener(None, None), begun, output=options.output, quiet=options.quiet
    )


def run_attached(options: RunOptions, open_session: OpenSession[RunSession] | None = None) -> int:
    """Run a workflow and follow it to its end; the exit code. `open_session` is for those who bring their own backend.

    Raises InvalidInput before anything was made, and whatever keeps a run from being followed.
    """
    import asyncio
    import os

    from simrun.cli import engine
    from simrun.cli.attached import Left, follow
    from simrun.cli.display import open_display
    from simrun.cli.ending import finish
    from simrun.cli.failures import ExitCode
    from simrun.cli.workflowfile import base_of, read_workflow, submission_of

    local = options.backend.backend == "local"
    loaded = read_workflow(options.file, options.params, check_syntax=local)
    submission = submission_of(
        loaded,
        group=options.group,
        name=options.name,
        run_id=options.run_id,
        place=where(None, str(options.store)),
    )
    make_store(options.store)
    open_session = open_session or engine.session_opener(options.backend, options.store)
    display = open_display(sys.stderr, os.environ, quiet=options.quiet)
    if not options.quiet:
        display.notice(f"store {options.store}")

    async def begin(session: RunSession) -> str:
        return await session.submit(submission, base_of(options.file), options.run_id)

    try:
        record = asyncio.run(follow(open_session, begin, display))
    except Left as left:
        display.notice(_farewell(left, options))
        return ExitCode.CANCELLED if left.session is None else ExitCode.DETACHED
    finally:
        display.close()
    return finish(record, options.store, options.output)


def make_store(store: Path) -> None:
    """Make the directory of the store. Raises InvalidInput where that can't be."""
    import os

    from simrun.base.errors import InvalidInput, Problem

    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"can't be made: {error.strerror}"
        remedy = f"name another directory with --store, or let uid {os.geteuid()} write there"
        raise InvalidInput([Problem("--store", text, repr(str(store)), remedy)]) from error


def _farewell(left: Left, options: RunOptions) -> str:
    from simrun.cli import remote

    if left.session is not None:
        return remote.farewell(left)
    if left.run_id is None:
        return "cancelled; nothing was submitted"
    return (
        f"left before the end of run {left.run_id} was recorded; "
        f"`simrun show {left.run_id} --store {options.store}` shows how it stands"
    )
