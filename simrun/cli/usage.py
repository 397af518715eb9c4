"""What each task of a run used, as text, and where its output is. What nobody measured is shown as such, never as 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simrun.cli.formatting import duration, table
from simrun.model.quantities import format_memory
from simrun.model.record import RunRecord, TaskState
from simrun.model.workflow import Submission
from simrun.service.runreport import RunReport, TaskReport
from simrun.store.runs import RunStore

SHOWN_OUTPUTS = 20
"""Paths printed one by one; a run with more shows those of its last tasks."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file or directory that a task has made; `port` is empty for the whole output directory."""

    task: str
    port: str
    path: Path


def usage_table(uses: Iterable[TaskReport]) -> str:
    """Give the table of what each task used."""
    heads = ("task", "state", "workers", "wall", "cpu", "peak memory", "retries")
    rows = [
        (
            use.task,
            use.state,
            str(use.workers) if use.workers else "-",
            duration(use.wall_s),
            _cpu(use),
            memory_text(use.peak_memory, use.given_memory),
            str(use.retries),
        )
        for use in uses
    ]
    return table(heads, rows, right=(2, 3, 4, 6))


def report_text(report: RunReport) -> str:
    """Give the whole of a report: each task, then the sums."""
    heads = ("task", "state", "queued", "wall", "cpu of given", "peak memory", "units", "retries")
    rows = [
        (
            use.task,
            use.state,
            duration(use.queued_s),
            duration(use.wall_s),
            _of(use.cpu_s, use.given_cpu_s, f"{use.measured} of {use.attempts} measured", use),
            _share(memory_text(use.peak_memory, use.given_memory), use.memory_efficiency),
            units_text(use),
            _retries(use),
        )
        for use in report.tasks
    ]
    lines = [table(heads, rows, right=(2, 3, 6)), ""]
    time = "not ended yet"
    if report.wall_s is not None:
        time = f"{duration(report.wall_s)} from its creation to its end"
    lines.append(f"run {report.run} {report.state}, {time}")
    measured = f"{report.measured} of {report.attempts} attempts measured"
    if report.cpu_s is None:
        lines.append(f"processor time: not measured ({measured})")
    else:
        used = f"processor time: {duration(report.cpu_s)}"
        if report.given_cpu_s is not None:
            used += f" of {duration(report.given_cpu_s)}"
        lines.append(f"{_share(used, report.cpu_efficiency)} ({measured})")
    if report.wasted_cpu_s:
        lines.append(
            f"wasted: {duration(report.wasted_cpu_s)} given to attempts that ended badly with nothing done"
        )
    return "\n".join(lines)


def _of(used: float | None, given: float | None, measured: str, use: TaskReport) -> str:
    if used is None:
        return "-" if use.attempts == 0 else "not measured"
    text = duration(used) if given is None else f"{duration(used)} of {duration(given)}"
    text = _share(text, use.cpu_efficiency)
    return text if use.measured == use.attempts else f"{text} ({measured})"


def _share(text: str, efficiency: float | None) -> str:
    """Add a ratio; never one without both of its sides before it."""
    return text if efficiency is None else f"{text} = {efficiency:.0%}"


def units_text(use: TaskReport) -> str:
    """Give `8/10, 2 failed`; `-` of a task that has no units."""
    if use.units_done is None:
        return "-"
    text = f"{use.units_done}/{'?' if use.units_total is None else use.units_total}"
    return f"{text}, {use.units_failed} failed" if use.units_failed else text


def _retries(use: TaskReport) -> str:
    causes = ", ".join(f"{count} {reason}" for reason, count in use.retries_by.items())
    return causes or "0"


def memory_text(peak: int | None, given: int | None) -> str:
    """Give `85 MiB of 256 MiB`, or which side is not known."""
    if peak is None and given is None:
        return "-"
    measured = "not measured" if peak is None else format_memory(peak)
    return f"{measured} of {format_memory(given)}" if given is not None else measured


def outputs(store: RunStore, record: RunRecord, submission: Submission) -> list[Output]:
    """Give what the done tasks of a run have made (blocking).

    The ports of a task's type that are there; of a type without ports its output directory, if anything is in it.
    """
    found = []
    for task, state in record.tasks.items():
        item = submission.workflow.tasks.get(task)
        if state is not TaskState.DONE or item is None or item.type not in submission.types:
            continue
        out = store.layout.run(record.id).task(task).out
        ports = submission.types[item.type].outputs
        found += [
            Output(task, port, out / path) for port, path in ports.items() if (out / path).exists()
        ]
        if not ports and out.is_dir() and any(not p.name.startswith(".") for p in out.iterdir()):
            found.append(Output(task, "", out))
    return found


def outputs_text(found: Sequence[Output], submission: Submission, run_dir: Path) -> str:
    """Give the paths of outputs, one a line. Of many, those that no other task reads; of too many of those, the first."""
    shown = list(found)
    if len(shown) > SHOWN_OUTPUTS:
        read = {
            (source.task, source.port)
            for task in submission.workflow.tasks.values()
            for source in task.sources.values()
        }
        shown = [item for item in found if (item.task, item.port) not in read] or shown
    lines = [
        (f"{item.task}.{item.port}" if item.port else item.task, str(item.path))
        for item in shown[:SHOWN_OUTPUTS]
    ]
    text = table(("output", "path"), lines) if lines else ""
    if (hidden := len(found) - len(lines)) > 0:
        text += f"\nand {hidden} more below {run_dir / 'tasks'}"
    return text


def _cpu(use: TaskReport) -> str:
    if use.cpu_s is None:
        return "-" if use.attempts == 0 else "not measured"
    text = duration(use.cpu_s)
    return text if use.measured == use.attempts else f"{text} ({use.measured} of {use.attempts})"
