"""The evidence of an attempt: what the backend tells of it now, together with what was kept of it before. Pure.

A pod takes what it said with it, and a service that starts anew finds only Argo's "pod deleted". What was written down while somebody
knew better is not taken back.
"""

from __future__ import annotations

from simrun.backends.base import Attempt
from simrun.model.report import AttemptEvidence, Reason


def evidence_of(worker: str, seen: Attempt) -> AttemptEvidence:
    """Give what the backend tells of an attempt, as it is kept."""
    return AttemptEvidence(
        worker=worker,
        attempt=seen.n,
        pod_uid=seen.pod_uid,
        node=seen.node,
        reason=seen.reason if seen.phase.ended else None,
        leaving=seen.leaving,
        preemptor=seen.preemptor,
        message=seen.message,
        exit_code=seen.exit_code,
        oom=seen.oom,
        enforced=seen.enforced,
        memory=seen.memory,
        peak_memory=seen.peak_unreclaimable,
        cpu_s=seen.cpu_s,
        created=seen.created,
        started=seen.started,
        ended=seen.ended,
    )


def merged(old: AttemptEvidence | None, new: AttemptEvidence) -> AttemptEvidence:
    """Give what is known of one attempt from what was kept and what is told now; both are of one pod, or one names none."""
    if old is None:
        return new
    filled = {
        name: getattr(old, name)
        for name in ("pod_uid", "node", "preemptor", "enforced", "memory", "created", "started")
        if not getattr(new, name)
    }
    if not new.pod_uid and (known := _known_reason(old, new)) is not None:
        # Nobody sees the pod any more: that it is gone is all there is to tell
        text = old.message or new.message
        filled |= {"reason": known, "message": text, "oom": old.oom, "exit_code": old.exit_code}
    elif new.exit_code is None:
        filled["exit_code"] = old.exit_code
    return new.model_copy(update=filled)


def _known_reason(old: AttemptEvidence, new: AttemptEvidence) -> Reason | None:
    if new.reason not in ("lost", "evicted"):
        return None
    return old.reason or old.leaving
