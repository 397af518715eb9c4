"""The template of one kind of worker: what its pods run, with what resources, environment and mounts."""

from __future__ import annotations

import json
import math
from typing import Any

from simrun.argo import text
from simrun.model import labels
from simrun.model.cluster import ClusterConfig
from simrun.model.quantities import MIB, memory_gb_text
from simrun.model.record import RunRecord
from simrun.pods import Pod
from simrun.worker import protocol

Manifest = dict[str, Any]

PARAMETERS = ("worker", "priority", "task", "role")
"""Inputs of every template."""

DEADLINE_MARGIN_S = 60
"""The guard behind a time limit strikes this long after the harness had to be done, grace included."""

_PROGRAMS = {"worker": "simrun-worker", "merge": "simrun-merge", "exec": "simrun-exec"}
_RETRY_EXPRESSION = (
    f"lastRetry.exitCode in [{', '.join(json.dumps(code) for code in protocol.ARGO_RETRIES)}]"
    ' || lastRetry.status == "Error"'
)
# Volumes that every pod of a cluster has to itself; any other is shared and needs a directory for each worker
_PRIVATE_VOLUMES = ("emptyDir", "ephemeral")
_TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def one_volume(config: ClusterConfig) -> bool:
    """Say whether store and snapshots lie in one volume: older kubelets never start a pod that names a claim twice."""

    def writable(volume: Manifest) -> Manifest:
        return {
            kind: {key: value for key, value in source.items() if key != "readOnly"}
            for kind, source in volume.items()
        }

    return writable(config.store) == writable(config.snapshots)


def template_name(pod: Pod) -> str:
    """Give the template's name, which is part of the names of its pods: the task, or the merge of the task."""
    return pod.worker if pod.role == protocol.ROLE_MERGE else pod.task


def template(pod: Pod, record: RunRecord, config: ClusterConfig) -> Manifest:
    """Give the template of an unsplit task, of a merge, or of all workers of a split task, from its coordinator."""
    template: Manifest = {
        "name": template_name(pod),
        "inputs": {"parameters": [{"name": name} for name in PARAMETERS]},
        "metadata": {
            "labels": {
                labels.TASK: _input("task"),
                labels.WORKER: _input("worker"),
                labels.ROLE: _input("role"),
                labels.WORKLOAD_PRIORITY: _input("priority"),
            }
        },
        "priorityClassName": _input("priority"),
        "retryStrategy": {
            "limit": str(pod.retry_limit),
            "retryPolicy": "Always",
            "expression": _RETRY_EXPRESSION,
        },
    }
    if selector := {**config.node_selector, **pod.node_selector}:
        template["nodeSelector"] = {
            text.plain(key, _of(pod, "node selector")): text.plain(
                value, _of(pod, f"node selector {key}:")
            )
            for key, value in selector.items()
        }
    if pod.timeout_s is not None:
        template["activeDeadlineSeconds"] = math.ceil(
            pod.timeout_s + pod.grace_s + DEADLINE_MARGIN_S
        )
    template["podSpecPatch"] = json.dumps(_patch(pod))
    template["volumes"] = [{"name": "scratch", **_scratch_source(pod, config)}]
    template["container"] = _container(pod, record, config)
    return template


def _container(pod: Pod, record: RunRecord, config: ClusterConfig) -> Manifest:
    if not pod.image:
        raise ValueError(
            f"task {pod.task!r} has no image: name one in its type, or a default in the cluster's configuration"
        )
    program = [_PROGRAMS[pod.harness]] if pod.harness else [*map(text.for_kubelet, pod.command)]
    container: Manifest = {
        "image": text.plain(pod.image, _of(pod, "image")),
        "imagePullPolicy": config.image_pull_policy,
        # All of it as command: Argo moves long arguments to a file, where nothing would undo the doubling of `$`
        "command": program,
    }
    if pod.working_dir is not None:
        container["workingDir"] = pod.working_dir
    resources = {
        "cpu": _cpu_quantity(pod.cpus),
        "memory": memory_quantity(pod.memory),
        **{text.plain(name, _of(pod, "resource")): str(n) for name, n in pod.extended.items()},
    }
    container["env"] = _env(pod, config)
    container["resources"] = {"requests": resources, "limits": dict(resources)}
    container["volumeMounts"] = _mounts(pod, record, config)
    return container


