"""Carries out what was decided, each effect so that doing it again changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from simrun.aio.threads import Pool
from simrun.backends.base import Attempt, Backend, BackendStatus
from simrun.base.clock import Clock
from simrun.base.errors import SimrunError
from simrun.model.record import RunRecord
from simrun.model.report import AttemptEvidence, Observation, WorkerReport
from simrun.service.decision import Effect, KeepAttempt, Observe, View
from simrun.service.evidence import evidence_of, merged
from simrun.service.leftovers import note_stopped
from simrun.service.logs import keep_logs
from simrun.service.states import is_oom
from simrun.service.tally import Tally
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.protocol import attempt_name, holder_name

log = logging.getLogger(__name__)

LOGS_KEPT_WITHIN_S = 30.0
"""Logs of pods are kept before the workflow is stopped, for at most this long: a pod that hangs must not hold up the stop."""
WORKFLOW_KEPT_S = 3600.0
"""How long a workflow is left after the end of its run, for whoever looks with the tools of the backend."""


@dataclass(frozen=True, slots=True)
class FileWork:
    """Effects that are files in the store."""

    view: View
    keep: list[KeepAttempt]
    observe: list[Observe]

    def split(self) -> tuple[FileWork | None, FileWork | None]:
        """Give what must be on the disk before the record that was decided with it, and what may follow.

        Once a record says that a task has ended nobody looks at its attempts again. That an attempt runs is told again.
        """
        last = [effect for effect in self.keep if _is_last_word(effect)]
        news = [effect for effect in self.keep if not _is_last_word(effect)]
        first = FileWork(self.view, last, self.observe) if last or self.observe else None
        return first, FileWork(self.view, news, []) if news else None


class Effects:
    """Effects of decisions. `_kept` only saves writes: a restart does them again, with the same result."""

    def __init__(
        self,
        store: RunStore,
        resources: ResourceStore,
        backend: Backend,
        pool: Pool,
        clock: Clock,
        *,
        tally: Tally | None = None,
    ) -> None:
        self._store, self._resources, self._backend = store, resources, backend
        self._pool, self._clock = pool, clock
        self._tally = tally or Tally()
        self._kept: dict[str, dict[tuple[str, int, str], Attempt]] = {}

    def files_of(self, view: View, effects: Iterable[Effect]) -> FileWork | None:
        """Give the effects that are files, as far as they are not done; settling is the controller's."""
        run_id = view.record.id
        kept = self._kept.setdefault(run_id, {})
        keep = [
            effect
            for effect in effects
            if isinstance(effect, KeepAttempt) and kept.get(_key(effect)) != effect.attempt
        ]
        observe = [effect for effect in effects if isinstance(effect, Observe)]
        return FileWork(view, keep, observe) if keep or observe else None

    def write(self, work: FileWork) -> None:
        """Write them (blocking)."""
        run_id = work.view.record.id
        with self._store.locked(run_id):
            if not self._store.exists(run_id):
                return  # deleted meanwhile; its directory must not come back
            for effect in work.keep:
                self._keep(work.view, effect)
            for item in work.observe:
                self._observe(work.view, item.task)
        kept = self._kept.setdefault(run_id, {})
        kept.update({_key(effect): effect.attempt for effect in work.keep})

    # --- evidence ------------------------------------------------------------------------------------------------------

    def _keep(self, view: View, effect: KeepAttempt) -> None:
        """Keep an attempt: attempts/ for people and reports, dead/ for takeover, memory/ for the next attempt."""
        seen, run_id = effect.attempt, view.record.id
        task_dir = self._store.layout.run(run_id).task(effect.task)
        if seen.phase.ended:
            # Only who holds units has anything to take over
            if files.listed(task_dir.root, task_dir.claims.name):
                word = files.encode({"reason": seen.reason, "exit_code": seen.exit_code})
                holder = holder_name(effect.worker, seen.n, seen.pod_uid)
                self._store.mark(task_dir.dead, holder, word)
            if effect.kill:
                word = files.encode({"memory": seen.memory, "message": seen.message})
                self._store.mark(task_dir.memory, attempt_name(effect.worker, seen.n), word)
        node = (
            view.status.nodes.get(effect.worker) if isinstance(view.status, BackendStatus) else None
        )

        def merge(old: AttemptEvidence | None, new: AttemptEvidence) -> AttemptEvidence:
            known = merged(old, new)
            others = () if node is None else node.attempts
            self._tally.kept(old, known, view.plans.get(effect.task), others)
            return known

        self._store.keep_evidence(run_id, effect.task, evidence_of(effect.worker, seen), merge)

    # --- observations ----------------------------------------------------------------------------------------------------

    def _observe(self, view: View, task: str) -> None:
        """Store what the attempts of an ended task used: once each, since the file's name is the key."""
        record = view.record
        directory = self._store.layout.run(record.id).task(task)
        recorded = self._store.recorded(record.id, task)
        reports = self._store.reports(record.id, task)
        for name, report in sorted(reports.items()):
            if name in recorded or report.reason == "asked":
                continue
            self._resources.record(self._observation(view, task, report))
            self._store.mark(directory.recorded, f"{name}.json")
        attempts = self._store.evidence(record.id, task)
        self._tally.ended(record.tasks[task], attempts)
        for evidence in attempts:
            name = attempt_name(evidence.worker, evidence.attempt)
            killed = evidence.attempt in record.oom_kills.get(evidence.worker, [])
            measured = evidence.peak_memory is not None and evidence.reason is not None
            if name in recorded or name in reports or not (killed or measured):
                continue
            self._resources.record(self._without_report(view, task, evidence, killed=killed))
            self._store.mark(directory.recorded, f"{name}.json")

    def _observation(self, view: View, task: str, report: WorkerReport) -> Observation:
        plan = view.plans[task]
        return Observation(
            **self._about(view, task),
            worker=report.worker,
            attempt=report.attempt,
            given_memory=report.memory.limit or plan.memory,
            peak_memory=report.memory.peak_unreclaimable,
            oom=is_oom(report, report.attempt, view.record.oom_kills),
            reason=report.reason,
            given_cpus=report.cpus or plan.cpus,
            cpu_s=report.cpu_s,
            wall_s=report.ended - report.started,
        )

    def _without_report(
        self, view: View, task: str, evidence: AttemptEvidence, *, killed: bool
    ) -> Observation:
        """What the backend measured of a bare command; a kill for memory used all it had (Ruling 24)."""
        plan = view.plans[task]
        given = evidence.memory or plan.memory
        both = evidence.started is not None and evidence.ended is not None
        return Observation(
            **self._about(view, task),
            worker=evidence.worker,
            attempt=evidence.attempt,
            given_memory=given,
            peak_memory=given if killed else evidence.peak_memory,
            oom=killed,
            reason="oom" if killed else evidence.reason or "lost",
            given_cpus=plan.cpus,
            cpu_s=evidence.cpu_s,
            wall_s=(evidence.ended or 0) - (evidence.started or 0) if both else None,
        )

    def _about(self, view: View, task: str) -> dict[str, Any]:
        """What all observations of a task have in common."""
        name = view.workflow.tasks[task].type
        return {
            "type": name,
            "run": view.record.id,
            "task": task,
            "image": view.plans[task].image or view.types[name].image,
            "size_hint": _size_hint(view, task),
            "at": self._clock.wall(),
        }

    # --- the end of a run ------------------------------------------------------------------------------------------------

    async def settle(self, record: RunRecord) -> RunRecord:
        """Do what is pending of a terminal run, in order: logs, stop, release. Gives the record with what is left."""
        after = record
        if after.pending_logs and await self._keep_logs(after):
            after = after.changed(pending_logs=False)
        if after.pending_cancel and await self._stop(after):
            after = after.changed(pending_cancel=False)
        if after.pending_release and await self._release(after):
            after = after.changed(pending_release=False)
        if not after.pending:
            self._kept.pop(record.id, None)
        return after

    async def delete_workflow(self, record: RunRecord) -> float:
        """Delete the workflow of a run that ended long ago and has nothing pending; the seconds until it may be, 0 when it was.

        Its logs are kept, its pods take up room. A service that was away is told of what it left.
        """
        ended, name = record.times.ended, record.workflow_name
        if ended is None or name is None:
            return 0.0
        wait = ended + WORKFLOW_KEPT_S - self._clock.wall()
        if wait <= 0:
            await self._backend.delete(name)
        return max(0.0, wait)

    async def _keep_logs(self, record: RunRecord) -> bool:
        try:
            async with asyncio.timeout(LOGS_KEPT_WITHIN_S):
                await keep_logs(self._store, self._pool, self._backend, record)
        except TimeoutError:
            log.warning("logs of run %s were not kept within %.0f s", record.id, LOGS_KEPT_WITHIN_S)
        except (SimrunError, OSError) as error:
            log.warning("logs of run %s are not kept yet: %s", record.id, error)
            return False
        return True

    async def _stop(self, record: RunRecord) -> bool:
        if record.workflow_name is None:
            return True
        try:
            await self._backend.stop(record.workflow_name)
            await self._pool.run(note_stopped, self._store, record, self._clock.wall())
        except (SimrunError, OSError) as error:
            log.warning("workflow %s is not stopped yet: %s", record.workflow_name, error)
            return False
        return True

    async def _release(self, record: RunRecord) -> bool:
        try:
            await self._backend.release(record.node, record.id)
        except (SimrunError, OSError) as error:
            log.warning("the node of run %s is not released yet: %s", record.id, error)
            return False
        return True


def _is_last_word(effect: KeepAttempt) -> bool:
    return effect.kill or effect.attempt.phase.ended or effect.attempt.leaving is not None


def _key(effect: KeepAttempt) -> tuple[str, int, str]:
    return effect.worker, effect.attempt.n, effect.attempt.pod_uid


def _size_hint(view: View, task: str) -> float | None:
    """The numeric parameter that memory grows with, where the type names one."""
    kind = view.types[view.workflow.tasks[task].type]
    if kind.size_hint is None:
        return None
    value = {**kind.params, **view.workflow.tasks[task].params}.get(kind.size_hint)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
