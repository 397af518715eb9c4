"""What is kept of a workflow and of a pod: small, frozen, and for pods only ever growing.

A pod object weighs 6 KB and more; what is asked of it later fits in these fields. A change of a fact is a significant change, everything
else (heartbeats of conditions, annotations) is none.

What a pod said once stays true: that it was told to leave and why, how its program ended. Kubernetes forgets all of it with the pod, and
Argo sees only "pod deleted". So facts of one pod are merged, never replaced, and the order in which they arrive does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from simrun.backends.kubernetes.errors import JsonObject
from simrun.model import labels

MAIN = "main"
"""Name that Argo gives the container of the task itself."""

_PHASES = ("Pending", "Running", "Succeeded", "Failed")
_QUANTITY = re.compile(r"([0-9.]+)(?:([KMGTPE]i|[kMGTPE])|(m)|[eE]\+?([0-9]+))?")
_ATTEMPT = re.compile(r"\((\d+)\)$")
_EXTRA = re.compile(r"(?P<task>.+)-extra\(\d+:(?P<item>\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFact:
    """A workflow, as far as its metadata tells."""

    name: str
    uid: str
    version: str
    run: str
    phase: str = ""
    completed: bool = False
    deleting: bool = False
    """Its deletion was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """A condition that says that the pod was told to leave: DisruptionTarget, or Kueue's TerminationTarget."""

    type: str
    reason: str
    message: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """How a container ended. reason: the kubelet's word, such as Completed, Error, OOMKilled."""

    name: str
    exit_code: int
    reason: str = ""
    message: str = ""
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFact:
    """All that was ever seen of one pod. Times are wall seconds, memory is bytes."""

    uid: str
    name: str
    run: str
    workflow: str = ""
    owner: str = ""
    """Uid of the workflow: another of the same name has other pods."""
    node_id: str = ""
    """Key of the pod's attempt among the nodes of Argo's status."""
    worker: str = ""
    index: int = 0
    """Number of the attempt within the round."""
    phase: str = "Pending"
    reason: str = ""
    """The pod's own reason, such as Evicted; not a container's."""
    message: str = ""
    waiting: str = ""
    """Why a container of a pending pod does not start."""
    unscheduled: str = ""
    """Why a pending pod has no node: the scheduler's words."""
    gated: bool = False
    """Kueue has not admitted it yet."""
    host: str = ""
    created: float | None = None
    started: float | None = None
    memory: int | None = None
    """Limit of the container main."""
    ends: tuple[ContainerEnd, ...] = ()
    disruptions: tuple[Disruption, ...] = ()
    deleted_at: float | None = None
    """When its deletion was asked for; it may run on for its grace."""
    gone: bool = False
    """It does not exist any more."""

    @property
    def main(self) -> ContainerEnd | None:
        """How the task's own container ended; None while it has not, or nobody saw it."""
        return next((end for end in self.ends if end.name == MAIN), None)


def workflow_fact(obj: JsonObject) -> WorkflowFact:
    """Read a workflow or its metadata."""
    metadata = obj["metadata"]
    marks = metadata.get("labels") or {}
    return WorkflowFact(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        version=str(metadata.get("resourceVersion", "")),
        run=marks.get(labels.RUN, ""),
        phase=marks.get(labels.ARGO_PHASE, ""),
        completed=marks.get(labels.ARGO_COMPLETED) == "true",
        deleting="deletionTimestamp" in metadata,
    )