def _env(pod: Pod, config: ClusterConfig) -> list[Manifest]:
    """Give the environment: the user's first, so that nothing of it overlays what the harness needs.

    SIMRUN_MERGE stands in the template of all workers of a task; only the coordinator acts on it.
    """
    own = {
        protocol.ENV_WORKER: _input("worker"),
        protocol.ENV_ROLE: _input("role"),
        protocol.ENV_TASK: _input("task"),
        protocol.ENV_SCRATCH: f"{config.scratch_mount}/{_scratch_path(pod)}",
        protocol.ENV_ATTEMPT: "{{retries}}",
        protocol.ENV_MEMORY_GB: memory_gb_text(pod.memory),
    }
    users = {name: value for name, value in pod.env.items() if not name.startswith("SIMRUN_")}
    ours = {name: value for name, value in pod.env.items() if name.startswith("SIMRUN_")}
    env: list[Manifest] = []
    if any(text.MARK in value for value in users.values()):
        env.append({"name": text.BRACE_VARIABLE, "value": "{"})
    env += [{"name": name, "value": text.for_env(value)} for name, value in users.items()]
    for name, secret in pod.secret_env.items():
        reference = {
            "name": text.plain(secret.secret, _of(pod, "secret")),
            "key": text.plain(secret.key, _of(pod, "key of a secret")),
        }
        env.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    env += [{"name": name, "value": value} for name, value in {**ours, **own}.items()]
    for name, path in (
        (protocol.ENV_POD_UID, "metadata.uid"),
        (protocol.ENV_NODE, "spec.nodeName"),
    ):
        env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return env


def _mounts(pod: Pod, record: RunRecord, config: ClusterConfig) -> list[Manifest]:
    """Give the mounts of the container.

    The directory of the run must exist before: the kubelet would make it as root. The executor beside the container needs
    the service account's token, the simulation doesn't: an empty directory in its place keeps it out.
    """
    runs = f"{config.store_path.strip('/')}/runs/{record.id}".lstrip("/")
    path = _scratch_path(pod)
    scratch: Manifest = {"name": "scratch", "mountPath": f"{config.scratch_mount}/{path}"}
    if not set(_PRIVATE_VOLUMES) & set(config.scratch):
        scratch["subPath"] = path
    return [
        {"name": "store", "mountPath": config.run_mount, "subPath": runs},
        *_snapshots(pod, record, config),
        scratch,
        {"name": "no-token", "mountPath": _TOKEN_MOUNT, "readOnly": True},
    ]


def _snapshots(pod: Pod, record: RunRecord, config: ClusterConfig) -> list[Manifest]:
    """Give the mounts of the snapshots: their directory as a whole, or each that an input of the task names."""
    top, below = config.snapshots_mount, config.snapshots_path.strip("/")
    places = [(top, below)]
    if config.snapshots_mounted == "named":
        sources = record.workflow.tasks[pod.task].sources.values() if record.workflow else ()
        names = dict.fromkeys(source.name for source in sources if source.kind == "snapshot")
        places = [(f"{top}/{name}", f"{below}/{name}".lstrip("/")) for name in names]
    volume = "store" if one_volume(config) else "snapshots"
    mounts: list[Manifest] = []
    for place, path in places:
        mount: Manifest = {"name": volume, "mountPath": place, "readOnly": True}
        mounts.append({**mount, "subPath": path} if path else mount)
    return mounts


def _scratch_source(pod: Pod, config: ClusterConfig) -> Manifest:
    if pod.scratch_limit is None or "emptyDir" not in config.scratch:
        return config.scratch
    size = memory_quantity(pod.scratch_limit)
    return {"emptyDir": {**config.scratch["emptyDir"], "sizeLimit": size}}


def _scratch_path(pod: Pod) -> str:
    """Give the scratch directory below the scratch root; that of workers of one template differs by the worker's name."""
    if pod.role != protocol.ROLE_BASE:
        return pod.scratch
    return pod.scratch.removesuffix(pod.worker) + _input("worker")


def _patch(pod: Pod) -> Manifest:
    """Give the patch of the pod that depends on the attempt."""
    patch: Manifest = {"terminationGracePeriodSeconds": max(1, math.ceil(pod.grace_s))}
    if pod.retry_memory is not None:
        memory = _by_attempt(memory_quantity(pod.memory), memory_quantity(pod.retry_memory))
        gb = _by_attempt(memory_gb_text(pod.memory), memory_gb_text(pod.retry_memory))
        main = {
            "name": "main",
            "resources": {"requests": {"memory": memory}, "limits": {"memory": memory}},
            "env": [{"name": protocol.ENV_MEMORY_GB, "value": gb}],
        }
        patch["containers"] = [main]
    return patch


def _by_attempt(first: str, after_kill: str) -> str:
    """Give an expression for a value that only the attempt after an exit with 137 has otherwise.

    Single quotes: the expression stands in JSON in JSON.
    """
    return f"{{{{=lastRetry.exitCode == '{protocol.Exit.MEMORY:d}' ? '{after_kill}' : '{first}'}}}}"


def _input(name: str) -> str:
    return f"{{{{inputs.parameters.{name}}}}}"


def _of(pod: Pod, what: str) -> str:
    return f"task {pod.task!r}: {what}"


def _cpu_quantity(cpus: float) -> str:
    """Give processors as Kubernetes writes them: 2, or 250m; what is too small for a thousandth is one."""
    thousandths = max(1, round(cpus * 1000))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def memory_quantity(size: int) -> str:
    """Give bytes as Kubernetes writes them: 256Mi where that is exact, else the number."""
    return f"{size // MIB}Mi" if size % MIB == 0 else str(size)
