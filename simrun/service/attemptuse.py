"""What one attempt of a worker used: from the harness's report where there is one, else from what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simrun.model.plan import TaskPlan
from simrun.model.report import AttemptEvidence, WorkerReport
from simrun.store.runs import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptUse:
    """One attempt of a worker: how it ended and what it used. Times in wall seconds since 1970, memory in bytes.

    created: when its pod was made. units_done: units that it committed; None for one that has none to commit, or said nothing.
    """

    worker: str
    attempt: int
    reason: str | None
    exit_code: int | None
    node: str
    created: float | None = None
    started: float | None
    ended: float | None
    cpu_s: float | None
    given_cpus: float | None = None
    peak_memory: int | None
    given_memory: int | None
    units_done: int | None = None
    units_lost: int | None = None
    message: str = ""
    tail: tuple[str, ...] = ()

    @property
    def wall_s(self) -> float | None:
        """How long it ran; None while it runs, or when it never did."""
        if self.started is None or self.ended is None:
            return None
        return max(0.0, self.ended - self.started)

    @property
    def queued_s(self) -> float | None:
        """How long its pod waited for a place and its image; None when it has not started, or nobody saw it."""
        if self.created is None or self.started is None:
            return None
        return max(0.0, self.started - self.created)

    @property
    def given_cpu_s(self) -> float | None:
        """Processor time that it could have had."""
        if self.wall_s is None or self.given_cpus is None:
            return None
        return self.wall_s * self.given_cpus


def attempts_of(
    store: RunStore, run_id: str, task: str, plan: TaskPlan | None = None
) -> list[AttemptUse]:
    """Give the attempts of a task in the order of worker and attempt (blocking). plan: tells the processors that nobody else does.

    Each pod of a number that had several is one of its own: the first of them vanished before anybody counted it as an attempt.
    """
    reports = store.reports(run_id, task)
    return uses_of(store.evidence(run_id, task), [reports[name] for name in sorted(reports)], plan)


def uses_of(
    evidence: Iterable[AttemptEvidence],
    reports: Iterable[WorkerReport],
    plan: TaskPlan | None = None,
) -> list[AttemptUse]:
    """Give the attempts of a task from what was seen of them and what the harness said. Pure."""
    seen = list(evidence)
    uses = []
    for report in reports:
        same = next((item for item in seen if _is_of(report, item)), None)
        uses.append(_of_report(report, same, plan))
        if same is not None:
            seen.remove(same)
    uses += [_of_evidence(item, plan) for item in seen]
    return sorted(
        uses, key=lambda use: (len(use.worker), use.worker, use.attempt, use.started or 0.0)
    )


def _is_of(report: WorkerReport, seen: AttemptEvidence) -> bool:
    """Whether a report and what was seen are of one pod; one that names none may be of any."""
    return (seen.worker, seen.attempt) == (report.worker, report.attempt) and (
        seen.pod_uid == report.pod_uid or "" in (seen.pod_uid, report.pod_uid)
    )


def _of_report(
    report: WorkerReport, seen: AttemptEvidence | None, plan: TaskPlan | None
) -> AttemptUse:
    return AttemptUse(
        worker=report.worker,
        attempt=report.attempt,
        reason=report.reason,
        exit_code=report.exit_code,
        node=report.node or (seen.node if seen else ""),
        created=seen.created if seen else None,
        started=report.started,
        ended=report.ended,
        cpu_s=report.cpu_s,
        given_cpus=report.cpus or (plan.cpus if plan else None),
        peak_memory=report.memory.peak_unreclaimable,
        given_memory=report.memory.limit or (seen.memory if seen else None),
        units_done=report.units.done,
        units_lost=report.units.lost,
        message=report.message,
        tail=tuple(report.tail),
    )


def _of_evidence(seen: AttemptEvidence, plan: TaskPlan | None) -> AttemptUse:
    return AttemptUse(
        worker=seen.worker,
        attempt=seen.attempt,
        reason=seen.reason,
        exit_code=seen.exit_code,
        node=seen.node,
        created=seen.created,
        started=seen.started,
        ended=seen.ended,
        cpu_s=seen.cpu_s,
        given_cpus=plan.cpus if plan else None,
        peak_memory=seen.peak_memory,
        given_memory=seen.memory,
        message=seen.message,
    )
