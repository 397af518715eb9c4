"""The manifest of a run's workflow.

A split task of n pods is two tasks of the DAG over one template: `<task>-w0`, the coordinator, and `<task>-extra`, a
sequence of n - 1 workers whose failures the DAG lets pass; a plan whose coordinator doesn't merge adds `<task>-merge`. An
unsplit task is one task of the DAG. All templates take the same four parameters: worker, priority, task and role.

What this relies on in Argo 4.0 and 4.1:
- A retry strategy with an expression retries where policy and expression both agree, and the expression compares strings.
- `{{retries}}` and `lastRetry` are replaced for each attempt; before the first one, lastRetry.exitCode is "0". So the patch
  of the pod gives the retry memory to exactly the attempt that follows an exit with 137.
- podSpecPatch merges containers and variables by name. It also sets the termination grace, which templates have no field for.
- The DAG ignores the failure of a task that says continueOn and that no other task depends on.

Memory and time limits: requests equal limits, so what a pod asks for is what it has. A template has an
activeDeadlineSeconds only where its type has a timeout, as a guard behind the harness's own; the workflow has none, since
that would count the time in the queue and forbid retries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from simrun.argo import text
from simrun.argo.names import label_value, run_workflow_name
from simrun.argo.template import PARAMETERS, Manifest, one_volume, template, template_name
from simrun.base import ids
from simrun.base.errors import InvalidInput, Problem
from simrun.model import labels
from simrun.model.cluster import ClusterConfig
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType
from simrun.pods import Pod, pods_of
from simrun.worker import protocol

ENTRYPOINT = "DAG"
"""In capitals, so that no task can have its name."""


def to_argo(
    record: RunRecord,
    plans: Mapping[str, TaskPlan],
    types: Mapping[str, TaskType],
    config: ClusterConfig,
) -> Manifest:
    """Give the manifest of the workflow of a run's round. record.workflow must be there.

    The settings of the tasks are not in it: they stand in settings.json of each task, written before it is submitted, as
    do the directories that it mounts. Raises ValueError where a task has no image or no command, stages a port which is
    no input, or gives a name that no manifest may carry; InvalidInput where the cluster has no classes for the
    run's priority, or an image is to be built.
    """
    if problem := ids.run_id_problem(record.id):
        raise ValueError(f"run id {record.id!r} {problem}")
    pods = pods_of(record, plans, types, config)
    _refuse_builds(plans, types, pods)
    classes = config.priority(record.priority)
    if not pods:
        raise ValueError(f"every task of run {record.id!r} is done: there is nothing to submit")
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": run_workflow_name(record.id, record.round),
            "namespace": config.namespace,
            "labels": _run_labels(record),
            "annotations": {labels.GROUP: record.group},
        },
        "spec": {
            "entrypoint": ENTRYPOINT,
            "serviceAccountName": config.service_account,
            "automountServiceAccountToken": True,
            **_placement(record, config),
            "podMetadata": _pod_metadata(record, config),
            "podSpecPatch": json.dumps(_common_patch(config)),
            "ttlStrategy": {"secondsAfterCompletion": config.workflow_ttl_s},
            "volumes": _volumes(config),
            "templates": [
                {"name": ENTRYPOINT, "dag": {"tasks": _dag_tasks(pods, classes)}},
                *(template(pod, record, config) for pod in pods if not pod.may_fail),
            ],
        },
    }


def _refuse_builds(
    plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType], pods: list[Pod]
) -> None:
    """Refuse types whose image nobody built: their pods would run in the cluster's own image, or in none."""
    unbuilt = {pod.type for pod in pods if types[pod.type].build and not plans[pod.task].image}
    if unbuilt:
        text = "images are not built by this version of simrun"
        remedy = "build and push it yourself, and name it as `image` instead"
        raise InvalidInput(
            [Problem(f"types.{name}.build", text, None, remedy) for name in sorted(unbuilt)]
        )


# --- the workflow


