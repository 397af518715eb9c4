"""Why an attempt ended, from what Argo, the kubelet and the pod say. Pure; the rules stand in the order in which they are tried.

    1. it was stopped with its run                                  cancelled
    2. main was OOMKilled with an exit code but 0 and 143           oom
    3. main ended with 0                                            completed
    4. a condition says that the pod was told to leave              preempted, evicted; lost when its node is gone
    5. the pod's own reason (Evicted, OutOfmemory, NodeShutdown …)  evicted, preempted, deadline
    6. texts that stand for 5 where nobody saw the pod              evicted, preempted, deadline
    7. a helper container of Argo failed                            evicted, start_error
    8. main could not start                                         start_error
    9. main ended by SIGTERM; killed while the pod was deleted      evicted
   10. main ended with any other code                               error
   11. nothing is left of it                                        evicted when it was deleted, else lost

Only the container main can be killed for memory: a helper of Argo that is, says nothing of the task, and more memory for the task would
not help it. 137 without the kubelet's word OOMKilled is no kill for memory either: it is what SIGKILL leaves, after a
grace for example, and what the harness exits with to ask for the retry memory; its report tells those apart, not this module.
The message of a Retry node is no evidence: it only says that Argo gave up.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from simrun.backends.base import Phase
from simrun.backends.kubernetes.facts import MAIN, ContainerEnd, Disruption, PodFact
from simrun.model.report import Reason
from simrun.worker.protocol import Exit

_CONTAINER_TEXT = re.compile(
    r"(?:(?P<name>[a-z0-9][-a-z0-9]*): )?(?P<reason>[A-Za-z]+) \(exit code (?P<code>-?\d+)\)(?P<rest>: .*)?",
    re.DOTALL,
)
"""How Argo words the end of a container; without the name up to Argo 3.6."""

_POD_REASONS: dict[str, Reason] = {
    "Evicted": "evicted",
    "NodeAffinity": "evicted",
    "NodeLost": "lost",
    "NodeShutdown": "evicted",
    "Preempting": "preempted",
    "Shutdown": "evicted",
    "Terminated": "evicted",
    "UnexpectedAdmissionError": "evicted",
    "DeadlineExceeded": "deadline",
}
_TEXTS: tuple[tuple[str, Reason], ...] = (
    ("The node was low on resource", "evicted"),
    ("imminent node shutdown", "evicted"),
    ("Pod was rejected", "evicted"),
    ("Node didn't have enough resource", "evicted"),
    ("Preempted in order to admit critical pod", "preempted"),
    ("active on the node longer than the specified deadline", "deadline"),
    ("exceeded its deadline", "deadline"),
)
_SHUTDOWN_TEXTS = ("workflow shutdown with strategy", "Stopped with strategy")
_SKEW_S = 5.0
"""Seconds by which the clocks of a node and of a controller may differ; times of the API are whole seconds besides."""
_NO_START = frozenset(
    {"ContainerCannotRun", "CreateContainerError", "StartError", "RunContainerError"}
)


class Verdict(NamedTuple):
    """Why an attempt ended, whether it is a kill for memory, and what to tell a person."""

    reason: Reason
    oom: bool = False
    message: str = ""


class _Seen(NamedTuple):
    """Everything that was seen of an attempt. code: of main; helper: the container of Argo's own that it blames."""

    phase: Phase
    message: str
    code: int | None
    main: ContainerEnd | None
    helper: ContainerEnd | None
    pod: PodFact | None


def classify(phase: Phase, message: str, exit_code: int | None, pod: PodFact | None) -> Verdict:
    """Give the verdict on an attempt that has ended.

    phase, message, exit_code: of the attempt's node in Argo's status; pod: what was seen of its pod, None when nobody
    saw it. Where both know how main ended, the pod's word counts: Argo's is a copy of it.
    """
    main, helper = _container_ends(phase, message, pod)
    code = exit_code if main is None else main.exit_code
    if message.startswith(_SHUTDOWN_TEXTS):
        return Verdict("cancelled", message=message)
    if main is not None and main.reason == "OOMKilled" and code not in (0, Exit.TERMINATED):
        return Verdict("oom", oom=True, message=message)
    if phase is Phase.SUCCEEDED and code in (0, None):
        return Verdict("completed", message=message)
    if (told := told_to_leave(main, pod)) is not None:
        text = f"{told.reason}: {told.message}" if told.message else told.reason
        return Verdict(disruption_reason(told), message=_joined(message, text))
    seen = _Seen(phase, message, code, main, helper, pod)
    return _pod_verdict(seen) or _container_verdict(seen) or _no_trace(seen)


