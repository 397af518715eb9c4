"""`simrun logs`: what workers printed, byte for byte."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

import click

from simrun.cli.options import store_option, store_path

if TYPE_CHECKING:
    from simrun.model.record import RunRecord
    from simrun.store.runs import RunStore

CHUNK = 1 << 20
_LOG = re.compile(r"(?P<worker>.+)-(?P<attempt>[0-9]+)\.log")


@click.command("logs", short_help="Print the output of a task's workers.")
@click.argument("run")
@click.argument("target", metavar="TASK[/WORKER]")
@store_option
@click.option(
    "--attempt",
    metavar="N|all",
    default="last",
    help="Which attempt of each worker. [default: the last]",
)
@click.option(
    "--tail", "lines", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines."
)
def command(run: str, target: str, store: str | None, attempt: str, lines: int | None) -> None:
    """Print what the workers of a task wrote to stdout and stderr.

    RUN is an id, the beginning of one, or @latest. WORKER is a name such as sweep-w2, or w2 alone; without it all workers of the task
    are printed, each under a line with its name. The bytes are those the simulation wrote.
    """
    from simrun.cli.records import find_run, find_task, store_at

    if attempt not in ("last", "all") and not attempt.isdigit():
        raise click.UsageError(f"--attempt takes a number or all, not {attempt!r}")
    runs = store_at(store_path(store))
    record = find_run(runs, run)
    task_name, _, worker = target.partition("/")
    task = find_task(record, task_name)
    names = _chosen(_logs(runs, record, task), task, worker, attempt)
    for number, name in enumerate(names):
        if len(names) > 1:
            before = "\n" if number else ""
            click.echo(f"{before}==> {name.removesuffix('.log')} <==", err=True)
        _print(runs, record, task, name, lines)


def _logs(store: RunStore, record: RunRecord, task: str) -> list[tuple[str, int, str]]:
    """Give worker, attempt and name of every log of a task, in order."""
    from simrun.worker import files

    names = files.listing(store.layout.run(record.id).task(task).logs)
    found = [
        (match["worker"], int(match["attempt"]), name)
        for name in names
        if (match := _LOG.fullmatch(name))
    ]
    return sorted(found, key=lambda item: (len(item[0]), item[0], item[1]))


def _chosen(logs: list[tuple[str, int, str]], task: str, worker: str, attempt: str) -> list[str]:
    """Choose logs by what was asked for. Only names that were listed are ever opened. Raises NotFound."""
    from simrun.base.errors import NotFound
    from simrun.model.faults import listed

    if worker:
        workers = dict.fromkeys(name for name, _, _ in logs)
        logs = [item for item in logs if item[0] in (worker, f"{task}-{worker}")]
        if not logs:
            known = f"there are logs of {listed(workers)}" if workers else "there are no logs yet"
            raise NotFound(f"no log of a worker {worker!r} of task {task!r}; {known}")
    if not logs:
        raise NotFound(f"task {task!r} has no logs yet")
    if attempt == "last":
        return list({name: file for name, _, file in logs}.values())
    chosen = [file for _, number, file in logs if attempt == "all" or number == int(attempt)]
    if not chosen:
        raise NotFound(
            f"no log of attempt {attempt}; there are {listed({str(n) for _, n, _ in logs})}"
        )
    return chosen


def last_lines(store: RunStore, run_id: str, task: str, attempt_name: str, lines: int) -> list[str]:
    """Give the last lines of an attempt's log as text; none where there is no log."""
    from simrun.base.errors import NotFound
    from simrun.store.files import open_beneath

    root = store.layout.run(run_id).root
    try:
        fd = open_beneath(root, "tasks", task, "logs", f"{attempt_name}.log")
    except NotFound:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(_start_of_tail(file, lines))
        return file.read(CHUNK).decode(errors="replace").splitlines()


def _print(store: RunStore, record: RunRecord, task: str, name: str, lines: int | None) -> None:
    from simrun.store.files import open_beneath

    root = store.layout.run(record.id).root
    with os.fdopen(open_beneath(root, "tasks", task, "logs", name), "rb") as file:
        if lines is not None:
            file.seek(_start_of_tail(file, lines))
        out = sys.stdout.buffer
        while chunk := file.read(CHUNK):
            out.write(chunk)
        out.flush()


def _start_of_tail(file: BinaryIO, lines: int) -> int:
    """Give where the last `lines` lines begin, reading from the end so that a long log costs no more than a short one."""
    end = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end
    position = end
    while position > 0:
        size = min(CHUNK, position)
        position -= size
        file.seek(position)
        chunk = file.read(size)
        if position + size == end and chunk.endswith(b"\n"):
            chunk = chunk[:-1]  # the end of the last line begins no other
        while (newline := chunk.rfind(b"\n")) >= 0:
            lines -= 1
            if lines == 0:
                return position + newline + 1
            chunk = chunk[:newline]
    return 0
