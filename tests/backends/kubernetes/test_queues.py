"""What is read from Kueue's queues."""

from __future__ import annotations

from typing import Any

import pytest

from simrun.backends.base import Quota
from simrun.backends.kubernetes.queues import quantity, read_queue


def reserved(**totals: str) -> list[dict[str, Any]]:
    return [{"name": "f", "resources": [{"name": k, "total": v} for k, v in totals.items()]}]


LOCAL = {
    "metadata": {"name": "sims"},
    "spec": {"clusterQueue": "all"},
    "status": {
        "pendingWorkloads": 2,
        "admittedWorkloads": 3,
        "conditions": [{"type": "Active", "status": "True", "message": "fine"}],
        "flavorsReservation": reserved(cpu="1500m", memory="2Gi"),
    },
}
CLUSTER = {
    "spec": {
        "resourceGroups": [
            {
                "flavors": [
                    {"resources": [{"name": "cpu", "nominalQuota": "3"}]},
                    {"resources": [{"name": "cpu", "nominalQuota": "500m"}]},
                ]
            }
        ]
    },
    "status": {"flavorsReservation": reserved(cpu="2", memory="4Gi")},
}


def test_the_quota_is_the_cluster_queues_over_all_flavors() -> None:
    queue = read_queue(LOCAL, CLUSTER)

    assert (queue.name, queue.active, queue.waiting, queue.admitted) == ("sims", True, 2, 3)
    assert queue.resources == {
        "cpu": Quota(given=3.5, used=2.0),
        "memory": Quota(given=None, used=4 * 2**30),
    }


def test_without_the_cluster_queue_what_the_local_one_uses_is_told() -> None:
    queue = read_queue(LOCAL, {})
    assert queue.resources["cpu"] == Quota(given=None, used=1.5)


def test_a_queue_that_is_stopped_says_why() -> None:
    stopped = {"conditions": [{"type": "Active", "status": "False", "message": "it is held"}]}
    queue = read_queue({**LOCAL, "status": stopped}, {})
    assert (queue.active, queue.message, queue.waiting) == (False, "it is held", 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3.0), ("250m", 0.25), ("8Gi", 8 * 2**30), ("1e3", 1000.0), (4, 4.0), ("odd", 0.0)],
)
def test_quantities(text: str | int, value: float) -> None:
    assert quantity(text) == value
