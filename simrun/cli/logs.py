"""`simrun logs`: what workers printed, byte for byte, and what they go on to print."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simrun.cli.options import run_argument, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord
    from simrun.store.logs import Log, LogReader
    from simrun.store.runs import RunStore

LOOK_S = 0.3


@click.command("logs", short_help="Print the output of a task's workers.")
@run_argument
@click.argument("target", metavar="TASK[/WORKER]")
@server_option
@click.option("-f", "--follow", is_flag=True, help="Print what comes, until the task has ended.")
@click.option(
    "--attempt",
    metavar="N|all",
    default="last",
    help="Which attempt of each worker. [default: the last]",
)
@click.option(
    "--tail", "lines", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines."
)
def command(*, target: str, server: str | None, store: str | None, **others: object) -> int:
    """Print what the workers of a task wrote to stdout and stderr.

    RUN is an id, the beginning of one, @latest or @latest:NAME. WORKER is a name such as sweep-w2, or w2 alone; without it all workers of the task
    are printed, each under a line with its name. The bytes are those the simulation wrote. They are read from the store, by a server
    where one is named. Ctrl-C leaves the run alone.
    """
    task, _, worker = target.partition("/")
    wanted = _Wanted(task=task, worker=worker or None, **others)  # type: ignore[arg-type]  # click has checked them
    found = where(server, store)
    runs: list[str] = []  # the run, once it is found
    try:
        if found.server is not None:
            from simrun.cli import remote

            async def printed(session: RemoteSession) -> None:
                await _of_server(session, wanted, runs)

            remote.call(remote.opener(server, store), printed)
        else:
            _of_store(found.store, wanted, runs)
    except KeyboardInterrupt:
        if wanted.follow and runs:
            click.echo(
                f"left the log of run {runs[0]}, which goes on; `simrun cancel {runs[0]}{found.named}` ends it",
                err=True,
            )
        return 130
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What was asked for. Raises UsageError for an attempt that is none."""

    run: str
    task: str
    worker: str | None
    attempt: str
    lines: int | None
    follow: bool

    def __post_init__(self) -> None:
        text = self.attempt
        if text not in ("last", "all") and not (text.isascii() and text.isdigit()):
            raise click.UsageError(f"--attempt takes a number or all, not {text!r}")


def _of_store(root: Path, wanted: _Wanted, runs: list[str]) -> None:
    from simrun.cli.records import find_run, find_task, store_at
    from simrun.store.logs import LogReader, check_logs, logs_of

    store = store_at(root)
    record = find_run(store, wanted.run)
    runs.append(record.id)
    task = find_task(record, wanted.task)
    reader = LogReader(
        store,
        record.id,
        task,
        worker=wanted.worker,
        attempt=wanted.attempt,
        lines=wanted.lines,
    )
    printer = _Printer()
    if wanted.follow:
        _follow(store, record, task, reader, printer)
    chosen = _chosen(logs_of(store, record.id, task), wanted)
    if not wanted.follow:
        check_logs(store, record.id, task, chosen)
        printer.named = len(chosen) > 1
        printer.print(reader)


def _chosen(logs: list[Log], wanted: _Wanted) -> list[Log]:
    """Choose logs by what was asked for. Raises NotFound that says what there is."""
    from simrun.base.errors import NotFound
    from simrun.model.faults import listed
    from simrun.store.logs import of_attempt

    task, worker, attempt = wanted.task, wanted.worker, wanted.attempt
    if worker:
        workers = dict.fromkeys(log.worker for log in logs)
        logs = [log for log in logs if log.worker in (worker, f"{task}-{worker}")]
        if not logs:
            known = f"there are logs of {listed(workers)}" if workers else "there are no logs yet"
            raise NotFound(f"no log of a worker {worker!r} of task {task!r}; {known}")
    if not logs:
        raise NotFound(f"task {task!r} has no logs yet")
    chosen = of_attempt(logs, attempt)
    if not chosen:
        known = listed({str(log.attempt) for log in logs})
        raise NotFound(f"no log of attempt {attempt}; there are {known}")
    return chosen


class _Printer:
    """Prints pieces of logs; where they are of several, a line on stderr says whose the next bytes are."""

    def __init__(self) -> None:
        self.named = False
        self.printed = False
        self._last: Log | None = None

    def print(self, reader: LogReader) -> None:
        """Print what has come."""
        for log, piece in reader.read():
            if log != self._last and (self.named or self._last is not None):
                sys.stdout.buffer.flush()
                before = "\n" if self._last is not None else ""
                click.echo(f"{before}==> {log.name} <==", err=True)
            self._last, self.printed = log, True
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _follow(
    runs: RunStore, record: RunRecord, task: str, reader: LogReader, printer: _Printer
) -> None:
    """Print what is there and what comes, until the task has ended."""
    from simrun.store.lock import StoreLock

    lock = StoreLock(runs.layout.root)
    warned = False
    while True:
        # Asked before the look, so that what was written before the end is printed
        ended = record.tasks[task].final and not record.pending_logs
        printer.print(reader)
        if ended:
            return
        if not warned and not lock.taken():
            root = runs.layout.root
            click.echo(
                f"nobody follows run {record.id} now; `simrun serve --store {root}` does", err=True
            )
            warned = True
        time.sleep(LOOK_S)
        record = runs.read(record.id)


async def _of_server(session: RemoteSession, wanted: _Wanted, runs: list[str]) -> None:
    from simrun.base.errors import NotFound
    from simrun.cli import remote

    record = await remote.find_run(session.client, wanted.run)
    runs.append(record.id)
    pieces = session.client.logs(
        record.id,
        wanted.task,
        worker=wanted.worker,
        attempt=wanted.attempt,
        follow=wanted.follow,
        lines=wanted.lines,
    )
    printed = False
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        printed = True
    if not printed and wanted.worker is not None:
        raise NotFound(f"no log of a worker {wanted.worker!r} of task {wanted.task!r}")
