"""ClusterConfig: how runs are placed on a Kubernetes cluster. Read from a YAML file; docs/reference/cluster.md."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from simrun.model import labels
from simrun.model.base import Model
from simrun.model.mounts import Mounts
from simrun.model.priorities import NORMAL, unknown


class ExecutorContainers(Model):
    """The containers that Argo adds to a pod and whose security context a manifest must set.

    Argo 4.0 has `init` and `wait`, 4.1 may have `supervisor` in their place. Leave both empty where Argo's own ConfigMap
    sets `executor.securityContext`.
    """

    init: list[str] = ["init"]
    containers: list[str] = ["wait"]


class PriorityClasses(Model):
    """What the pods of runs of one priority have. Each names a WorkloadPriorityClass and a PriorityClass."""

    base: str
    extra: str | None = None
    """Of extra workers; None for `extra_priority` of the cluster."""


class ClusterConfig(Model):
    """Where and as what the pods of runs live.

    store, snapshots, scratch are volume sources as in a pod's `volumes` (the part beside `name`). The store is mounted
    read-write with the run's directory as subPath, snapshots read-only. hostPath is left out on purpose: Pod Security
    `restricted` forbids it.
    """

    namespace: str = "simrun"
    local_queue: str = "simrun"
    """Kueue LocalQueue that the pods are admitted through."""
    base_priority: str = "simrun-base"
    """Name of both the WorkloadPriorityClass and the PriorityClass of coordinators, merges and unsplit tasks."""
    extra_priority: str = "simrun-extra"
    """The same of extra workers, which others may preempt."""
    priorities: dict[str, PriorityClasses] = {}
    """By the priority that a run may ask for. `normal`, if it is not here, is base_priority and extra_priority."""
    service_account: str = "simrun-pod"
    """Needs create and patch on workflowtaskresults.argoproj.io: the executor writes its results as this account."""
    store: dict[str, Any] = {"persistentVolumeClaim": {"claimName": "simrun-store"}}
    store_path: str = ""
    """Path of the store inside its volume; empty when the volume is the store."""
    snapshots: dict[str, Any] = {
        "persistentVolumeClaim": {"claimName": "simrun-store", "readOnly": True}
    }
    snapshots_path: str = "snapshots"
    """Path of the snapshots inside their volume."""
    snapshots_mounted: Literal["all", "named"] = "all"
    """named: a pod sees only the snapshots that inputs of its task name, and so none of other groups."""
    scratch: dict[str, Any] = {"emptyDir": {}}
    run_mount: str = "/simrun/run"
    snapshots_mount: str = "/simrun/snapshots"
    scratch_mount: str = "/simrun/scratch"
    image: str | None = None
    """Image of types that name none."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: list[str] = []
    topology: str | None = labels.HOSTNAME
    """Level that one pod has to fit into, required by annotation; None leaves the annotation out."""
    run_as_user: int | None = None
    """Uid that owns the store; pods run as it. None leaves the choice to the image."""
    run_as_group: int | None = None
    executor_containers: ExecutorContainers = ExecutorContainers()
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    workflow_ttl_s: int = Field(default=7 * 24 * 3600, ge=60)
    """Guard only: the service deletes a workflow once its logs are kept."""

    @field_validator("store", "snapshots", "scratch")
    @classmethod
    def _no_host_path(cls, value: dict[str, Any]) -> dict[str, Any]:
        if len(value) != 1:
            raise ValueError(
                "must be one volume source, such as {persistentVolumeClaim: {claimName: store}}"
            )
        if "hostPath" in value:
            raise ValueError(
                "hostPath is forbidden by Pod Security restricted; bind a PersistentVolume and name its claim"
            )
        return value

    def priority(self, name: str | None) -> tuple[str, str]:
        """Give the classes of coordinators and of extra workers of a run of this priority. Raises InvalidInput."""
        word = name or NORMAL
        if word in self.priorities:
            classes = self.priorities[word]
            return classes.base, classes.extra or self.extra_priority
        if word != NORMAL:
            known = sorted({NORMAL, *self.priorities})
            raise unknown(
                word, known, "that the cluster's configuration (priorities) has classes for"
            )
        return self.base_priority, self.extra_priority

    def priority_fields(self, name: str | None) -> tuple[str, str]:
        """Give the fields that name these classes."""
        word = name or NORMAL
        if word not in self.priorities:
            return "base_priority", "extra_priority"
        extra = f"priorities.{word}.extra" if self.priorities[word].extra else "extra_priority"
        return f"priorities.{word}.base", extra

    def mounts(self, run: str) -> Mounts:
        """Give the directories of a run's pods: the same in every pod, since only the run's own part is mounted."""
        del run
        return Mounts(
            run=self.run_mount, snapshots=self.snapshots_mount, scratch=self.scratch_mount
        )
