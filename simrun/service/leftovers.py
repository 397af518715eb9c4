"""Attempts that had not ended when their run did: extra workers after the last merge, all that a cancelled run had.

Once a run has ended nobody decides on its attempts any more. What was kept of them would say for ever that they run; so it is noted that they
were stopped as soon as their workflow was told to, and then, while this process lives, when and how they ended.
"""

from __future__ import annotations

from dataclasses import replace

from simrun.aio.threads import Pool
from simrun.backends.base import Attempt, Backend
from simrun.base.clock import Clock
from simrun.model.record import RunRecord
from simrun.model.report import AttemptEvidence
from simrun.service.evidence import evidence_of, merged
from simrun.store.runs import RunStore

_OWN_END = ("completed", "oom", "preempted")
_SKEW_S = 2.0
"""Clocks of nodes and of this process may differ, and times of the API are whole seconds."""

Key = tuple[str, int, str]
"""Worker, attempt, uid of the pod."""


class Leftovers:
    """Gives evidence its end. What it remembers only adds the details: that they were stopped is on the disk by then."""

    def __init__(self, store: RunStore, backend: Backend, pool: Pool, clock: Clock) -> None:
        self._store, self._backend, self._pool, self._clock = store, backend, pool, clock
        self._open: dict[str, dict[Key, str]] = {}
        """Task by attempt, by run."""

    async def stopped(self, record: RunRecord) -> None:
        """Note of the attempts of an ended run that have not ended that they were stopped with it."""
        found = await self._pool.run(self._note_stopped, record, self._clock.wall())
        if found:
            self._open.setdefault(record.id, {}).update(found)

    async def look(self, record: RunRecord) -> None:
        """See whether some of them have ended by now, and note how. Raises BackendUnavailable.

        A backend may call an attempt ended as soon as it was told to end; it has, once there is a time.
        """
        left = self._open.get(record.id)
        if not left or record.workflow_name is None:
            return
        status = await self._backend.status(record.workflow_name)
        if status is None:
            del self._open[record.id]
            return
        ended = {
            (worker, attempt.n, attempt.pod_uid): attempt
            for worker, node in status.nodes.items()
            for attempt in node.attempts
            if attempt.phase.ended and attempt.ended is not None
        }
        seen = {key: ended[key] for key in left.keys() & ended.keys()}
        if seen:
            await self._pool.run(self._note_ended, record, left, seen)
        for key in seen:
            left.pop(key, None)
        if not left:
            self._open.pop(record.id, None)

    # --- files (in a thread) -------------------------------------------------------------------------------------------

    def _note_stopped(self, record: RunRecord, now: float) -> dict[Key, str]:
        found = {}
        with self._store.locked(record.id):
            if not self._store.exists(record.id):
                return {}
            for task in record.tasks:
                for item in self._store.evidence(record.id, task):
                    if item.reason is None:
                        self._store.keep_evidence(record.id, task, _stopped(item, record, now))
                        found[item.worker, item.attempt, item.pod_uid] = task
        return found

    def _note_ended(
        self, record: RunRecord, tasks: dict[Key, str], seen: dict[Key, Attempt]
    ) -> None:
        with self._store.locked(record.id):
            if not self._store.exists(record.id):
                return
            for key, attempt in seen.items():
                evidence = evidence_of(key[0], _as_stopped(attempt, record))
                self._store.keep_evidence(record.id, tasks[key], evidence, merged)


def _stopped(item: AttemptEvidence, record: RunRecord, now: float) -> AttemptEvidence:
    """What is known of an attempt, with what is certain once its workflow was told to stop."""
    reason = item.leaving or "cancelled"
    update = {"reason": reason, "message": _words(record, item.message), "ended": now}
    return item.model_copy(update=update)


def _as_stopped(attempt: Attempt, record: RunRecord) -> Attempt:
    """An attempt as it is kept: unless it ended by itself, or before its run, it was stopped, whatever its last signal looks like."""
    before = attempt.ended is not None and attempt.ended < (record.times.ended or 0.0) - _SKEW_S
    if attempt.reason in _OWN_END or before:
        return attempt
    return replace(attempt, reason="cancelled", message=_words(record, attempt.message))


def _words(record: RunRecord, more: str) -> str:
    text = f"stopped when its run ended ({record.state})"
    return f"{text}; {more}" if more else text
