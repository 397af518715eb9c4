"""Tables: which change concerns which run, and what is remembered of what is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simrun.backends.kubernetes.tables import Hints, PodTable, WorkflowTable
from tests.backends.kubernetes.objects import UID, condition, pod, running, terminated

Json = dict[str, Any]


@pytest.fixture
def told() -> list[str]:
    return []


def take_all(table: Any, *objects: Json) -> None:
    """What a reflector does with a list."""
    table.replace([table.fact_of(obj) for obj in objects])


def metadata(
    name: str = "wf", run: str = "r1", version: int = 1, uid: str = UID, **marks: str
) -> Json:
    argo = {f"workflows.argoproj.io/{key}": value for key, value in marks.items()}
    return {
        "metadata": {
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"simrun/run": run, **argo},
        }
    }


def test_what_a_workflows_metadata_say_is_told_and_that_it_was_written_is_minor(
    told: list[str],
) -> None:
    minor: list[str] = []
    table = WorkflowTable(told.append, lambda fact: minor.append(fact.version))

    for version in (1, 2, 2, 3):
        table.upsert(metadata(version=version))
    table.upsert(metadata(version=4, phase="Running"))
    table.upsert(metadata(version=5, phase="Succeeded", completed="true"))
    leaving = metadata(version=6, phase="Succeeded", completed="true")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    table.upsert(leaving)

    assert told == ["r1"] * 4
    assert minor == ["2", "3"]


def test_a_list_tells_what_is_new_what_changed_and_what_is_gone(told: list[str]) -> None:
    table = WorkflowTable(told.append)
    take_all(table, metadata("a", "ra"), metadata("b", "rb"), metadata("c", "rc"))
    told.clear()

    take_all(
        table, metadata("b", "rb", 2, phase="Failed"), metadata("c", "rc"), metadata("d", "rd")
    )

    assert sorted(told) == ["ra", "rb", "rd"]
    assert table.runs() == {"rb", "rc", "rd"}


def test_a_workflow_made_anew_under_its_name_is_another(told: list[str]) -> None:
    table = WorkflowTable(told.append)
    table.upsert(metadata(uid="old"))

    table.upsert(metadata(uid="new"))

    assert told == ["r1", "r1"]
    assert not table.exists("wf", "old")
    assert table.exists("wf", "new")


def test_a_deleted_workflow_is_told(told: list[str]) -> None:
    table = WorkflowTable(told.append)
    table.upsert(metadata())

    table.drop(metadata(version=2))

    assert told == ["r1", "r1"]
    assert len(table) == 0


def test_only_a_significant_change_of_a_pod_is_told(told: list[str]) -> None:
    table = PodTable(told.append)
    table.upsert(pod(containers=(running(),)))
    again = pod(containers=(running(),))
    again["metadata"]["resourceVersion"] = "99"
    again["metadata"]["annotations"]["something"] = "else"

    table.upsert(again)
    assert told == ["r1"]
    table.upsert(pod(containers=(running(),), conditions=(condition("TerminationTarget", "x"),)))
    assert told == ["r1", "r1"]


def test_what_a_list_misses_is_gone_and_remembered(told: list[str]) -> None:
    table = PodTable(told.append)
    table.upsert(pod(uid="a", conditions=(condition("TerminationTarget", "x"),)))
    table.upsert(pod(uid="b"))
    told.clear()

    take_all(table, pod(uid="b"))

    assert told == ["r1"]
    facts = {fact.uid: fact for fact in table.learn("wf", [], frozenset())}
    assert facts["a"].gone
    assert facts["a"].disruptions
    assert not facts["b"].gone


def test_a_consistent_list_tells_what_is_gone_but_not_of_what_is_younger(told: list[str]) -> None:
    table = PodTable(told.append)
    table.upsert(pod(uid="old"))
    table.upsert(pod(uid="there"))
    before = table.uids("wf")
    table.upsert(pod(uid="younger"))  # while the list is under way
    told.clear()

    facts = table.learn("wf", [pod(uid="there"), pod(uid="unseen")], before)

    assert {fact.uid: fact.gone for fact in facts} == {
        "old": True,
        "there": False,
        "younger": False,
        "unseen": False,
    }
    assert told == []


def test_a_list_that_is_older_than_the_watch_takes_nothing_back(told: list[str]) -> None:
    table = PodTable(told.append)
    table.upsert(pod(phase="Failed", containers=(terminated("main", 137, "OOMKilled"),)))

    (fact,) = table.learn("wf", [pod(phase="Running", containers=(running(),))], frozenset())

    assert fact.phase == "Failed"
    assert fact.main is not None


def test_the_pods_of_other_workflows_are_not_told(told: list[str]) -> None:
    table = PodTable(told.append)
    table.upsert(pod(uid="a", workflow="one"))
    table.upsert(pod(uid="b", workflow="two"))

    assert [fact.uid for fact in table.learn("two", [], frozenset())] == ["b"]


def test_evidence_is_forgotten_with_its_workflow_and_not_before(told: list[str]) -> None:
    workflows, pods = WorkflowTable(told.append), PodTable(told.append)
    take_all(workflows, metadata("one", uid="uid-1"))
    pods.drop(pod(uid="a", workflow="one", owner="uid-1"))
    pods.drop(pod(uid="b", workflow="one", owner="an older one of this name"))
    pods.upsert(pod(uid="c", workflow="gone", owner="uid-9"))

    assert pods.forget_without(workflows.exists) == 1
    assert pods.uids("one") == {"a"}
    assert pods.uids("gone") == {"c"}  # it exists: somebody may still ask
    workflows.drop(metadata("one", uid="uid-1"))
    assert pods.forget_without(workflows.exists) == 1
    assert pods.uids("one") == set()


async def test_a_run_is_hinted_at_once_however_often_it_changed() -> None:
    hints = Hints()
    for run in ("a", "b", "a", "a"):
        hints.add(run)

    assert [await anext(hints), await anext(hints)] == ["a", "b"]
    waiter = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    assert not waiter.done()
    hints.add("a")
    assert await waiter == "a"


async def test_a_reader_that_gave_up_leaves_the_hint_to_the_next() -> None:
    hints = Hints()
    waiter = asyncio.ensure_future(anext(hints))
    await asyncio.sleep(0)
    hints.add("a")
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter

    assert await anext(hints) == "a"
