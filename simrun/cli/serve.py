"""`simrun serve`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import BackendOptions, backend_options, store_option, store_path

if TYPE_CHECKING:
    from simrun.model.serving import LimitsFile

PORT = 8642
VARIABLES = "SIMRUN_SERVE"
"""Beginning of the variables of the environment that stand for options."""


@click.command(
    "serve",
    short_help="Follow runs until it is stopped, for whoever submits them.",
    context_settings={"auto_envvar_prefix": VARIABLES},
    epilog=f"Each option may be given as a variable: --log-format as {VARIABLES}_LOG_FORMAT.",
)
@store_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@backend_options
@click.option(
    "--index",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="List of the runs, on a local disk; made anew from the store. [default: in the store, else in the user's cache]",
)
@click.option(
    "--tokens",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Whom to let in (see `simrun token create`); read again when it changes. [default: anybody, on a loopback address only]",
)
@click.option(
    "--limits",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="How much each group may have at once (YAML). [default: no limits]",
)
@click.option(
    "--schedule-rate",
    metavar="N",
    type=click.FloatRange(min=0.01),
    default=50.0,
    show_default=True,
    help="Runs that all schedules together begin in a second, above 200 at once.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the log on stderr: lines for people, or a JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="From which level on something is logged.",
)
@click.option(
    "--access-log/--no-access-log",
    default=None,
    help="Log every request. [default: with --log-format json]",
)
@click.option(
    "--audit-log",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append who changed what to this file, a JSON object a line. [default: it goes to the log]",
)
def command(
    *,
    store: str | None,
    host: str,
    port: int,
    backend: BackendOptions,
    index: Path | None,
    tokens: Path | None,
    limits: Path | None,
    schedule_rate: float,
    log_format: Literal["text", "json"],
    log_level: Literal["debug", "info", "warning", "error"],
    access_log: bool | None,
    audit_log: Path | None,
) -> None:
    """Take runs (simrun submit, simrun run), start them and follow them, until Ctrl-C or SIGTERM.

    Workers go on when it is stopped or dies; the next one over the same store takes them up, and what is left to do. Local workers that
    nobody takes up within 10 minutes end themselves.

    Without --tokens whoever reaches the address may run commands, so only a loopback address is taken.
    """
    import asyncio

    from simrun.base import logs
    from simrun.cli import engine
    from simrun.cli.run import make_store
    from simrun.service.api.observing import ACCESS, AUDIT
    from simrun.service.auth import load_tokens
    from simrun.service.main import ServeOptions, end_process, serve

    logs.configure(log_format, level=log_level)
    logs.silence(ACCESS, unless=log_format == "json" if access_log is None else access_log)
    if audit_log is not None:
        logs.divert(AUDIT, audit_log)
    root = store_path(store)
    place = engine.place_of(backend, root)
    options = ServeOptions(
        store=root,
        index=index or default_index(root),
        host=host,
        port=port,
        owner=place.owner,
        tokens=tokens,
        limits=read_limits(limits),
        schedule_rate=schedule_rate,
    )
    if tokens is not None:
        load_tokens(tokens)  # what is wrong with them is told before anything is made
    make_store(root)

    def ready(url: str) -> None:
        click.echo(
            f"store {root}\nindex {options.index}\nserving at {url}; Ctrl-C stops it", err=True
        )

    asyncio.run(serve(options, place.backend, election=place.election, on_ready=ready))
    end_process()


def read_limits(file: Path | None) -> LimitsFile:
    """Read how much groups may have; no limits where no file is named. Raises InvalidInput with all that is wrong."""
    from simrun.base.errors import InvalidInput
    from simrun.model.load import load_settings
    from simrun.model.serving import LimitsFile

    if file is None:
        return LimitsFile()
    try:
        text = file.read_bytes()
    except OSError as error:
        text_of_error = f"can't be read: {error.strerror}"
        raise InvalidInput.one("--limits", text_of_error, value=str(file)) from error
    return load_settings(LimitsFile, text, file=str(file))


def default_index(store: Path) -> Path:
    """Give where the index of a store is: inside, or on a disk of this machine if the store is not on one."""
    import hashlib
    import os

    from simrun.store.mounts import network_file_system

    if network_file_system(store) is None:
        return store / "index.sqlite"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "simrun" / f"{hashlib.sha256(os.fsencode(store)).hexdigest()[:16]}.sqlite"
