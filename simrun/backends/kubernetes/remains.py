"""What on a cluster carries the name of a run: workflows, pods without one, reserved nodes. For `simrun doctor`, which knows the runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.reservation import NODES, Reservations
from simrun.backends.kubernetes.session import METADATA_LIST, KubeSession
from simrun.backends.kubernetes.watching import pods_path, workflows_path
from simrun.model import labels
from simrun.model.cluster import ClusterConfig

Kind = Literal["workflow", "pod", "node"]


@dataclass(frozen=True, slots=True)
class Remnant:
    """An object and the run that it names. of: fingerprint of the submission, "" where the object does not say."""

    kind: Kind
    name: str
    uid: str
    run: str
    of: str = ""


class Remnants:
    """Finds them in one namespace, and removes single ones."""

    def __init__(self, kube: KubeSession, config: ClusterConfig) -> None:
        self._kube, self._config = kube, config
        self._workflows = workflows_path(config.namespace)
        self._pods = pods_path(config.namespace)

    async def found(self) -> tuple[list[Remnant], list[str]]:
        """Give what names a run, and what could not be looked at. Raises BackendUnavailable, BackendError."""
        notes = []
        # Pods first: a workflow that is made meanwhile is not missed for one of them
        pods = await list_all(self._kube, self._pods, labels.RUN, accept=METADATA_LIST)
        managed = f"{labels.MANAGED_BY}={labels.MANAGER}"
        workflows = await list_all(self._kube, self._workflows, managed, accept=METADATA_LIST)
        nodes: list[JsonObject] = []
        try:
            nodes = await list_all(self._kube, NODES)
        except errors.Forbidden:
            notes.append("nodes can't be listed, so reservations were not looked for")
        uids = {item["metadata"]["uid"] for item in workflows}
        found = [_of(item, "workflow") for item in workflows]
        found += [_of(item, "pod") for item in pods if not uids & _owners(item)]
        for node in nodes:
            found += [
                Remnant("node", str(node["metadata"]["name"]), str(node["metadata"]["uid"]), run)
                for run in _reserved_for(node)
            ]
        return [item for item in found if item.run], notes

    async def remove(self, item: Remnant) -> None:
        """Remove one, if it is still the same: a workflow with its pods, a pod, a reservation of its run."""
        if item.kind == "node":
            await Reservations(self._kube, self._config).release(item.name, item.run)
            return
        path = f"{self._workflows if item.kind == 'workflow' else self._pods}/{item.name}"
        with suppress(errors.NotFound, errors.Conflict):  # gone, or another of its name
            if item.kind == "workflow":
                # Stopped before, or Argo would answer the deletion of its pods with new attempts
                patch = {"metadata": {"uid": item.uid}, "spec": {"shutdown": "Terminate"}}
                with suppress(errors.Invalid):
                    await self._kube.patch(path, patch)
                await self._kube.delete(path, uid=item.uid, propagation="Foreground")
            else:
                await self._kube.delete(path, uid=item.uid)


def _of(item: JsonObject, kind: Kind) -> Remnant:
    metadata = item["metadata"]
    run = str((metadata.get("labels") or {}).get(labels.RUN, ""))
    of = str((metadata.get("annotations") or {}).get(labels.FINGERPRINT, ""))
    return Remnant(kind, str(metadata["name"]), str(metadata["uid"]), run, of)


def _owners(item: JsonObject) -> set[str]:
    return {one.get("uid", "") for one in item["metadata"].get("ownerReferences") or []}


def _reserved_for(node: JsonObject) -> list[str]:
    """Give the runs that label and taints of a node name."""
    label = (node["metadata"].get("labels") or {}).get(labels.RESERVED)
    taints = (node.get("spec") or {}).get("taints") or []
    found = [label, *(t.get("value") for t in taints if t.get("key") == labels.RESERVED)]
    return list(dict.fromkeys(str(run) for run in found if run))