def pod_fact(obj: JsonObject) -> PodFact:
    """Read a pod."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    marks = metadata.get("labels") or {}
    notes = metadata.get("annotations") or {}
    containers = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    workflow = marks.get(labels.ARGO_WORKFLOW, "")
    worker, index = worker_and_index(
        notes.get(labels.ARGO_NODE_NAME, "").removeprefix(f"{workflow}.")
    )
    return PodFact(
        uid=metadata.get("uid", ""),
        name=metadata["name"],
        run=marks.get(labels.RUN, ""),
        workflow=workflow,
        owner=_owner(metadata),
        node_id=notes.get(labels.ARGO_NODE_ID, ""),
        worker=marks.get(labels.WORKER) or worker,
        index=index,
        phase=status.get("phase") or "Pending",
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        waiting=_waiting(containers),
        unscheduled=_unscheduled(status.get("conditions") or []),
        gated=bool(spec.get("schedulingGates")),
        host=spec.get("nodeName") or "",
        created=wall_seconds(metadata.get("creationTimestamp")),
        started=_main_start(containers),
        memory=_memory_limit(spec),
        ends=tuple(_ends(containers)),
        disruptions=tuple(_disruptions(status.get("conditions") or [])),
        deleted_at=_deleted_at(metadata),
    )


def merged(old: PodFact, new: PodFact) -> PodFact:
    """Give what both say of one pod; which was seen first makes no difference to what has ended or is on its way out."""
    later = new if _rank(new) >= _rank(old) else old
    earlier = old if later is new else new
    return replace(
        later,
        reason=later.reason or earlier.reason,
        message=later.message or earlier.message,
        host=later.host or earlier.host,
        created=later.created if later.created is not None else earlier.created,
        started=later.started if later.started is not None else earlier.started,
        memory=later.memory if later.memory is not None else earlier.memory,
        ends=_united(later.ends, earlier.ends, key=lambda end: end.name),
        disruptions=_united(
            later.disruptions, earlier.disruptions, key=lambda one: (one.type, one.reason)
        ),
        deleted_at=min(
            (t for t in (old.deleted_at, new.deleted_at) if t is not None), default=None
        ),
        gone=old.gone or new.gone,
    )


def worker_and_index(node: str) -> tuple[str, int]:
    """Take the name of a node of the DAG apart: the worker, and the number of its attempt (0 where there are no retries).

    `sweep-w0(1)`, `sweep-extra(0:1)(2)` (its item 1: worker sweep-w1), `plot`.
    """
    index = 0
    if match := _ATTEMPT.search(node):
        index = int(match[1])
        node = node[: match.start()]
    if match := _EXTRA.fullmatch(node):
        return f"{match['task']}-w{match['item']}", index
    return node, index


def wall_seconds(text: Any) -> float | None:
    """Read a time of the API, such as 2026-11-30T15:55:37Z."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def quantity_bytes(text: Any) -> int | None:
    """Read a quantity of memory as the API writes it: 200Mi, 1G, 128974848, 1e9, and even 100m."""
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        return None
    number, unit, milli, exponent = match.groups()
    scale = Decimal(1)
    if unit:
        power = "kmgtpe".index(unit[0].lower()) + 1
        scale = Decimal(1024 if unit.endswith("i") else 1000) ** power
    elif milli:
        scale = Decimal("0.001")
    elif exponent:
        scale = Decimal(10) ** int(exponent)
    return int(Decimal(number) * scale)


def _rank(fact: PodFact) -> int:
    """How far a pod has come; a phase never goes back."""
    return min(_PHASES.index(fact.phase), 2) if fact.phase in _PHASES else 0


def _united(later: tuple[Any, ...], earlier: tuple[Any, ...], key: Any) -> tuple[Any, ...]:
    """The items of both, each key once and in the order of its text, so that the order of arrival leaves no trace."""
    by_key = {key(item): item for item in (*earlier, *later)}
    return tuple(by_key[name] for name in sorted(by_key))


def _owner(metadata: Mapping[str, Any]) -> str:
    for reference in metadata.get("ownerReferences") or []:
        if reference.get("kind") == "Workflow":
            return str(reference.get("uid", ""))
    return ""


def _deleted_at(metadata: Mapping[str, Any]) -> float | None:
    """deletionTimestamp is when the grace ends, so that much earlier."""
    until = wall_seconds(metadata.get("deletionTimestamp"))
    return None if until is None else until - (metadata.get("deletionGracePeriodSeconds") or 0)


def _waiting(containers: Iterable[Mapping[str, Any]]) -> str:
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            message = waiting.get("message")
            return f"{waiting['reason']}: {message}" if message else str(waiting["reason"])
    return ""


def _unscheduled(conditions: Iterable[Mapping[str, Any]]) -> str:
    for condition in conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == "SchedulingGated":
                return ""  # waits for Kueue, which knows why
            return f"{condition.get('reason')}: {condition.get('message') or ''}"
    return ""


def _main_start(containers: Iterable[Mapping[str, Any]]) -> float | None:
    for container in containers:
        if container.get("name") == MAIN:
            state = container.get("state") or {}
            ran = state.get("running") or state.get("terminated") or {}
            return wall_seconds(ran.get("startedAt"))
    return None


def _memory_limit(spec: Mapping[str, Any]) -> int | None:
    for container in spec.get("containers") or []:
        if container.get("name") == MAIN:
            limits = (container.get("resources") or {}).get("limits") or {}
            return quantity_bytes(limits["memory"]) if "memory" in limits else None
    return None


def _ends(containers: Iterable[Mapping[str, Any]]) -> Iterable[ContainerEnd]:
    """How containers ended, each once; sorted by name like those of a merged fact."""
    for container in sorted(containers, key=lambda one: str(one.get("name"))):
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None:
            yield ContainerEnd(
                name=container.get("name", ""),
                exit_code=int(ended.get("exitCode", 0)),
                reason=ended.get("reason") or "",
                message=ended.get("message") or "",
                at=wall_seconds(ended.get("finishedAt")),
            )


def _disruptions(conditions: Iterable[Mapping[str, Any]]) -> Iterable[Disruption]:
    found = [
        Disruption(
            type=condition["type"],
            reason=condition.get("reason") or "",
            message=condition.get("message") or "",
            at=wall_seconds(condition.get("lastTransitionTime")),
        )
        for condition in conditions
        if condition.get("type") in ("TerminationTarget", "DisruptionTarget")
        and condition.get("status") == "True"
    ]
    return sorted(found, key=lambda one: (one.type, one.reason))
