"""Attempts that had not ended when their run did: extra workers after the last merge, all that a cancelled run had.

Once a run has ended nobody looks at its attempts any more, and what was kept of them would say for ever that they run. So it is noted that
they were stopped, as a part of the stop: done again after a crash it comes to the same. When exactly they ended, and with what exit code, stands
in the reports that their harness leaves.
"""

from __future__ import annotations

from simrun.model.record import RunRecord
from simrun.model.report import AttemptEvidence
from simrun.store.runs import RunStore


def note_stopped(store: RunStore, record: RunRecord, now: float) -> None:
    """Give the evidence of attempts that have not ended a reason and an end (blocking). `now`: wall time in seconds."""
    with store.locked(record.id):
        if not store.exists(record.id):
            return  # deleted meanwhile; its directory must not come back
        for task in record.tasks:
            for item in store.evidence(record.id, task):
                if item.reason is None:
                    store.keep_evidence(record.id, task, _stopped(item, record, now))


def _stopped(item: AttemptEvidence, record: RunRecord, now: float) -> AttemptEvidence:
    """What is known of an attempt, and that it was stopped; one that was told to leave before leaves for that reason."""
    text = f"stopped when its run ended ({record.state})"
    update = {
        "reason": item.leaving or "cancelled",
        "message": f"{text}; {item.message}" if item.message else text,
        "ended": now,
    }
    return item.model_copy(update=update)
