"""Pods and workflows that are made on a real API server and never run: a gate that nobody opens keeps the pods from being placed.

Argo leaves the workflows alone, since they belong to an instance of it that does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.session import KubeSession
from simrun.model import labels

Json = dict[str, Any]
T = TypeVar("T")

AT_ONCE = 16


@contextlib.asynccontextmanager
async def namespace(kube: KubeSession) -> AsyncIterator[str]:
    """Make a namespace of one's own; all that is in it goes when it is left."""
    name = f"bench-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create("/api/v1/namespaces", body)
    try:
        await _until(kube, f"/api/v1/namespaces/{name}/serviceaccounts/default", there=True)
        yield name
    finally:
        await kube.delete(f"/api/v1/namespaces/{name}")
        # What is measured next shall not share the server with the removal of thousands of objects
        await _until(kube, f"/api/v1/namespaces/{name}", there=False, seconds=600)


async def _until(kube: KubeSession, path: str, *, there: bool, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while True:
            try:
                await kube.get(path)
                found = True
            except errors.NotFound:
                found = False
            if found == there:
                return
            await asyncio.sleep(0.2 if there else 1)


def pod(name: str, run: str, task: str, *, workflow: str = "", owner: Json | None = None) -> Json:
    """Give a pod such as Argo makes for an unsplit task of a run, of the usual 6 KB once the server has added its own."""
    workflow = workflow or run
    node = f"{workflow}.{task}(0)"
    metadata: Json = {
        "name": name,
        "labels": {
            labels.MANAGED_BY: labels.MANAGER,
            labels.RUN: run,
            labels.TASK: task,
            labels.WORKER: task,
            labels.ROLE: "exec",
            labels.GROUP: "default",
            labels.ARGO_WORKFLOW: workflow,
        },
        "annotations": {
            labels.GROUP: "default",
            labels.ARGO_NODE_ID: node,
            labels.ARGO_NODE_NAME: node,
        },
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "schedulingGates": [{"name": "simrun/bench"}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "store", "emptyDir": {}}],
            "containers": [_container("main"), _container("wait")],
        },
    }


def _container(name: str) -> Json:
    return {
        "name": name,
        "image": "registry.test/simrun-worker:1",
        "command": ["simrun-worker"],
        "env": [{"name": f"SIMRUN_VARIABLE_{n}", "value": f"value {n}"} for n in range(4)],
        "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "store", "mountPath": "/simrun/run"}],
    }


def workflow(name: str, run: str, tasks: Iterable[str]) -> Json:
    """Give a workflow that has started the pods of these tasks."""
    nodes: Json = {name: {"id": name, "name": name, "type": "DAG", "phase": "Running"}}
    for task in tasks:
        node, attempt = f"{name}.{task}", f"{name}.{task}(0)"
        common = {"boundaryID": name, "startedAt": "2026-11-30T12:00:00Z"}
        nodes[node] = {
            **common,
            "id": node,
            "name": node,
            "displayName": task,
            "type": "Retry",
            "phase": "Running",
            "children": [attempt],
        }
        nodes[attempt] = {
            **common,
            "id": attempt,
            "name": attempt,
            "displayName": f"{task}(0)",
            "type": "Pod",
            "phase": "Pending",
            "templateName": task,
        }
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {
            "name": name,
            "labels": {
                labels.MANAGED_BY: labels.MANAGER,
                labels.RUN: run,
                labels.GROUP: "default",
                labels.ARGO_PHASE: "Running",
                "workflows.argoproj.io/controller-instanceid": "bench",
            },
        },
        "spec": {"entrypoint": "DAG", "templates": [{"name": "DAG", "dag": {"tasks": []}}]},
        "status": {"phase": "Running", "startedAt": "2026-11-30T12:00:00Z", "nodes": nodes},
    }


async def at_once(do: Callable[[T], Awaitable[object]], items: Iterable[T]) -> None:
    """Do something with each item, AT_ONCE at a time."""
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
