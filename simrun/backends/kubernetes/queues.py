"""What Kueue says of the queue that pods are admitted through: how much of its quota is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simrun.backends.base import QueueState, Quota
from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.quantities import parse_memory


async def queue_state(kube: KubeSession, kueue: str, namespace: str, name: str) -> QueueState:
    """Read a LocalQueue and, where we may, the ClusterQueue behind it, whose quota it is. `kueue`: the path of Kueue's API.

    Raises Unavailable, and ApiError for anything odd.
    """
    local = await kube.get(f"{kueue}/namespaces/{namespace}/localqueues/{name}")
    behind = str((local.get("spec") or {}).get("clusterQueue") or "")
    try:
        cluster = await kube.get(f"{kueue}/clusterqueues/{behind}") if behind else {}
    except (errors.Forbidden, errors.NotFound):
        cluster = {}
    return read_queue(local, cluster)


def read_queue(local: JsonObject, cluster: JsonObject) -> QueueState:
    """Make one of both; without the cluster's queue nothing is known of limits, and what is used is the local queue's own."""
    status = local.get("status") or {}
    active: Mapping[str, Any] = next(
        (one for one in status.get("conditions") or [] if one.get("type") == "Active"), {}
    )
    used = _sums((cluster or local).get("status") or {})
    given = _given(cluster.get("spec") or {})
    is_active = active.get("status", "True") == "True"
    return QueueState(
        name=str(local["metadata"]["name"]),
        active=is_active,
        message="" if is_active else str(active.get("message") or ""),
        waiting=int(status.get("pendingWorkloads") or 0),
        admitted=int(status.get("admittedWorkloads") or 0),
        resources={
            resource: Quota(given=given.get(resource), used=used.get(resource, 0.0))
            for resource in sorted(given.keys() | used.keys())
        },
    )


def _sums(status: Mapping[str, Any]) -> dict[str, float]:
    """Add up what is reserved of each resource over all flavors."""
    found: dict[str, float] = {}
    for flavor in status.get("flavorsReservation") or []:
        for item in flavor.get("resources") or []:
            name = str(item["name"])
            found[name] = found.get(name, 0.0) + quantity(item.get("total", 0))
    return found


def _given(spec: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for item in flavor.get("resources") or []:
                name = str(item["name"])
                found[name] = found.get(name, 0.0) + quantity(item.get("nominalQuota", 0))
    return found


def quantity(value: str | float) -> float:
    """Read an amount as Kubernetes writes it: `3`, `250m`, `8Gi`, `1e3`; 0 for what can't be read."""
    text = str(value)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(parse_memory(text))
    except ValueError:
        return 0.0
