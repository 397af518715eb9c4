"""What each task of a run used, and where its output is: read from the store, so it is the same while a run lives and years later.

From the reports of the harness where there are any, else from what was seen of the attempts (a bare command has no harness to
measure it). What nobody measured is shown as such, never as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simrun.cli.formatting import duration, table
from simrun.model.quantities import format_memory
from simrun.model.record import RunRecord, TaskState
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.model.workflow import Submission
from simrun.store.runs import RunStore

SHOWN_OUTPUTS = 20
"""Paths printed one by one; a run with more shows those of its last tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUse:
    """One attempt of a worker: how it ended and what it used. Times in seconds since 1970, memory in bytes."""

    worker: str
    attempt: int
    reason: str | None
    exit_code: int | None
    node: str
    started: float | None
    ended: float | None
    cpu_s: float | None
    peak_memory: int | None
    given_memory: int | None
    message: str = ""
    tail: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float | None:
        """How long it ran; None while it runs, or when it never did."""
        if self.started is None or self.ended is None:
            return None
        return self.ended - self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUse:
    """What a task used. `measured` says of how many of its attempts the processor time is known.

    peak_memory is the highest of any attempt, given_memory what that attempt had.
    """

    task: str
    state: str
    workers: int
    attempts: int
    retries: int
    wall_s: float | None
    cpu_s: float | None
    measured: int
    peak_memory: int | None
    given_memory: int | None


@dataclass(frozen=True, slots=True)
class Output:
    """A file or directory that a task has made; `port` is empty for the whole output directory."""

    task: str
    port: str
    path: Path


def attempts_of(store: RunStore, run_id: str, task: str) -> list[AttemptUse]:
    """Give the attempts of a task in the order of worker and attempt (blocking).

    Each pod of a number that had several is one of its own: the first of them vanished before anybody counted it as an attempt.
    """
    seen = store.evidence(run_id, task)
    uses = []
    for _, report in sorted(store.reports(run_id, task).items()):
        same = next((item for item in seen if _is_of(report, item)), None)
        uses.append(_of_report(report, same))
        if same is not None:
            seen.remove(same)
    uses += [_of_evidence(item) for item in seen]
    return sorted(
        uses, key=lambda use: (len(use.worker), use.worker, use.attempt, use.started or 0.0)
    )


def _is_of(report: WorkerReport, seen: AttemptEvidence) -> bool:
    """Whether a report and what was seen are of one pod; one that names none may be of any."""
    return (seen.worker, seen.attempt) == (report.worker, report.attempt) and (
        seen.pod_uid == report.pod_uid or "" in (seen.pod_uid, report.pod_uid)
    )


def task_use(task: str, state: str, attempts: Sequence[AttemptUse]) -> TaskUse:
    """Sum up a task."""
    workers = {use.worker for use in attempts}
    started = [use.started for use in attempts if use.started is not None]
    ended = [use.ended for use in attempts if use.ended is not None]
    cpu = [use.cpu_s for use in attempts if use.cpu_s is not None]
    peaks = [use for use in attempts if use.peak_memory is not None]
    highest = max(peaks, key=lambda use: use.peak_memory or 0, default=None)
    given = [use.given_memory for use in attempts if use.given_memory is not None]
    return TaskUse(
        task=task,
        state=state,
        workers=len(workers),
        attempts=len(attempts),
        retries=len(attempts) - len(workers),
        wall_s=max(ended) - min(started) if started and ended else None,
        cpu_s=sum(cpu) if cpu else None,
        measured=len(cpu),
        peak_memory=highest.peak_memory if highest else None,
        given_memory=highest.given_memory if highest else max(given, default=None),
    )


def usage(store: RunStore, record: RunRecord) -> list[TaskUse]:
    """Give what each task of a run used (blocking: two listings a task)."""
    return [
        task_use(task, str(state), attempts_of(store, record.id, task))
        for task, state in record.tasks.items()
    ]


def usage_table(uses: Iterable[TaskUse]) -> str:
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


def _cpu(use: TaskUse) -> str:
    if use.cpu_s is None:
        return "-" if use.attempts == 0 else "not measured"
    text = duration(use.cpu_s)
    return text if use.measured == use.attempts else f"{text} ({use.measured} of {use.attempts})"


def _of_report(report: WorkerReport, seen: AttemptEvidence | None) -> AttemptUse:
    return AttemptUse(
        worker=report.worker,
        attempt=report.attempt,
        reason=report.reason,
        exit_code=report.exit_code,
        node=report.node or (seen.node if seen else ""),
        started=report.started,
        ended=report.ended,
        cpu_s=report.cpu_s,
        peak_memory=report.memory.peak_unreclaimable,
        given_memory=report.memory.limit or (seen.memory if seen else None),
        message=report.message,
        tail=tuple(report.tail),
    )


def _of_evidence(seen: AttemptEvidence) -> AttemptUse:
    return AttemptUse(
        worker=seen.worker,
        attempt=seen.attempt,
        reason=seen.reason,
        exit_code=seen.exit_code,
        node=seen.node,
        started=seen.started,
        ended=seen.ended,
        cpu_s=seen.cpu_s,
        peak_memory=seen.peak_memory,
        given_memory=seen.memory,
        message=seen.message,
    )
