"""The verdict on an attempt: a table of what Argo, the kubelet and the pod say, and what it means."""

from __future__ import annotations

from typing import Any

import pytest

from simrun.backends.base import Phase
from simrun.backends.kubernetes.facts import pod_fact
from simrun.backends.kubernetes.reasons import classify
from tests.backends.kubernetes.objects import condition, pod, terminated

Json = dict[str, Any]

PREEMPTED = condition(
    "TerminationTarget",
    "WorkloadEvictedDueToPreempted",
    "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue",
)
LOW = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 91244Ki. Container main was using"
    " 1843Mi, request is 256Mi, has larger consumption of memory. "
)
NO_ROOM = "Pod was rejected: Node didn't have enough resource: memory, requested: 9, used: 8, capacity: 16"
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."

OOM_KILLED = pod(phase="Failed", containers=(terminated("main", 137, "OOMKilled"),))
ENDED_BY_TERM = pod(phase="Failed", containers=(terminated("main", 143, "Error"),))
KILLED = terminated("main", 137, "Error")


def ended(code: int, word: str = "Error", **more: Any) -> Json:
    """A failed pod; `word`: the kubelet's for its container, a `reason` is the pod's own."""
    return pod(phase="Failed", containers=(terminated("main", code, word),), **more)


@pytest.mark.parametrize(
    ("phase", "message", "code", "seen", "reason"),
    [
        # done
        ("Succeeded", "", 0, None, "completed"),
        ("Succeeded", "", None, None, "completed"),
        ("Succeeded", "", 0, ended(0, "OOMKilled"), "completed"),
        # killed for memory: the container main, whoever saw it, and no exit code of an eviction (C25)
        ("Failed", "main: OOMKilled (exit code 137)", 137, OOM_KILLED, "oom"),
        ("Failed", "main: OOMKilled (exit code 137)", 137, None, "oom"),
        ("Failed", "OOMKilled (exit code 137)", 137, None, "oom"),
        ("Failed", "main: OOMKilled (exit code 1): killed a child", 1, None, "oom"),
        ("Error", "pod deleted", None, OOM_KILLED, "oom"),
        ("Failed", "main: OOMKilled (exit code 143)", 143, ended(143, "OOMKilled"), "evicted"),
        # a kill for memory is one although the pod had to leave, too
        ("Failed", "x", 137, ended(137, "OOMKilled", conditions=(PREEMPTED,)), "oom"),
        # a helper of Argo was killed, not the work (C27)
        ("Error", "wait: OOMKilled (exit code 137)", 0, None, "evicted"),
        ("Error", "OOMKilled (exit code 137)", 0, None, "evicted"),
        ("Error", "init: OOMKilled (exit code 137)", None, None, "evicted"),
        ("Error", "init: Error (exit code 64)", None, None, "start_error"),
        ("Error", "wait: Error (exit code 64): can't save", 0, None, "evicted"),
        # 137 is what any SIGKILL leaves
        ("Failed", "main: Error (exit code 137)", 137, ended(137), "error"),
        ("Failed", "main: Error (exit code 137)", 137, None, "error"),
        ("Failed", "main: Error (exit code 137)", 137, ended(137, deleted="12:10:00"), "evicted"),
        # deleted long after it had ended: no explanation
        ("Failed", "main: Error (exit code 137)", 137, ended(137, deleted="12:40:00"), "error"),
        # told to leave
        ("Error", "pod deleted", None, pod(conditions=(PREEMPTED,)), "preempted"),
        ("Failed", "x", 143, ended(143, conditions=(PREEMPTED,)), "preempted"),
        ("Failed", "x", 1, ended(1, conditions=(PREEMPTED,)), "preempted"),
        (
            "Error",
            "pod deleted",
            None,
            pod(conditions=(condition("DisruptionTarget", "PreemptionByScheduler"),)),
            "preempted",
        ),
        (
            "Error",
            "pod deleted",
            None,
            pod(conditions=(condition("DisruptionTarget", "EvictionByEvictionAPI"),)),
            "evicted",
        ),
        (
            "Error",
            "pod deleted",
            None,
            pod(conditions=(condition("DisruptionTarget", "DeletionByTaintManager"),)),
            "evicted",
        ),
        (
            "Error",
            "pod deleted",
            None,
            pod(conditions=(condition("DisruptionTarget", "DeletionByPodGC"),)),
            "lost",
        ),
        (
            "Error",
            "pod deleted",
            None,
            pod(conditions=(condition("TerminationTarget", "WorkloadEvictedDueToNodeFailures"),)),
            "evicted",
        ),
        # a condition that came after the end explains nothing: this one failed by itself, then its node was drained
        (
            "Failed",
            "main: Error (exit code 3)",
            3,
            ended(3, conditions=(condition("DisruptionTarget", "EvictionByEvictionAPI", at="13:00:00"),)),
            "error",
        ),
        # C29: who is evicted has not failed
        ("Failed", LOW, None, pod(phase="Failed", reason="Evicted", message=LOW), "evicted"),
        ("Failed", LOW, None, None, "evicted"),
        ("Failed", NO_ROOM, None, pod(phase="Failed", reason="OutOfmemory", message=NO_ROOM), "evicted"),
        ("Failed", NO_ROOM, None, None, "evicted"),
        ("Failed", "", None, pod(phase="Failed", reason="OutOfcpu"), "evicted"),
        ("Failed", "", None, pod(phase="Failed", reason="UnexpectedAdmissionError"), "evicted"),
        # a node that shuts down, in its many dresses (C31)
        ("Error", "pod deleted", None, pod(deleted="12:10:00"), "evicted"),
        ("Failed", SHUTDOWN, 143, ended(143, reason="Terminated", message=SHUTDOWN), "evicted"),
        ("Failed", SHUTDOWN, 0, None, "evicted"),
        ("Failed", "x", None, pod(phase="Failed", reason="NodeShutdown"), "evicted"),
        ("Failed", "main: Error (exit code 143)", 143, ENDED_BY_TERM, "evicted"),
        ("Failed", "main: Error (exit code 143)", 143, None, "evicted"),
        ("Succeeded", "", 143, None, "evicted"),
        # gone without a word
        ("Error", "pod deleted", None, None, "lost"),
        ("Failed", "can't find failed message for pod p namespace n", None, None, "lost"),
        ("Failed", "pod failed: neither main nor wait container completed successfully", None, None, "lost"),
        ("Failed", "", None, pod(phase="Failed", reason="NodeLost"), "lost"),
        # could not start
        ("Error", "Pod failed before main container starts due to ErrImagePull: x", None, None, "start_error"),
        ("Failed", "main: StartError (exit code 128): no such file", 128, None, "start_error"),
        ("Error", "Error applying PodSpecPatch", None, None, "start_error"),
        ("Error", 'pods "x" is forbidden: exceeded quota', None, None, "start_error"),
        # time limits
        ("Failed", "Pod was active on the node longer than the specified deadline", None, None, "deadline"),
        ("Failed", "x", 137, ended(137, reason="DeadlineExceeded"), "deadline"),
        ("Failed", "Step exceeded its deadline", None, None, "deadline"),
        # stopped with its run: said at once, while the pod still runs
        ("Failed", "workflow shutdown with strategy:  Terminate", None, pod(), "cancelled"),
        ("Failed", "workflow shutdown with strategy:  Terminate", 143, ENDED_BY_TERM, "cancelled"),
        # failed
        ("Failed", "main: Error (exit code 3)", 3, ended(3), "error"),
        ("Failed", "main: Error (exit code 6)", 6, None, "error"),
        ("Error", "main: Error (exit code 64)", 64, None, "error"),
    ],
)  # fmt: skip
def test_each_end_has_its_reason(
    phase: str, message: str, code: int | None, seen: Json | None, reason: str
) -> None:
    fact = pod_fact(seen) if seen is not None else None

    verdict = classify(Phase(phase), message, code, fact)

    assert verdict.reason == reason
    assert verdict.oom == (reason == "oom")


def test_who_preempted_is_told() -> None:
    verdict = classify(Phase.ERROR, "pod deleted", None, pod_fact(pod(conditions=(PREEMPTED,))))

    assert verdict.message.startswith("pod deleted; WorkloadEvictedDueToPreempted: Preempted to")


def test_a_helper_that_was_killed_is_named() -> None:
    verdict = classify(Phase.ERROR, "wait: OOMKilled (exit code 137)", 0, None)

    assert "wait" in verdict.message


def test_the_kubelets_text_is_not_said_twice() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message=LOW)

    assert classify(Phase.FAILED, LOW, None, pod_fact(evicted)).message == LOW
    gone = classify(Phase.ERROR, "pod deleted", None, pod_fact(evicted)).message
    assert gone == f"pod deleted; {LOW}"


def test_kueues_word_goes_before_the_schedulers() -> None:
    both = (condition("DisruptionTarget", "PreemptionByScheduler"), PREEMPTED)

    verdict = classify(Phase.ERROR, "pod deleted", None, pod_fact(pod(conditions=both)))

    assert "WorkloadEvictedDueToPreempted" in verdict.message