def _run_labels(record: RunRecord) -> dict[str, str]:
    return {
        labels.MANAGED_BY: labels.MANAGER,
        labels.RUN: record.id,
        labels.GROUP: label_value(record.group),
    }


def _pod_metadata(record: RunRecord, config: ClusterConfig) -> Manifest:
    """Give what all pods of the run carry; the rest depends on the worker and stands in the templates."""
    annotations = {labels.GROUP: text.for_pod_annotation(record.group)}
    if config.topology is not None:
        annotations[labels.REQUIRED_TOPOLOGY] = config.topology
    return {
        "labels": {**_run_labels(record), labels.QUEUE: config.local_queue},
        "annotations": annotations,
    }


def _volumes(config: ClusterConfig) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "store", **config.store}]
    if not one_volume(config):
        volumes.append({"name": "snapshots", **config.snapshots})
    return [*volumes, {"name": "no-token", "emptyDir": {}}]


def _placement(record: RunRecord, config: ClusterConfig) -> Manifest:
    tolerations = list(config.tolerations)
    if record.reserve_node or record.node is not None:
        # Without an effect it tolerates any: the node's taint also evicts what was there
        tolerations.append({"key": labels.RESERVED, "operator": "Equal", "value": record.id})
    placement: Manifest = {}
    if tolerations:
        placement["tolerations"] = tolerations
    if config.image_pull_secrets:
        placement["imagePullSecrets"] = [{"name": name} for name in config.image_pull_secrets]
    return placement


def _common_patch(config: ClusterConfig) -> Manifest:
    """Give the patch that lets a pod pass Pod Security `restricted`, with the containers that Argo adds.

    No fsGroup: on a shared store the kubelet would change the owner of everything at every mount.
    """
    pod: Manifest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if config.run_as_user is not None:
        pod["runAsUser"] = config.run_as_user
    if config.run_as_group is not None:
        pod["runAsGroup"] = config.run_as_group

    def secured(name: str) -> Manifest:
        context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        return {"name": name, "securityContext": context}

    patch: Manifest = {
        # Variables of the services in the namespace might be taken for variables of the harness
        "enableServiceLinks": False,
        "securityContext": pod,
        "containers": [secured("main"), *map(secured, config.executor_containers.containers)],
    }
    if config.executor_containers.init:
        patch["initContainers"] = [secured(name) for name in config.executor_containers.init]
    return patch


# --- the DAG


def _dag_tasks(pods: list[Pod], classes: tuple[str, str]) -> list[Manifest]:
    """Give the DAG's tasks: one for each pod that may not fail, one for all extra workers of a task together.

    `classes`: the priority of the former and of the latter.
    """
    extras: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.may_fail:
            extras.setdefault(pod.task, []).append(pod)
    tasks = []
    for pod in pods:
        if pod.may_fail:
            continue
        tasks.append(_dag_task(pod.worker, pod, pod.worker, classes))
        if pod.role == protocol.ROLE_BASE and pod.task in extras:
            tasks.append(_scatter(pod, extras[pod.task], classes))
    return tasks


def _scatter(coordinator: Pod, extras: list[Pod], classes: tuple[str, str]) -> Manifest:
    task = coordinator.task
    worker = f"{task}-w{{{{item}}}}"
    return {
        **_dag_task(f"{task}-extra", extras[0], worker, classes),
        "withSequence": {"start": "1", "count": str(len(extras))},
        "continueOn": {"failed": True, "error": True},
    }


def _dag_task(name: str, pod: Pod, worker: str, classes: tuple[str, str]) -> Manifest:
    values = (worker, classes[pod.priority == "extra"], pod.task, pod.role)
    pairs = zip(PARAMETERS, values, strict=True)
    task: Manifest = {"name": name, "template": template_name(pod)}
    if pod.needs:
        task["dependencies"] = list(pod.needs)
    task["arguments"] = {"parameters": [{"name": key, "value": value} for key, value in pairs]}
    return task
