"""`simrun show`, and the documents and texts about a run that `simrun run` ends with too."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from simrun.cli.formatting import as_json, clean, cut, duration, table
from simrun.cli.listing import time_text, took
from simrun.cli.options import output_option, store_option, store_path

if TYPE_CHECKING:
    from simrun.cli.report import AttemptUse
    from simrun.model.record import RunRecord
    from simrun.store.runs import RunStore

LAST_LINES = 5
"""Of the log of what failed."""


@click.command("show", short_help="Show a run, or one of its tasks.")
@click.argument("run")
@click.argument("task", required=False)
@store_option
@output_option
def command(run: str, task: str | None, store: str | None, output: str) -> None:
    """Show a run: its state, what each task used, and where its output is. Of a TASK, every attempt.

    RUN is an id, the beginning of one, or @latest.
    """
    from simrun.cli.records import find_run, find_task, store_at

    runs = store_at(store_path(store))
    record = find_run(runs, run)
    if task is not None:
        task = find_task(record, task)
        data, text = task_document(runs, record, task), task_text(runs, record, task)
    else:
        data, text = run_document(runs, record), f"{head_text(record)}\n\n{end_text(runs, record)}"
    click.echo(as_json(data) if output == "json" else text)


def run_document(store: RunStore, record: RunRecord) -> dict[str, Any]:
    """Give a run for programs: its record, and beside it what each task used and the paths of the outputs."""
    from simrun.cli import report

    submission = store.submission(record.id)
    return {
        **record.model_dump(mode="json"),
        "directory": str(store.layout.run(record.id).root),
        "usage": [asdict(use) for use in report.usage(store, record)],
        "outputs": [
            {"task": item.task, "port": item.port or None, "path": str(item.path)}
            for item in report.outputs(store, record, submission)
        ],
    }


def head_text(record: RunRecord) -> str:
    """Give what a run is and how it stands."""
    state = str(record.state) + (f": {clean(record.message)}" if record.message else "")
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
    from simrun.cli import report

    submission = store.submission(record.id)
    text = report.usage_table(report.usage(store, record))
    found = report.outputs(store, record, submission)
    if found:
        run_dir = store.layout.run(record.id).root
        text += f"\n\n{report.outputs_text(found, submission, run_dir)}"
    return text


def task_document(store: RunStore, record: RunRecord, task: str) -> dict[str, Any]:
    """Give a task for programs."""
    from simrun.cli import report

    attempts = report.attempts_of(store, record.id, task)
    plan = record.plans.get(task)
    return {
        "run": record.id,
        "task": task,
        "state": str(record.tasks[task]),
        "plan": plan.model_dump(mode="json") if plan else None,
        "directory": str(store.layout.run(record.id).task(task).root),
        "usage": asdict(report.task_use(task, str(record.tasks[task]), attempts)),
        "attempts": [asdict(use) for use in attempts],
    }


def task_text(store: RunStore, record: RunRecord, task: str) -> str:
    """Give a task with all its attempts, and the last lines of what went wrong."""
    from simrun.cli import report
    from simrun.model.quantities import format_memory

    attempts = report.attempts_of(store, record.id, task)
    lines = [f"task     {task}", f"run      {record.id}", f"state    {record.tasks[task]}"]
    if plan := record.plans.get(task):
        text = f"{plan.pods} x {plan.cpus:g} cpu, {format_memory(plan.memory)}"
        if plan.retry_memory:
            text += f", {format_memory(plan.retry_memory)} after a kill for memory"
        lines.append(f"workers  {text}")
    lines.append(f"files    {store.layout.run(record.id).task(task).root}")
    if attempts:
        lines += ["", _attempt_table(attempts)]
    for use in attempts:
        lines += trouble(use)
    return "\n".join(lines)


def trouble(use: AttemptUse) -> list[str]:
    """Give the lines that say what was wrong with an attempt; none when nothing was."""
    if use.reason in (None, "completed") and not use.message:
        return []
    lines = ["", f"{use.worker}, attempt {use.attempt}: {use.reason or 'running'}"]
    if use.message:
        lines.append(f"  {clean(use.message)}")
    return lines + [f"  | {clean(line)}" for line in use.tail]


def _attempt_table(attempts: list[AttemptUse]) -> str:
    from simrun.cli.report import memory_text

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
    from simrun.cli import report
    from simrun.store.logs import Log, last_lines

    lines = [failure_line(record)]
    failed = [task for task, state in record.tasks.items() if state == "failed"]
    for task in failed[:most]:
        attempts = report.attempts_of(store, record.id, task)
        bad = [use for use in attempts if use.reason not in (None, "completed")]
        if bad:
            last = max(bad, key=lambda use: use.ended or 0)
            lines += trouble(last)
            if not last.tail:  # a bare command has nobody to report its last words
                log = Log(last.worker, last.attempt)
                words = last_lines(store, record.id, task, log, LAST_LINES)
                lines += [f"  | {cut(clean(line), 200)}" for line in words]
        lines.append(f"  simrun logs {record.id} {task} --store {store.layout.root}")
    if len(failed) > most:
        lines.append(f"  and {len(failed) - most} more failed tasks")
    return lines
