"""Facts: what is read of an object, and that what a pod once said is kept in whatever order it comes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.backends.kubernetes.facts import (
    merged,
    pod_fact,
    quantity_bytes,
    wall_seconds,
    worker_and_index,
    workflow_fact,
)
from simrun.backends.kubernetes.tables import PodTable
from simrun.model.quantities import MIB
from tests.backends.kubernetes.objects import condition, pod, recorded, running, terminated, waiting

Json = dict[str, Any]


def test_a_pod_is_read() -> None:
    fact = pod_fact(
        pod(
            "sim-extra(0:1)(2)",
            phase="Failed",
            containers=(terminated("wait", 0, "Completed"), terminated("main", 137, "OOMKilled")),
            conditions=(condition("DisruptionTarget", "EvictionByEvictionAPI", "bye"),),
            deleted="12:10:30",
            memory="1.5Gi",
        )
    )

    assert (fact.run, fact.workflow, fact.worker, fact.index) == ("r1", "wf", "sim-w1", 2)
    assert (fact.phase, fact.host, fact.memory) == ("Failed", "node-a", 1536 * MIB)
    assert fact.main is not None
    assert (fact.main.exit_code, fact.main.reason) == (137, "OOMKilled")
    assert [end.name for end in fact.ends] == ["main", "wait"]
    assert fact.created == wall_seconds("2026-11-30T12:00:00Z")
    assert fact.started == wall_seconds("2026-11-30T12:00:05Z")
    assert fact.deleted_at == wall_seconds("2026-11-30T12:10:00Z")
    assert [(one.type, one.reason, one.message) for one in fact.disruptions] == [
        ("DisruptionTarget", "EvictionByEvictionAPI", "bye")
    ]
    assert not fact.gone


def test_a_condition_that_does_not_hold_is_none() -> None:
    unmet = condition("DisruptionTarget", "x") | {"status": "False"}

    assert pod_fact(pod(conditions=(unmet,))).disruptions == ()


def test_a_pod_with_nothing_but_a_name_is_read() -> None:
    fact = pod_fact({"metadata": {"name": "bare"}})

    assert (fact.name, fact.phase, fact.worker, fact.memory) == ("bare", "Pending", "", None)


def test_waiting_that_means_only_starting_is_no_reason_to_wait() -> None:
    assert pod_fact(pod(containers=(waiting("main", "PodInitializing"),))).waiting == ""
    pulled = pod_fact(pod(containers=(waiting("main", "ErrImagePull", "no such host"),)))
    assert pulled.waiting == "ErrImagePull: no such host"


def test_the_workers_label_goes_before_the_nodes_name() -> None:
    named = pod("odd(3)")
    named["metadata"]["labels"]["simrun/worker"] = "sim-w7"

    fact = pod_fact(named)

    assert (fact.worker, fact.index) == ("sim-w7", 3)


def test_a_workflow_is_read_from_its_metadata() -> None:
    final, _ = recorded("oom")
    del final["status"], final["spec"]

    fact = workflow_fact(final)

    assert fact.run == final["metadata"]["labels"]["simrun/run"]
    assert (fact.name, fact.uid) == (final["metadata"]["name"], final["metadata"]["uid"])
    assert fact.completed


@pytest.mark.parametrize(
    ("node", "worker", "index"),
    [
        ("sim-w0(0)", "sim-w0", 0),
        ("sim-w0(12)", "sim-w0", 12),
        ("sim-w0", "sim-w0", 0),
        ("sim-extra(0:1)(3)", "sim-w1", 3),
        ("sim-extra(9:10)", "sim-w10", 0),
        ("a-b-c(1)", "a-b-c", 1),
        ("", "", 0),
    ],
)
def test_the_name_of_a_node_is_taken_apart(node: str, worker: str, index: int) -> None:
    assert worker_and_index(node) == (worker, index)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64Mi", 64 * MIB),
        ("1Gi", 1024 * MIB),
        ("1.5Gi", 1536 * MIB),
        ("129M", 129_000_000),
        ("2k", 2000),
        ("128974848", 128_974_848),
        ("1e9", 10**9),
        ("128974848000m", 128_974_848),
        ("nonsense", None),
        ("", None),
    ],
)
def test_quantities_of_the_api_are_read(text: str, size: int | None) -> None:
    assert quantity_bytes(text) == size


@pytest.mark.parametrize("text", [None, "", "yesterday", 5])
def test_a_time_that_is_none_is_none(text: object) -> None:
    assert wall_seconds(text) is None


# --- merging


@pytest.mark.parametrize("name", ["oom", "stopped", "evicted", "no-image", "preempted"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_events_in_any_order_doubled_and_lost_in_part_leave_the_same_evidence(
    name: str, seed: int
) -> None:
    rng = random.Random(seed)
    _, events = recorded(name)
    in_order = learned(events)
    # The last event of each pod is not lost: a list would bring it
    last = {event["object"]["metadata"]["uid"]: event for event in events}
    kept = [event for event in events if rng.random() < 0.7 or tells(event)]
    shuffled = [*kept, *rng.choices(events, k=3), *last.values()]
    rng.shuffle(shuffled)

    assert learned(shuffled) == in_order


def tells(event: Json) -> bool:
    """Whether an event is the only one that says something; these recordings hold no such thing twice."""
    fact = pod_fact(event["object"])
    return bool(fact.disruptions or fact.deleted_at or fact.ends or fact.host)


def learned(events: list[Json]) -> dict[str, tuple[Any, ...]]:
    """What the end of a run is judged by."""
    table = PodTable(lambda run: None)
    for event in events:
        (table.drop if event["type"] == "DELETED" else table.upsert)(event["object"])
    workflow = events[0]["object"]["metadata"]["labels"]["workflows.argoproj.io/workflow"]
    return {
        fact.uid: (
            fact.phase,
            fact.ends,
            fact.disruptions,
            fact.deleted_at,
            fact.gone,
            fact.host,
            fact.started,
            fact.memory,
        )
        for fact in table.learn(workflow, [], frozenset())
    }


def test_a_fact_only_ever_grows() -> None:
    stages = [
        pod(phase="Pending", containers=()),
        pod(phase="Running", containers=(running(),)),
        pod(phase="Running", containers=(running(),), conditions=(condition("TerminationTarget", "x"),)),
        pod(phase="Running", containers=(running(),), deleted="12:10:30"),
        pod(phase="Failed", containers=(terminated("main", 143, "Error"),)),
    ]  # fmt: skip
    facts = [pod_fact(stage) for stage in stages]

    grown = facts[0]
    for fact in facts[1:]:
        grown = merged(grown, fact)

    assert grown.phase == "Failed"
    assert grown.disruptions == facts[2].disruptions
    assert grown.deleted_at == facts[3].deleted_at
    assert grown.main == facts[4].main
    for earlier, later in pairwise(facts):
        assert merged(grown, earlier) == merged(grown, later) == grown
