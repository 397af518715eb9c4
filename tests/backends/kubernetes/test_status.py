"""What Argo's nodes and the facts of pods say together: workers, attempts, and what became of them."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import sys
from dataclasses import replace
from typing import Any

import pytest

from simrun.backends.base import BackendStatus, Phase
from simrun.backends.kubernetes.attempts import Surroundings
from simrun.backends.kubernetes.facts import pod_fact, wall_seconds
from simrun.backends.kubernetes.nodes import NodesUnreadable, nodes_of
from simrun.backends.kubernetes.status import status_of
from simrun.backends.kubernetes.tables import PodTable
from simrun.model.quantities import MIB
from tests.backends.kubernetes.objects import (
    UID,
    argo_node,
    condition,
    inputs,
    pod,
    recorded,
    retry,
    running,
    terminated,
    waiting,
    workflow,
)

Json = dict[str, Any]


def of_recording(name: str) -> BackendStatus:
    """The status at the end of a recording, with what was learned on the way."""
    final, events = recorded(name)
    table = PodTable(lambda run: None)
    for event in events:
        (table.drop if event["type"] == "DELETED" else table.upsert)(event["object"])
    facts = table.learn(final["metadata"]["name"], [], frozenset())
    return status_of(final, facts)


def reasons(status: BackendStatus, worker: str) -> list[tuple[int, str | None, int | None]]:
    return [(a.n, a.reason, a.exit_code) for a in status.nodes[worker].attempts]


# --- recorded from a real cluster


def test_a_kill_for_memory_and_the_attempt_after_it() -> None:
    status = of_recording("oom")

    assert status.phase is Phase.SUCCEEDED
    assert {worker: node.phase for worker, node in status.nodes.items()} == {
        "greet": Phase.SUCCEEDED,
        "greedy": Phase.SUCCEEDED,
    }
    assert reasons(status, "greedy") == [(5, "oom", 137), (6, "completed", 0)]
    killed, saved = status.nodes["greedy"].attempts
    assert (killed.oom, saved.oom) == (True, False)
    assert (killed.memory, saved.memory) == (64 * MIB, 256 * MIB)
    assert killed.message == "main: OOMKilled (exit code 137)"
    assert killed.node == "node0"
    assert killed.pod_uid != saved.pod_uid
    assert killed.created is not None
    assert killed.started is not None
    assert killed.ended is not None
    assert killed.created <= killed.started <= killed.ended


def test_a_deleted_pod_and_an_evicted_one_that_argo_only_calls_deleted() -> None:
    status = of_recording("evicted")

    assert reasons(status, "patient") == [(0, "evicted", 143), (1, "evicted", 143), (2, None, None)]
    assert "EvictionByEvictionAPI" in status.nodes["patient"].attempts[1].message
    assert status.nodes["patient"].phase is Phase.RUNNING


def test_a_preempted_extra_worker_whose_next_attempt_waits_for_quota() -> None:
    status = of_recording("preempted")

    assert set(status.nodes) == {"split-w0", "split-w1"}
    assert reasons(status, "split-w1") == [(0, "preempted", 143), (1, None, None)]
    preempted, waits = status.nodes["split-w1"].attempts
    assert "Preempted to accommodate a workload" in preempted.message
    assert waits.phase is Phase.PENDING
    assert status.nodes["split-w1"].phase is Phase.PENDING
    assert status.nodes["split-w0"].phase is Phase.RUNNING


def test_without_the_evidence_of_the_pods_a_preempted_attempt_is_lost() -> None:
    final, _ = recorded("preempted")

    assert reasons(status_of(final, []), "split-w1")[0] == (0, "lost", None)


def test_a_stopped_workflow_leaves_no_worker_running() -> None:
    status = of_recording("stopped")

    assert status.phase is Phase.FAILED
    assert status.message == "Stopped with strategy 'Terminate'"
    assert status.nodes["patient"].phase is Phase.FAILED
    assert reasons(status, "patient") == [(0, "cancelled", 143)]


def test_an_attempt_that_argo_calls_ended_without_a_time_has_that_of_its_pod() -> None:
    text = "workflow shutdown with strategy:  Terminate"
    parent, child = retry("sim-w0", "Running", [{"phase": "Failed", "message": text}])
    stopped = workflow([parent, child | {"finishedAt": None}], "Failed")
    lives = pod("sim-w0(0)", uid="a", containers=(running(),))
    ended = pod(
        "sim-w0(0)", uid="a", phase="Failed", containers=(terminated("main", 143, "Error"),)
    )

    def attempt(fact: Json) -> Any:
        return status_of(stopped, [pod_fact(fact)]).nodes["sim-w0"].attempts[0]

    assert (attempt(lives).phase, attempt(lives).ended) == (Phase.FAILED, None)
    assert (attempt(ended).reason, attempt(ended).exit_code) == ("cancelled", 143)
    assert attempt(ended).ended == wall_seconds("2026-11-30T12:10:00Z")


def test_an_image_that_cannot_be_pulled_is_said_while_the_attempt_waits() -> None:
    status = of_recording("no-image")

    (attempt,) = status.nodes["greet"].attempts
    assert attempt.phase is Phase.PENDING
    assert attempt.reason is None
    assert attempt.message.startswith("ImagePullBackOff: Back-off pulling image")


# --- made by hand


def test_workers_are_named_by_their_parameter_and_else_by_their_node() -> None:
    nodes = [
        argo_node("", "DAG", "Running"),
        *retry("sim-w0", "Running", [{"phase": "Running"}], worker="sim-w0"),
        argo_node("sim-extra", "TaskGroup", "Running"),
        *retry("sim-extra(0:1)", "Running", [{"phase": "Pending"}], worker="sim-w1"),
        *retry("other-extra(3:4)", "Running", [{"phase": "Running"}]),
        *retry("sim-merge", "Succeeded", [{"phase": "Succeeded", "code": 0}]),
        argo_node("plain", "Pod", "Running", inputs=inputs("plain")),
    ]

    status = status_of(workflow(nodes), [])

    assert set(status.nodes) == {"sim-w0", "sim-w1", "other-w4", "sim-merge", "plain"}
    assert status.uid == UID


def test_the_attempts_are_the_children_and_the_parents_word_is_no_evidence() -> None:
    attempts = [
        {"phase": "Failed", "message": "main: OOMKilled (exit code 137)", "code": 137},
        {"phase": "Error", "message": "pod deleted"},
        {"phase": "Failed", "message": "main: Error (exit code 3)", "code": 3},
    ]
    nodes = retry("sim", "Failed", attempts, message="No more retries left")

    status = status_of(workflow(nodes, "Failed"), [])

    node = status.nodes["sim"]
    assert (node.phase, node.message) == (Phase.FAILED, "No more retries left")
    assert reasons(status, "sim") == [(0, "oom", 137), (1, "lost", None), (2, "error", 3)]


def test_ten_attempts_are_in_the_order_of_their_numbers_and_hooks_are_none() -> None:
    failed = {"phase": "Failed", "message": "main: Error (exit code 143)", "code": 143}
    nodes = retry("sim", "Running", [failed] * 11)
    nodes[0]["children"].reverse()
    hook = argo_node("sim.hooks.exit", "Pod", "Succeeded", nodeFlag={"hooked": True})
    nodes[0]["children"].append(hook["id"])

    status = status_of(workflow([*nodes, hook]), [])

    assert [attempt.n for attempt in status.nodes["sim"].attempts] == list(range(11))
    assert set(status.nodes) == {"sim"}


def test_a_later_round_goes_on_counting_per_task() -> None:
    nodes = [
        *retry("sim-w0", "Running", [{"phase": "Running"}]),
        *retry("sim-extra(0:1)", "Running", [{"phase": "Running"}]),
        *retry("plot", "Running", [{"phase": "Running"}]),
    ]
    bases = {"simrun/attempt-base": json.dumps({"sim": 4})}

    status = status_of(workflow(nodes, annotations=bases), [])

    assert {worker: node.attempts[0].n for worker, node in status.nodes.items()} == {
        "sim-w0": 4,
        "sim-w1": 4,
        "plot": 0,
    }


@pytest.mark.parametrize("damaged", ["", "[]", '{"sim": "four"}', "nonsense"])
def test_a_damaged_annotation_counts_from_nothing(damaged: str) -> None:
    nodes = retry("sim", "Running", [{"phase": "Running"}])

    status = status_of(workflow(nodes, annotations={"simrun/attempt-base": damaged}), [])

    assert status.nodes["sim"].attempts[0].n == 0


def test_pods_of_another_workflow_of_the_same_name_say_nothing() -> None:
    nodes = retry("sim", "Running", [{"phase": "Error", "message": "pod deleted"}])
    foreign = pod("sim(0)", owner="another", containers=(terminated("main", 137, "OOMKilled"),))

    assert reasons(status_of(workflow(nodes), [pod_fact(foreign)]), "sim") == [(0, "lost", None)]


def test_each_pod_of_one_number_is_an_attempt_the_one_that_exists_the_last() -> None:
    nodes = retry("sim", "Running", [{"phase": "Running"}])
    table = PodTable(lambda run: None)
    preempted = condition("TerminationTarget", "WorkloadEvictedDueToPreempted", "by a workload")
    table.drop(
        pod("sim(0)", uid="first", phase="Pending", created="12:00:00", conditions=(preempted,))
    )
    table.drop(pod("sim(0)", uid="second", phase="Pending", created="12:00:04", deleted="12:00:08"))
    table.upsert(pod("sim(0)", uid="third", created="12:00:09", containers=(running(),)))

    status = status_of(workflow(nodes), table.learn("wf", [], frozenset()))

    attempts = [(a.n, a.pod_uid, a.reason) for a in status.nodes["sim"].attempts]
    assert attempts == [(0, "first", "preempted"), (0, "second", "evicted"), (0, "third", None)]
    assert status.nodes["sim"].phase is Phase.RUNNING


def test_a_pod_that_vanished_before_it_started_has_ended_and_its_number_waits_for_another() -> None:
    nodes = retry("sim", "Running", [{"phase": "Pending"}])
    gone = replace(pod_fact(pod("sim(0)", uid="first", phase="Pending")), gone=True)

    status = status_of(workflow(nodes), [gone])

    attempts = [(a.n, a.pod_uid, a.reason) for a in status.nodes["sim"].attempts]
    assert attempts == [(0, "first", "lost"), (0, "", None)]
    assert status.nodes["sim"].phase is Phase.PENDING


def test_the_end_of_a_pod_is_told_before_argo_has_written_it() -> None:
    nodes = retry("sim", "Running", [{"phase": "Running"}])
    killed = pod("sim(0)", containers=(terminated("main", 137, "OOMKilled"), running("wait")))

    status = status_of(workflow(nodes), [pod_fact(killed)])

    (attempt,) = status.nodes["sim"].attempts
    assert (attempt.phase, attempt.reason, attempt.oom) == (Phase.FAILED, "oom", True)
    assert attempt.message == "main: OOMKilled (exit code 137)"
    assert attempt.ended is not None
    assert status.nodes["sim"].phase is Phase.PENDING  # whether it is tried again is Argo's to say


def test_a_pod_that_is_told_to_leave_says_so_while_it_still_runs() -> None:
    nodes = retry("sim", "Running", [{"phase": "Running"}])
    told = condition(
        "TerminationTarget",
        "WorkloadEvictedDueToPreempted",
        "Preempted to accommodate a workload (UID: 55c9f6c3-67, JobUID: 4ec2b6e0) due to prioritization",
    )
    leaving = pod_fact(pod("sim(0)", containers=(running(),), conditions=(told,)))
    names = {"55c9f6c3-67": "run r2, worker sim-w0"}

    (attempt,) = status_of(workflow(nodes), [leaving]).nodes["sim"].attempts
    assert (attempt.phase, attempt.reason, attempt.leaving) == (Phase.RUNNING, None, "preempted")
    assert attempt.preemptor == "workload 55c9f6c3-67"
    around = Surroundings(whose=lambda uid: names.get(uid, ""))
    (attempt,) = status_of(workflow(nodes), [leaving], around).nodes["sim"].attempts
    assert attempt.preemptor == "run r2, worker sim-w0"


def test_a_pod_that_waits_says_for_what_the_queue_first() -> None:
    nodes = retry("sim", "Running", [{"phase": "Pending"}])
    gated = pod("sim(0)", phase="Pending", uid="p1")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    unscheduled = pod("sim(0)", phase="Pending", uid="p1")
    unscheduled["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
    ]
    around = Surroundings(waits={"p1": "insufficient quota for cpu"})

    def words(obj: Json) -> str:
        (attempt,) = status_of(workflow(nodes), [pod_fact(obj)], around).nodes["sim"].attempts
        return attempt.message

    assert words(gated) == "insufficient quota for cpu"
    assert words(unscheduled) == "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    ("attempts", "phase"),
    [
        (["Pending"], Phase.PENDING),
        (["Running"], Phase.RUNNING),
        (["Failed"], Phase.PENDING),
        (["Failed", "Pending"], Phase.PENDING),
        (["Failed", "Running"], Phase.RUNNING),
        (["Succeeded"], Phase.RUNNING),
    ],
)
def test_a_living_worker_is_what_its_last_attempt_is(attempts: list[str], phase: Phase) -> None:
    nodes = retry("sim", "Running", [{"phase": one} for one in attempts])

    assert status_of(workflow(nodes), []).nodes["sim"].phase is phase


def test_a_pod_that_counts_as_succeeded_though_its_program_was_ended_is_no_success() -> None:
    nodes = retry("sim", "Succeeded", [{"phase": "Succeeded", "code": 143}])

    status = status_of(workflow(nodes, "Succeeded"), [])

    assert status.nodes["sim"].phase is Phase.FAILED
    assert reasons(status, "sim") == [(0, "evicted", 143)]


def test_what_was_left_out_and_what_could_not_be_made_are_told() -> None:
    nodes = [
        argo_node("late", "Skipped", "Omitted"),
        argo_node("odd", "Skipped", "Skipped"),
        argo_node("broken", "Skipped", "Error", message="failed to resolve {{x}}"),
        argo_node("sim-extra", "Skipped", "Omitted"),
    ]

    status = status_of(workflow(nodes), [])

    assert {name: node.phase for name, node in status.nodes.items()} == {
        "late": Phase.OMITTED,
        "odd": Phase.OMITTED,
        "broken": Phase.ERROR,
    }
    assert status.nodes["broken"].message == "failed to resolve {{x}}"


def test_a_workflow_that_argo_has_not_seen_yet_is_pending_and_empty() -> None:
    status = status_of({"metadata": {"name": "wf", "uid": UID}}, [])

    assert (status.phase, dict(status.nodes)) == (Phase.PENDING, {})


# --- nodes that are compressed, or not there


def compressed(nodes: list[Json], pack: Any = gzip.compress) -> Json:
    full = workflow(nodes)
    packed = pack(json.dumps(full["status"].pop("nodes")).encode())
    full["status"]["compressedNodes"] = base64.b64encode(packed).decode()
    return full


def test_compressed_nodes_are_read() -> None:
    final, _ = recorded("oom")
    whole = status_of(final, [])
    nodes = final["status"].pop("nodes")
    final["status"]["compressedNodes"] = base64.b64encode(
        gzip.compress(json.dumps(nodes).encode())
    ).decode()

    assert status_of(final, []) == whole


SIM_PODS = [
    pod("sim-w0(0)", uid="a", phase="Failed", containers=(terminated("main", 137, "OOMKilled"),)),
    pod("sim-w0(1)", uid="b", phase="Running", containers=(running(),), memory="256Mi"),
    pod("sim-extra(0:1)(0)", uid="c", phase="Pending", containers=(waiting("main", "ErrImagePull"),)),
    pod("plot(0)", uid="d", phase="Succeeded", containers=(terminated("main", 0, "Completed"),)),
]  # fmt: skip


def test_offloaded_nodes_are_told_from_the_pods() -> None:
    offloaded = workflow([], offloadNodeStatusVersion="fnv:123")

    status = status_of(offloaded, [pod_fact(one) for one in SIM_PODS])

    assert "Argo's database" in status.message
    assert {worker: node.phase for worker, node in status.nodes.items()} == {
        "sim-w0": Phase.RUNNING,
        "sim-w1": Phase.PENDING,
        "plot": Phase.SUCCEEDED,
    }
    assert reasons(status, "sim-w0") == [(0, "oom", 137), (1, None, None)]
    assert status.nodes["sim-w1"].attempts[0].message == "ErrImagePull"


@pytest.mark.parametrize(
    "packed",
    [
        base64.b64encode(b"\x0b\x02\x80 brotli, or anything else").decode(),
        base64.b64encode(bytes.fromhex("28b52ffd") + b"no frame of zstd").decode(),
        base64.b64encode(gzip.compress(b"{}")[:-6]).decode(),
        "no base64",
    ],
    ids=["another form", "zstd", "cut off", "no base64"],
)
def test_compressed_nodes_that_cannot_be_read_are_told_from_the_pods(packed: str) -> None:
    full = workflow([])
    full["status"]["compressedNodes"] = packed
    del full["status"]["nodes"]

    status = status_of(full, [pod_fact(one) for one in SIM_PODS])

    assert status.message.endswith("told from its pods")
    assert {worker: node.phase for worker, node in status.nodes.items()} == {
        "sim-w0": Phase.RUNNING,
        "sim-w1": Phase.PENDING,
        "plot": Phase.SUCCEEDED,
    }


class Brotli:
    """A package that is not installed here, as far as it is asked for anything."""

    @staticmethod
    def decompress(data: bytes) -> bytes:
        if data.startswith(b"\x0b"):
            return data[1:]
        raise RuntimeError("no brotli")


def test_brotli_is_read_where_a_package_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", Brotli)

    assert nodes_of({"compressedNodes": base64.b64encode(b'\x0b{"a": {}}').decode()}) == {"a": {}}
    with pytest.raises(NodesUnreadable, match="nor brotli"):
        nodes_of({"compressedNodes": base64.b64encode(b"what").decode()})


def test_a_failed_pod_may_be_tried_again_until_the_workflow_has_ended() -> None:
    facts = [pod_fact(SIM_PODS[0])]

    def phase(workflow_phase: str) -> Phase:
        offloaded = workflow([], workflow_phase, offloadNodeStatusVersion="fnv:123")
        return status_of(offloaded, facts).nodes["sim-w0"].phase

    assert phase("Running") is Phase.PENDING
    assert phase("Failed") is Phase.FAILED


def test_a_workflow_that_succeeded_has_no_failed_worker_though_its_pods_are_gone() -> None:
    final, _ = recorded("preempted")
    final["status"] = {"phase": "Succeeded", "offloadNodeStatusVersion": "fnv:123"}

    status = status_of(final, [])

    assert {worker: node.phase for worker, node in status.nodes.items()} == {
        "split-w0": Phase.SUCCEEDED
    }


def test_a_pod_that_vanished_while_it_ran_has_ended() -> None:
    table = PodTable(lambda run: None)
    table.drop(pod("sim-w0(0)", containers=(running(),), deleted="12:00:30"))
    offloaded = workflow([], offloadNodeStatusVersion="fnv:123")

    status = status_of(offloaded, table.learn("wf", [], frozenset()))

    assert reasons(status, "sim-w0") == [(0, "evicted", None)]


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (b"\x1f\x8bbroken", "damaged"),
        (gzip.compress(b"[]"), "no JSON object"),
        (gzip.compress(b"{"), "damaged"),
        (b"\x0b\x02\x80brotli", "neither gzip nor zstd"),
    ],
    ids=["cut", "a list", "half", "brotli"],
)
def test_nodes_that_cannot_be_read_say_why(packed: bytes, text: str) -> None:
    with pytest.raises(NodesUnreadable, match=text):
        nodes_of({"compressedNodes": base64.b64encode(packed).decode()})


def test_zstd_is_read_where_python_can_and_else_the_remedy_is_named() -> None:
    # `{}` in one raw block
    frame = bytes.fromhex("28b52ffd") + bytes.fromhex("2002") + bytes.fromhex("110000") + b"{}"
    packed = base64.b64encode(frame).decode()

    if any(importlib.util.find_spec(name) for name in ("compression", "zstandard")):
        assert nodes_of({"compressedNodes": packed}) == {}
    else:
        with pytest.raises(NodesUnreadable, match=r"needs Python 3\.14 or the package zstandard"):
            nodes_of({"compressedNodes": packed})
