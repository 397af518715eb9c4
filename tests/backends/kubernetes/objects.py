"""Pods, nodes and workflows as the API shows them, made by hand; and those recorded from a real cluster.

recorded/<what happened>.json: the workflow at the end, and the events of a watch of its pods from the start (Kubernetes 1.34, Argo
4.0.5, Kueue 0.17), without the fields that nobody reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RECORDED = Path(__file__).parent / "recorded"
UID = "11111111-aaaa-bbbb-cccc-000000000000"


def recorded(name: str) -> tuple[Json, list[Json]]:
    """The workflow, and the events of its pods."""
    both = json.loads((RECORDED / f"{name}.json").read_text())
    return both["workflow"], both["pods"]


def terminated(name: str, code: int, reason: str, at: str = "12:10:00") -> Json:
    ended = {
        "exitCode": code,
        "reason": reason,
        "startedAt": "2026-11-30T12:00:05Z",
        "finishedAt": f"2026-11-30T{at}Z",
    }
    return {"name": name, "state": {"terminated": ended}}


def running(name: str = "main") -> Json:
    return {"name": name, "state": {"running": {"startedAt": "2026-11-30T12:00:05Z"}}}


def waiting(name: str, reason: str, message: str = "") -> Json:
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def condition(kind: str, reason: str, message: str = "", at: str = "12:09:50") -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": f"2026-11-30T{at}Z",
    }


def pod(
    node: str = "sim-w0(0)",
    *,
    uid: str = "pod-1",
    workflow: str = "wf",
    owner: str = UID,
    run: str = "r1",
    phase: str = "Running",
    containers: tuple[Json, ...] = (),
    conditions: tuple[Json, ...] = (),
    memory: str = "64Mi",
    deleted: str | None = None,
    grace: int = 30,
    created: str = "12:00:00",
    **status: Any,
) -> Json:
    """A pod of the attempt `node` of a workflow; `deleted`: the time at which its grace ends."""
    metadata: Json = {
        "name": f"{workflow}-{uid}",
        "uid": uid,
        "creationTimestamp": f"2026-11-30T{created}Z",
        "labels": {"simrun/run": run, "workflows.argoproj.io/workflow": workflow},
        "annotations": {
            "workflows.argoproj.io/node-name": f"{workflow}.{node}",
            "workflows.argoproj.io/node-id": node_id(workflow, node),
        },
        "ownerReferences": [{"kind": "Workflow", "name": workflow, "uid": owner}],
    }
    if deleted is not None:
        metadata["deletionTimestamp"] = f"2026-11-30T{deleted}Z"
        metadata["deletionGracePeriodSeconds"] = grace
    resources = {"limits": {"memory": memory}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "resources": resources}]},
        "status": {
            "phase": phase,
            "containerStatuses": list(containers),
            "conditions": list(conditions),
            **status,
        },
    }


def node_id(workflow: str, node: str) -> str:
    return f"{workflow}-id-{node}"


def argo_node(node: str, kind: str, phase: str, *, workflow: str = "wf", **more: Any) -> Json:
    return {
        "id": node_id(workflow, node),
        "name": f"{workflow}.{node}",
        "displayName": node,
        "type": kind,
        "phase": phase,
        "startedAt": "2026-11-30T12:00:00Z",
        "finishedAt": "2026-11-30T12:10:02Z" if phase not in ("Pending", "Running") else None,
        **more,
    }


def inputs(worker: str) -> Json:
    return {"parameters": [{"name": "worker", "value": worker}, {"name": "role", "value": "base"}]}


def retry(
    node: str, phase: str, attempts: list[Json], *, worker: str | None = None, message: str = ""
) -> list[Json]:
    """A Retry node and its attempts: each {phase, message, code}."""
    children = []
    for number, attempt in enumerate(attempts):
        more: Json = {"nodeFlag": {"retried": True}}
        if worker:
            more["inputs"] = inputs(worker)
        if attempt.get("message"):
            more["message"] = attempt["message"]
        if attempt.get("code") is not None:
            more["outputs"] = {"exitCode": str(attempt["code"])}
        children.append(argo_node(f"{node}({number})", "Pod", attempt["phase"], **more))
    more = {"inputs": inputs(worker)} if worker else {}
    parent = argo_node(node, "Retry", phase, children=[one["id"] for one in children], **more)
    return [parent | ({"message": message} if message else {}), *children]


def workflow(
    nodes: list[Json], phase: str = "Running", *, annotations: Json | None = None, **status: Any
) -> Json:
    return {
        "metadata": {"name": "wf", "uid": UID, "annotations": annotations or {}},
        "status": {"phase": phase, "nodes": {node["id"]: node for node in nodes}, **status},
    }


def workload(
    pod_uid: str,
    created: str = "12:00:00",
    *,
    uid: str | None = None,
    queue: str = "sims",
    priority: int = 100,
    conditions: tuple[Json, ...] | None = None,
) -> Json:
    """The workload of a pod; without conditions one that lacks quota."""
    lacking = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "couldn't assign flavors to pod set main: insufficient unused quota for cpu, 500m more needed",
    }
    return {
        "metadata": {
            "name": f"pod-{pod_uid}",
            "uid": uid or f"workload-of-{pod_uid}",
            "creationTimestamp": f"2026-11-30T{created}Z",
            "ownerReferences": [{"kind": "Pod", "name": f"name-of-{pod_uid}", "uid": pod_uid}],
        },
        "spec": {"queueName": queue, "priority": priority, "active": True},
        "status": {"conditions": list(conditions) if conditions is not None else [lacking]},
    }
