"""Nodes that one run has for itself: a label that its pods select, and a taint that keeps out, and drives out, all others.

Both carry the run id and are written in one patch with the node's resourceVersion as precondition, so that of two runs that want a node one
gets it, and a node is never half reserved. The label on the node is the reservation: a service that forgot what it did finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendUnavailable
from simrun.model import labels
from simrun.model.cluster import ClusterConfig

NODES = "/api/v1/nodes"

_TRIES = 5
"""Patches of one node before giving up for now: the kubelet writes to it every few seconds, and rarely in between."""


class Reservations:
    """Takes nodes for runs and gives them back."""

    def __init__(self, kube: KubeSession, config: ClusterConfig) -> None:
        self._kube = kube
        self._config = config

    async def reserve(self, run: str) -> str:
        """Take a node for a run, or find the one it has; raises BackendUnavailable when none is free."""
        nodes = await list_all(self._kube, NODES)
        for node in nodes:
            if _holder(node) == run and _taints(node, run):
                return _name(node)
        free = [node for node in nodes if self._usable(node) and _holder(node) in (None, run)]
        if not free:
            raise BackendUnavailable(
                f"no node is free to be reserved for run {run}: {len(nodes)} exist, none of them is ready, open to"
                " runs and unreserved"
            )
        busy = await self._pods_of_others(run)
        # An empty one: the taint evicts what other runs have on it
        free.sort(key=lambda node: (_holder(node) != run, busy.get(_name(node), 0), _name(node)))
        for node in free:
            if await self._write(node, run, reserve=True):
                return _name(node)
        raise BackendUnavailable(
            f"no node could be reserved for run {run}: all were taken just now"
        )

    async def release(self, name: str | None, run: str) -> None:
        """Give a node back if this run has it; a node that doesn't exist, or that another run has, is left alone.

        None: every node that the run has.
        """
        if name is None:
            for node in await list_all(self._kube, NODES):
                if _holder(node) == run or _taints(node, run):
                    await self.release(_name(node), run)
            return
        for _ in range(_TRIES):
            try:
                node = await self._kube.get(f"{NODES}/{name}")
            except errors.NotFound:
                return
            if _holder(node) != run and not _taints(node, run):
                return
            if await self._write(node, run, reserve=False):
                return
        raise BackendUnavailable(f"node {name} changes too often to be released from run {run}")

    async def _write(self, node: JsonObject, run: str, *, reserve: bool) -> bool:
        """Add or take away label and taint; False when the node changed since it was read, or is gone."""
        taints = [
            taint
            for taint in _all_taints(node)
            if taint.get("key") != labels.RESERVED or (not reserve and taint.get("value") != run)
        ]
        if reserve:
            taints.append({"key": labels.RESERVED, "value": run, "effect": "NoExecute"})
        label = _label(node)
        if reserve or label == run:
            label = run if reserve else None
        patch: JsonObject = {
            "metadata": {
                "resourceVersion": node["metadata"]["resourceVersion"],
                "labels": {labels.RESERVED: label},
            },
            "spec": {"taints": taints or None},
        }
        try:
            await self._kube.patch(f"{NODES}/{_name(node)}", patch)
        except (errors.Conflict, errors.NotFound):
            return False
        return True

    async def _pods_of_others(self, run: str) -> dict[str, int]:
        """Count the unfinished pods of other runs, by node."""
        path = f"/api/v1/namespaces/{self._config.namespace}/pods"
        counts: dict[str, int] = {}
        for pod in await list_all(self._kube, path, labels.RUN):
            host = (pod.get("spec") or {}).get("nodeName")
            phase = (pod.get("status") or {}).get("phase")
            mine = (pod["metadata"].get("labels") or {}).get(labels.RUN) == run
            if host and not mine and phase in ("Pending", "Running"):
                counts[host] = counts.get(host, 0) + 1
        return counts

    def _usable(self, node: JsonObject) -> bool:
        """Whether pods of runs may be on a node at all."""
        marks = node["metadata"].get("labels") or {}
        ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in (node.get("status") or {}).get("conditions") or []
        )
        selected = all(marks.get(key) == value for key, value in self._config.node_selector.items())
        closed = (node.get("spec") or {}).get("unschedulable") or any(
            taint.get("effect") in ("NoSchedule", "NoExecute")
            and taint.get("key") != labels.RESERVED
            and not _tolerated(taint, self._config.tolerations)
            for taint in _all_taints(node)
        )
        return ready and selected and not closed and "deletionTimestamp" not in node["metadata"]


def _name(node: JsonObject) -> str:
    return str(node["metadata"]["name"])


def _label(node: JsonObject) -> str | None:
    value = (node["metadata"].get("labels") or {}).get(labels.RESERVED)
    return None if value is None else str(value)


def _holder(node: JsonObject) -> str | None:
    """The run that a node is reserved for, by label or by taint."""
    if label := _label(node):
        return label
    for taint in _all_taints(node):
        if taint.get("key") == labels.RESERVED:
            return str(taint.get("value", ""))
    return None


def _taints(node: JsonObject, run: str) -> bool:
    return any(
        taint.get("key") == labels.RESERVED and taint.get("value") == run
        for taint in _all_taints(node)
    )


def _all_taints(node: JsonObject) -> list[dict[str, Any]]:
    return (node.get("spec") or {}).get("taints") or []


def _tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations matches a taint, by the rules of the scheduler."""
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        key, anything = toleration.get("key"), toleration.get("operator") == "Exists"
        if (not key and anything) or (
            key == taint.get("key")
            and (anything or toleration.get("value", "") == taint.get("value", ""))
        ):
            return True
    return False
