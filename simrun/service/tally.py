"""What became of runs, tasks and attempts since this process was started: plain numbers, for metrics.

They are counted where the store is written, and only when the store did not say it before, so that a restart counts nothing twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from simrun.backends.base import Attempt
from simrun.base.histogram import Histogram
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.report import AttemptEvidence, Reason

REASONS: tuple[str, ...] = get_args(Reason)
UNKNOWN = "unknown"
"""Cause of an attempt after one of which nobody said how it ended."""
LONG_S = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0, 7 * 86400.0)
"""Bounds, in seconds, for what computes."""
ENDS = tuple(state for state in RunState if state.terminal)
TASK_ENDS = (TaskState.DONE, TaskState.FAILED)


class Tally:
    """Counts. Fed from the loop and from file threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.runs = {state: Histogram(LONG_S) for state in ENDS}
        """Seconds from creation to end."""
        self.tasks = {state: Histogram(LONG_S) for state in TASK_ENDS}
        """Seconds from the start of the first attempt to the end of the last."""
        self.attempts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Ended, by reason."""
        self.retries: Counter[str] = Counter(dict.fromkeys((*REASONS, UNKNOWN), 0))
        """Begun after another, by the reason for which that ended."""
        self.lost_cpu_s: dict[str, float] = dict.fromkeys(REASONS, 0.0)
        self.lost_memory_byte_s: dict[str, float] = dict.fromkeys(REASONS, 0.0)
        """What attempts that did not complete were given, for as long as they had it; by reason."""

    def wrote(self, before: RunRecord, after: RunRecord) -> None:
        """Count a run that has ended with this record."""
        if after.state.terminal and not before.state.terminal and after.times.ended is not None:
            self.runs[after.state].observe(max(0.0, after.times.ended - after.times.created))

    def kept(
        self,
        old: AttemptEvidence | None,
        known: AttemptEvidence,
        plan: TaskPlan | None,
        others: Sequence[Attempt],
    ) -> None:
        """Count what the evidence of an attempt says that was not known before. `others`: attempts of the same worker."""
        if old is None and (last := _before(known.attempt, others)) is not None:
            with self._lock:
                self.retries[last.reason or UNKNOWN] += 1
        reason = known.reason
        if reason is None or (old is not None and old.reason is not None):
            return
        had_s = max(0.0, known.ended - known.started) if known.started and known.ended else 0.0
        with self._lock:
            self.attempts[reason] += 1
            if reason != "completed" and plan is not None:
                self.lost_cpu_s[reason] += had_s * plan.cpus
                self.lost_memory_byte_s[reason] += had_s * (known.memory or plan.memory)

    def ended(self, state: TaskState, attempts: Iterable[AttemptEvidence]) -> None:
        """Count a task that has ended."""
        times = [(item.started, item.ended) for item in attempts if item.started and item.ended]
        if state in self.tasks and times:
            first = min(started for started, _ in times)
            self.tasks[state].observe(max(0.0, max(ended for _, ended in times) - first))


def _before(number: int, attempts: Sequence[Attempt]) -> Attempt | None:
    """Give the attempt that came before one, None for the first."""
    earlier = [attempt for attempt in attempts if attempt.n < number]
    return max(earlier, key=lambda attempt: attempt.n, default=None)
