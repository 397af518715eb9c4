"""What a run used against what it was given: of each task and attempt, while it lives and years later.

From the reports of the harness where there are any, else from what was seen of the attempts. What nobody measured is None, never 0, and
every sum says of how many attempts it is. Reading is apart from summing up, which is pure.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.workflow import Submission
from simrun.service.attemptuse import AttemptUse, attempts_of
from simrun.service.progress import ProgressReader, TaskProgress
from simrun.store.runs import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a task used. Seconds and bytes.

    wall_s: from its first start to its last end. queued_s: the longest that a pod waited for its start. cpu_s: of `measured` attempts,
    which were given given_cpu_s. peak_memory: the highest of `memory_measured` attempts, given_memory what that attempt had.
    retries_by: attempts that were made again, by what ended them. wasted_cpu_s: processor time given to attempts that ended badly and
    had committed nothing. units_lost: computed, but another worker had committed first. Units are None for a task that has none.
    """

    task: str
    type: str = ""
    state: TaskState
    workers: int
    attempts: int
    retries: int
    retries_by: dict[str, int] = field(default_factory=dict)
    wall_s: float | None
    queued_s: float | None = None
    cpu_s: float | None
    given_cpu_s: float | None = None
    measured: int
    peak_memory: int | None
    given_memory: int | None
    memory_measured: int = 0
    wasted_cpu_s: float = 0.0
    units_done: int | None = None
    units_failed: int | None = None
    units_total: int | None = None
    units_lost: int | None = None

    @property
    def cpu_efficiency(self) -> float | None:
        """Processor time used of what was given."""
        return _ratio(self.cpu_s, self.given_cpu_s)

    @property
    def memory_efficiency(self) -> float | None:
        """The highest peak of what that attempt was given."""
        return _ratio(self.peak_memory, self.given_memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run used. wall_s: from its creation to its end; the sums are those of its tasks."""

    run: str
    name: str
    group: str
    state: RunState
    created: float
    ended: float | None
    wall_s: float | None
    attempts: int
    measured: int
    cpu_s: float | None
    given_cpu_s: float | None
    wasted_cpu_s: float
    tasks: tuple[TaskReport, ...]

    @property
    def cpu_efficiency(self) -> float | None:
        """Processor time used of what was given."""
        return _ratio(self.cpu_s, self.given_cpu_s)


def run_report(store: RunStore, record: RunRecord, submission: Submission) -> RunReport:
    """Sum up a run (blocking: four listings a task)."""
    attempts = {
        task: attempts_of(store, record.id, task, record.plans.get(task)) for task in record.tasks
    }
    progress = ProgressReader(store).read(record, submission, None)
    return summed_up(record, submission, attempts, {item.task: item for item in progress.tasks})


def summed_up(
    record: RunRecord,
    submission: Submission,
    attempts: Mapping[str, Sequence[AttemptUse]],
    progress: Mapping[str, TaskProgress],
) -> RunReport:
    """Sum up a run from its attempts and the counts of its units, both by task. Pure."""
    types = {name: task.type for name, task in submission.workflow.tasks.items()}
    tasks = tuple(
        task_report(
            task,
            state,
            attempts.get(task, ()),
            type_name=types.get(task, ""),
            progress=progress.get(task),
        )
        for task, state in record.tasks.items()
    )
    times = record.times
    return RunReport(
        run=record.id,
        name=record.name,
        group=record.group,
        state=record.state,
        created=times.created,
        ended=times.ended,
        wall_s=None if times.ended is None else max(0.0, times.ended - times.created),
        attempts=sum(task.attempts for task in tasks),
        measured=sum(task.measured for task in tasks),
        cpu_s=_sum([task.cpu_s for task in tasks]),
        given_cpu_s=_sum([task.given_cpu_s for task in tasks]),
        wasted_cpu_s=sum(task.wasted_cpu_s for task in tasks),
        tasks=tasks,
    )


def task_report(
    task: str,
    state: TaskState,
    attempts: Sequence[AttemptUse],
    *,
    type_name: str = "",
    progress: TaskProgress | None = None,
) -> TaskReport:
    """Sum up a task. Pure."""
    workers = {use.worker for use in attempts}
    started = [use.started for use in attempts if use.started is not None]
    ended = [use.ended for use in attempts if use.ended is not None]
    measured = [use for use in attempts if use.cpu_s is not None]
    peaks = [use for use in attempts if use.peak_memory is not None]
    highest = max(peaks, key=lambda use: use.peak_memory or 0, default=None)
    given = [use.given_memory for use in attempts if use.given_memory is not None]
    split = progress is not None and progress.split
    again = _made_again(attempts)
    return TaskReport(
        task=task,
        type=type_name,
        state=state,
        workers=len(workers),
        attempts=len(attempts),
        retries=len(again),
        retries_by=dict(sorted(Counter(use.reason or "unknown" for use in again).items())),
        wall_s=max(ended) - min(started) if started and ended else None,
        queued_s=max((s for use in attempts if (s := use.queued_s) is not None), default=None),
        cpu_s=_sum([use.cpu_s for use in measured]),
        # A ratio needs both of its sides, of the same attempts
        given_cpu_s=_all([use.given_cpu_s for use in measured]),
        measured=len(measured),
        peak_memory=highest.peak_memory if highest else None,
        given_memory=highest.given_memory if highest else max(given, default=None),
        memory_measured=len(peaks),
        wasted_cpu_s=sum(use.given_cpu_s or 0.0 for use in attempts if _wasted(use)),
        units_done=progress.done if progress and split else None,
        units_failed=progress.failed if progress and split else None,
        units_total=progress.total if progress and split else None,
        units_lost=sum(use.units_lost or 0 for use in attempts) if split else None,
    )


def _made_again(attempts: Sequence[AttemptUse]) -> list[AttemptUse]:
    """Give the attempts after which another pod of the same worker came; `attempts` are in order."""
    return [use for use, after in itertools.pairwise(attempts) if use.worker == after.worker]


def _wasted(use: AttemptUse) -> bool:
    return use.reason not in (None, "completed") and not use.units_done


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _all(values: Sequence[float | None]) -> float | None:
    """Give the sum; None where a part of it is not known."""
    return None if None in values else _sum(values)


def _ratio(used: float | None, given: float | None) -> float | None:
    return None if used is None or not given else used / given
