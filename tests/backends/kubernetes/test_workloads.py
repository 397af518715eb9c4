"""What Kueue says of pods that wait."""

from __future__ import annotations

import pytest

from simrun.backends.kubernetes.workloads import WorkloadTable
from tests.backends.kubernetes.objects import Json, workload


def says(kind: str, status: str, message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": "x", "message": message}


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ((), "queue sims: Kueue has not looked at it yet"),
        (
            (says("QuotaReserved", "False", "LocalQueue sims doesn't exist"),),
            "queue sims: LocalQueue sims doesn't exist",
        ),
        (
            (says("QuotaReserved", "True"),),
            "queue sims: quota is reserved; an admission check has not ended",
        ),
        ((says("QuotaReserved", "True"), says("Admitted", "True")), ""),
        ((says("QuotaReserved", "False", "x"), says("Finished", "True")), ""),
        (
            (says("QuotaReserved", "False"), says("Evicted", "True", "Preempted to accommodate")),
            "queue sims: Preempted to accommodate",
        ),
    ],
)
def test_a_wait_is_told_in_kueues_words(conditions: tuple[Json, ...], words: str) -> None:
    table = WorkloadTable()
    table.upsert(workload("p1", conditions=conditions))

    assert table.wait_of("p1") == words


def test_a_workload_that_was_deactivated_says_so() -> None:
    table = WorkloadTable()
    one = workload("p1", conditions=(says("Evicted", "True", "exceeded the requeue limit"),))
    one["spec"]["active"] = False
    table.upsert(one)

    assert table.wait_of("p1") == "queue sims: exceeded the requeue limit"


def test_the_place_in_a_queue_goes_by_priority_and_then_by_age() -> None:
    table = WorkloadTable()
    table.replace(
        table.fact_of(one)
        for one in [
            workload("young", "12:00:03"),
            workload("old", "12:00:01"),
            workload("base", "12:00:05", priority=1000),
            workload("elsewhere", "12:00:00", queue="others"),
            workload("runs", conditions=(says("Admitted", "True"),)),
        ]
    )

    assert "(3 of 3 that wait)" in (table.wait_of("young") or "")
    assert "(2 of 3 that wait)" in (table.wait_of("old") or "")
    assert "(1 of 3 that wait)" in (table.wait_of("base") or "")
    assert "that wait" not in (table.wait_of("elsewhere") or "")


def test_a_pod_without_a_workload_is_told_from_one_that_is_admitted() -> None:
    table = WorkloadTable()
    table.upsert(workload("p1"))
    assert table.get("workload-of-p1") is not None

    table.drop(workload("p1"))

    assert table.wait_of("p1") is None
    assert table.get("workload-of-p1") is None
    assert len(table) == 0


def test_a_workload_that_was_made_anew_for_a_pod_counts() -> None:
    table = WorkloadTable()
    table.upsert(workload("p1", uid="first"))
    table.upsert(workload("p1", uid="second", conditions=(says("Admitted", "True"),)))
    table.drop(workload("p1", uid="first"))

    assert table.wait_of("p1") == ""