def _pod_verdict(seen: _Seen) -> Verdict | None:
    """Rules 5 and 6: the pod as a whole was ended."""
    if seen.pod is not None and (reason := _pod_reason(seen.pod)) is not None:
        told = seen.pod.message or seen.pod.reason
        text = seen.message if told in seen.message else _joined(seen.message, told)
        return Verdict(reason, message=text)
    for text, reason in _TEXTS:
        if text in seen.message:
            return Verdict(reason, message=seen.message)
    return None


def _container_verdict(seen: _Seen) -> Verdict | None:
    """Rules 7 to 10: a container ended, or could not start."""
    code, main = seen.code, seen.main
    reason: Reason | None = None
    if seen.helper is not None and code in (0, None):
        started = seen.helper.name != "init" or seen.helper.reason == "OOMKilled"
        reason = "evicted" if started else "start_error"
    elif "container starts due to" in seen.message or (main and main.reason in _NO_START):
        reason = "start_error"
    elif code == Exit.TERMINATED or (code == Exit.MEMORY and _deleted_before_end(main, seen.pod)):
        reason = "evicted"
    elif code not in (0, None):
        reason = "error"
    return None if reason is None else Verdict(reason, message=seen.message)


def _no_trace(seen: _Seen) -> Verdict:
    """Rule 11, and what never had a pod: refused by a webhook or a quota, or with a patch that fits no pod."""
    if seen.pod is None and seen.phase is Phase.ERROR and seen.message != "pod deleted":
        return Verdict("start_error", message=seen.message)
    asked = seen.pod is not None and seen.pod.deleted_at is not None
    return Verdict("evicted" if asked else "lost", message=seen.message)


def _container_ends(
    phase: Phase, message: str, pod: PodFact | None
) -> tuple[ContainerEnd | None, ContainerEnd | None]:
    """How main ended, and the helper that Argo blames, if it blames one."""
    told = None
    if match := _CONTAINER_TEXT.match(message):
        # Up to Argo 3.6 the text has no name: Failed speaks of main, Error of a helper
        name = match["name"] or (MAIN if phase is Phase.FAILED else "wait")
        told = ContainerEnd(name=name, exit_code=int(match["code"]), reason=match["reason"])
    main = pod.main if pod is not None else None
    if main is None and told is not None and told.name == MAIN:
        main = told
    return main, told if told is not None and told.name != MAIN else None


def told_to_leave(main: ContainerEnd | None, pod: PodFact | None) -> Disruption | None:
    """Give the condition that explains an end, or foretells it; None without one. Kueue's is the more precise.

    One that came after the end explains nothing: a drained node or a taint marks pods that ended long ago, too.
    """
    if pod is None:
        return None
    before = [one for one in pod.disruptions if _before_end(one.at, main)]
    return max(before, key=lambda one: one.type == "TerminationTarget", default=None)


def _deleted_before_end(main: ContainerEnd | None, pod: PodFact | None) -> bool:
    return pod is not None and pod.deleted_at is not None and _before_end(pod.deleted_at, main)


def _before_end(at: float | None, main: ContainerEnd | None) -> bool:
    """Whether something happened before main ended; also when either time is unknown."""
    return at is None or main is None or main.at is None or at <= main.at + _SKEW_S


def disruption_reason(told: Disruption) -> Reason:
    """Give the reason of an attempt that ended because it was told to."""
    if told.reason == "DeletionByPodGC":  # the node of the pod does not exist any more
        return "lost"
    return "preempted" if "Preempt" in told.reason else "evicted"


def _pod_reason(pod: PodFact) -> Reason | None:
    if pod.reason.startswith("OutOf"):  # the node had no room: OutOfcpu, OutOfmemory; no kill
        return "evicted"
    return _POD_REASONS.get(pod.reason)


def _joined(message: str, more: str) -> str:
    return f"{message}; {more}" if message and more else message or more
