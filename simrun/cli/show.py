"""`simrun show`, and the documents and texts about a run that `simrun run` ends with too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simrun.cli.formatting import as_json, clean, cut, duration, table
from simrun.cli.listing import time_text, took
from simrun.cli.options import output_option, run_argument, server_option
from simrun.cli.where import where

if TYPE_CHECKING:
    from simrun.cli.remote import RemoteSession
    from simrun.model.record import RunRecord
    from simrun.service.attemptuse import AttemptUse
    from simrun.service.runreport import RunReport, TaskReport
    from simrun.store.runs import RunStore

LAST_LINES = 5
"""Of the log of what failed."""


@click.command("show", short_help="Show a run, or one of its tasks.")
@run_argument
@click.argument("task", required=False)
@server_option
@output_option
def command(
    *, run: str, task: str | None, server: str | None, store: str | None, output: str
) -> None:
    """Show a run: its state, what each task used, and where its output is. Of a TASK, every attempt.

    RUN is an id, the beginning of one, @latest or @latest:NAME.
    """
    found = where(server, store)
    if found.server is None:
        data, text = _of_store(found.store, run, task)
    else:
        from simrun.cli import remote

        async def asked(session: RemoteSession) -> tuple[dict[str, Any], str]:
            return await _of_server(session, run, task)

        data, text = remote.call(remote.opener(server, store), asked)
    click.echo(as_json(data) if output == "json" else text)


def _of_store(root: Path, run: str, task: str | None) -> tuple[dict[str, Any], str]:
    """Give what was asked for, for programs and for people."""
    from simrun.cli.records import find_run, find_task, store_at
    from simrun.service.attemptuse import attempts_of
    from simrun.service.runreport import run_report

    runs = store_at(root)
    record = find_run(runs, run)
    if task is None:
        return run_document(runs, record), f"{head_text(record)}\n\n{end_text(runs, record)}"
    task = find_task(record, task)
    report = run_report(runs, record, runs.submission(record.id))
    attempts = attempts_of(runs, record.id, task, record.plans.get(task))
    directory = str(runs.layout.run(record.id).task(task).root)
    return (
        task_document(record, report, task, attempts, directory),
        task_text(record, report, task, attempts, directory),
    )


async def _of_server(
    session: RemoteSession, run: str, task: str | None
) -> tuple[dict[str, Any], str]:
    from simrun.cli import remote
    from simrun.cli.records import find_task
    from simrun.service.attemptuse import uses_of

    client = session.client
    record = await remote.find_run(client, run)
    report = await client.report(record.id)
    if task is not None:
        task = find_task(record, task)
        bodies = await client.attempts(record.id, task)
        attempts = uses_of(
            [body.evidence for body in bodies if body.evidence],
            [body.report for body in bodies if body.report],
            record.plans.get(task),
        )
        return (
            task_document(record, report, task, attempts, None),
            task_text(record, report, task, attempts, None),
        )
    return (
        {**record.model_dump(mode="json"), "usage": [asdict(use) for use in report.tasks]},
        f"{head_text(record)}\n\n{far_end_text(record, report, session.server.options)}",
    )


def run_document(store: RunStore, record: RunRecord) -> dict[str, Any]:
    """Give a run for programs: its record, and beside it what each task used and the paths of the outputs."""
    from simrun.cli import usage
    from simrun.service.runreport import run_report

    submission = store.submission(record.id)
    return {
        **record.model_dump(mode="json"),
        "directory": str(store.layout.run(record.id).root),
        "usage": [asdict(use) for use in run_report(store, record, submission).tasks],
        "outputs": [
            {"task": item.task, "port": item.port or None, "path": str(item.path)}
            for item in usage.outputs(store, record, submission)
        ],
    }


def head_text(record: RunRecord) -> str:
    """Give what a run is and how it stands."""
    message = record.message if record.message != record.state else None
    state = str(record.state) + (f": {clean(message)}" if message else "")
    rows = [
        ("run", record.id),
        ("name", clean(record.name)),
        ("group", clean(record.group)),
        ("state", state),
        ("created", f"{time_text(record.times.created)}, took {duration(took(record))}"),
    ]
    return "\n".join(f"{name:<8} {value}" for name, value in rows if value)


def end_text(store: RunStore, record: RunRecord) -> str:
    """Give what each task used, and the paths of the outputs."""
    from simrun.cli import usage
    from simrun.service.runreport import run_report

    submission = store.submission(record.id)
    text = usage.usage_table(run_report(store, record, submission).tasks)
    found = usage.outputs(store, record, submission)
    if found:
        run_dir = store.layout.run(record.id).root
        text += f"\n\n{usage.outputs_text(found, submission, run_dir)}"
    return text


def far_end_text(record: RunRecord, report: RunReport, options: str) -> str:
    """Give what each task used, and how to get the outputs from a server. options: name it again."""
    from simrun.cli.usage import usage_table

    return (
        f"{usage_table(report.tasks)}\n\nsimrun get {record.id} DIR{options} downloads its outputs"
    )


def task_document(
    record: RunRecord,
    report: RunReport,
    task: str,
    attempts: Sequence[AttemptUse],
    directory: str | None,
) -> dict[str, Any]:
    """Give a task for programs. directory: where its files are, if that is on this machine."""
    plan = record.plans.get(task)
    return {
        "run": record.id,
        "task": task,
        "state": str(record.tasks[task]),
        "plan": plan.model_dump(mode="json") if plan else None,
        **({"directory": directory} if directory else {}),
        "usage": asdict(_use_of(report, task)),
        "attempts": [asdict(use) for use in attempts],
    }


def _use_of(report: RunReport, task: str) -> TaskReport:
    return next(use for use in report.tasks if use.task == task)


def task_text(
    record: RunRecord,
    report: RunReport,
    task: str,
    attempts: Sequence[AttemptUse],
    directory: str | None,
) -> str:
    """Give a task with all its attempts, and the last lines of what went wrong."""
    from simrun.cli.usage import units_text
    from simrun.model.quantities import format_memory

    lines = [f"task     {task}", f"run      {record.id}", f"state    {record.tasks[task]}"]
    if plan := record.plans.get(task):
        text = f"{plan.pods} x {plan.cpus:g} cpu, {format_memory(plan.memory)}"
        if plan.retry_memory:
            text += f", {format_memory(plan.retry_memory)} after a kill for memory"
        lines.append(f"workers  {text}")
    if (units := units_text(_use_of(report, task))) != "-":
        lines.append(f"units    {units}")
    if directory:
        lines.append(f"files    {directory}")
    if attempts:
        lines += ["", _attempt_table(attempts)]
    for use in attempts:
        lines += trouble(use)
    return "\n".join(lines)


def trouble(use: AttemptUse, *, said: str = "") -> list[str]:
    """Give the lines that say what was wrong with an attempt; none when nothing was. said: the text above it, not to be repeated."""
    if use.reason in (None, "completed") and not use.message:
        return []
    lines = ["", f"{use.worker}, attempt {use.attempt}: {use.reason or 'running'}"]
    if use.message and use.message not in said:
        lines.append(f"  {clean(use.message)}")
    return lines + [f"  | {clean(line)}" for line in use.tail]


def _attempt_table(attempts: Sequence[AttemptUse]) -> str:
    from simrun.cli.usage import memory_text

    heads = ("worker", "attempt", "ended", "exit", "node", "wall", "cpu", "peak memory")
    rows = [
        (
            use.worker,
            str(use.attempt),
            use.reason or "running",
            "-" if use.exit_code is None else str(use.exit_code),
            use.node or "-",
            duration(use.wall_s),
            duration(use.cpu_s),
            memory_text(use.peak_memory, use.given_memory),
        )
        for use in attempts
    ]
    return table(heads, rows, right=(1, 3, 5, 6))


def failure_line(record: RunRecord) -> str:
    """Give why a run failed, as far as its record knows."""
    return f"error: run {record.id} failed: {clean(record.message or 'no reason was recorded')}"


def failure_lines(store: RunStore, record: RunRecord, most: int = 3) -> list[str]:
    """Give why a run failed: its message, the last lines of the first failed tasks, and what to type to see more."""
    from simrun.service.attemptuse import attempts_of
    from simrun.store.logs import Log, last_lines

    lines = [failure_line(record)]
    failed = [task for task, state in record.tasks.items() if state == "failed"]
    for task in failed[:most]:
        attempts = attempts_of(store, record.id, task)
        bad = [use for use in attempts if use.reason not in (None, "completed")]
        if bad:
            last = max(bad, key=lambda use: use.ended or 0)
            lines += trouble(last, said=record.message or "")
            if not last.tail:  # a bare command has nobody to report its last words
                log = Log(last.worker, last.attempt)
                words = last_lines(store, record.id, task, log, LAST_LINES)
                lines += [f"  | {cut(clean(line), 200)}" for line in words]
        lines.append(f"  simrun logs {record.id} {task} --store {store.layout.root}")
    if len(failed) > most:
        lines.append(f"  and {len(failed) - most} more failed tasks")
    return lines
