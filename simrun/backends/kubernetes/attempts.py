"""One attempt, from what Argo and its pod say of it. Pure.

A pod says things first and forgets them when it goes; Argo writes its verdict seconds later, and of a deleted pod knows only that it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simrun.backends.base import Attempt, Phase
from simrun.backends.kubernetes.facts import PodFact
from simrun.backends.kubernetes.reasons import classify, disruption_reason, told_to_leave
from simrun.model.report import Reason

PHASES = {phase.value: phase for phase in Phase} | {"": Phase.PENDING, "Skipped": Phase.OMITTED}
_PREEMPTOR = re.compile(r"accommodate a workload \(UID: ([-0-9a-f]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What others know of the pods of a workflow.

    waits: what a pod waits for in its queue, by its uid. whose: whom a workload belongs to, by its uid, "" for unknown.
    """

    waits: Mapping[str, str] = field(default_factory=dict)
    whose: Callable[[str], str] = lambda _uid: ""


ALONE = Surroundings()


def attempt_of(
    n: int,
    phase: Phase,
    message: str,
    exit_code: int | None,
    *,
    pod: PodFact | None,
    around: Surroundings,
    created: float | None,
    ended: float | None,
    host: str = "",
) -> Attempt:
    """Put together what Argo and the pod say of one attempt."""
    if not phase.ended and pod is not None:
        seen, words = _end_of_pod(pod)
        if seen.ended:
            # Argo will say so too, some seconds later; what the pod says now may be gone by then
            phase, message = seen, words or message
            ended = _last_end(pod)
        elif seen is Phase.RUNNING and pod.started is not None:
            phase = seen
    if pod is not None and pod.main is not None:
        exit_code = pod.main.exit_code if exit_code is None else exit_code
        # Argo calls the attempts of a workflow that is stopped ended before they are, without a time
        ended = pod.main.at if ended is None else ended
    reason, oom = None, False
    leaving, preemptor = (None, "") if pod is None else _leaving(pod, around)
    if phase.ended and phase is not Phase.OMITTED:
        verdict = classify(phase, message, exit_code, pod)
        reason, oom, message = verdict.reason, verdict.oom, verdict.message
        if phase is Phase.SUCCEEDED and reason != "completed":
            # A node that shuts down may leave a pod as Succeeded whose program was ended; no evidence is no success
            phase = Phase.FAILED
        leaving, preemptor = None, preemptor if reason == "preempted" else ""
    elif pod is not None:
        message = _why_it_waits(message, pod, around)
    return Attempt(
        n=n,
        phase=phase,
        reason=reason,
        exit_code=exit_code,
        oom=oom,
        message=message,
        pod_uid=pod.uid if pod is not None else "",
        node=(pod.host if pod is not None else "") or host,
        created=created,
        started=pod.started if pod is not None else None,
        ended=ended if phase.ended else None,
        memory=pod.memory if pod is not None else None,
        leaving=leaving,
        preemptor=preemptor,
    )


def _why_it_waits(message: str, pod: PodFact, around: Surroundings) -> str:
    """What holds up a pod that has not ended: the queue, the scheduler, an image; or that it was told to leave."""
    if (told := told_to_leave(None, pod)) is not None:
        return f"told to leave: {told.reason}: {told.message}".rstrip(": ")
    if pod.phase != "Pending":
        return message
    queue = around.waits.get(pod.uid, "") if pod.gated else ""
    return queue or pod.waiting or pod.unscheduled or message


def _leaving(pod: PodFact, around: Surroundings) -> tuple[Reason | None, str]:
    """The reason for which a pod was told to leave, and for whom."""
    told = told_to_leave(pod.main, pod)
    if told is None:
        return None, ""
    match = _PREEMPTOR.search(told.message)
    uid = match[1] if match else ""
    preemptor = around.whose(uid) or f"workload {uid}" if uid else ""
    return disruption_reason(told), preemptor


def _end_of_pod(pod: PodFact) -> tuple[Phase, str]:
    """The phase of a pod as that of an attempt, and words for its end in Argo's manner."""
    phase = PHASES.get(pod.phase, Phase.PENDING)
    main = pod.main
    if phase is Phase.RUNNING and main is not None and main.exit_code != 0:
        phase = Phase.FAILED  # only Argo's helper still runs
    elif not phase.ended and pod.gone and pod.started is not None:
        return Phase.ERROR, "pod deleted"
    message = pod.message
    if phase is Phase.FAILED and not message:
        bad = [end for end in pod.ends if end.exit_code != 0]
        bad.sort(key=lambda end: end is not main)
        message = f"{bad[0].name}: {bad[0].reason} (exit code {bad[0].exit_code})" if bad else ""
    return phase, message


def _last_end(pod: PodFact) -> float | None:
    return max((end.at for end in pod.ends if end.at is not None), default=pod.deleted_at)


def replaced(n: int, pod: PodFact, around: Surroundings) -> Attempt:
    """Give the attempt of a pod that is gone and in whose place another was made under the same number."""
    phase, message = _end_of_pod(pod)
    if not phase.ended:
        phase, message = Phase.ERROR, "pod deleted"
    return attempt_of(
        n, phase, message, None, pod=pod, around=around, created=pod.created, ended=_last_end(pod)
    )


def attempt_of_pod(n: int, pod: PodFact, around: Surroundings) -> Attempt:
    """Give the attempt of a pod that nobody but itself tells of."""
    phase, message = _end_of_pod(pod)
    return attempt_of(
        n, phase, message, None, pod=pod, around=around, created=pod.created, ended=_last_end(pod)
    )
