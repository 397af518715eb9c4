"""Whole workflows, read as seldom as it does: a workflow of a thousand attempts weighs a megabyte, and Argo writes it at every turn.

What changes from moment to moment is the pods, and their table knows it. The workflow is read again only when the pods leave something open:
an attempt that Argo has not ended stands without a living pod, or a pod without its attempt; and then at most once in two seconds. Where they
leave nothing open, what Argo wrote meanwhile is read at most once in ten: it may be of a task that never got a pod. Its completion is read at once. All
this holds while the watches are alive; else every look is a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simrun.backends.kubernetes import errors
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import PodFact, WorkflowFact
from simrun.backends.kubernetes.nodes import NodesUnreadable, nodes_of
from simrun.backends.kubernetes.session import KubeSession
from simrun.backends.kubernetes.tables import WorkflowTable

READ_S = 2.0
SETTLED_S = 10.0
"""As READ_S, for a workflow of whose open attempts all have a pod that lives."""
_KEPT = frozenset(
    {
        "children",
        "displayName",
        "finishedAt",
        "hostNodeName",
        "id",
        "message",
        "name",
        "nodeFlag",
        "phase",
        "startedAt",
        "type",
    }
)
_OPEN = ("", None, "Pending", "Running")


@dataclass(frozen=True, slots=True)
class _Read:
    """A workflow as it was read at `at`, on the loop's clock; only what is asked of it."""

    workflow: JsonObject
    uid: str
    version: str
    at: float


class WorkflowReader:
    """Reads workflows and remembers them."""

    def __init__(
        self,
        kube: KubeSession,
        path: Callable[[str], str],
        table: WorkflowTable,
        look_again: Callable[[str], None],
        every_s: float = READ_S,
        *,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._kube = kube
        self._path = path
        self._table = table
        self._look_again = look_again
        self._every_s = every_s
        self._settled_s = settled_s
        self._reads: dict[str, _Read] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self.count = 0
        """Requests that were made."""

    async def read(self, name: str, pods: Iterable[PodFact] | None) -> JsonObject | None:
        """Give a workflow, as fresh as its pods and the table leave it open; None when it does not exist.

        pods: of this workflow, None while nobody follows them.
        """
        kept, fact = self._reads.get(name), self._table.get(name)
        if kept is not None and fact is not None and pods is not None and kept.uid == fact.uid:
            if kept.version == fact.version:
                return kept.workflow
            if not fact.completed and (wait := self._wait(kept, pods)) > 0:
                self._wake(fact, wait)
                return kept.workflow
        return await self._fresh(name)

    def moved(self, fact: WorkflowFact, pods: Iterable[PodFact]) -> None:
        """Take that Argo wrote a workflow, and have the run looked at: at once where its pods leave something open, else in a while."""
        kept = self._reads.get(fact.name)
        settled = kept is not None and kept.uid == fact.uid and _decided(kept.workflow, pods)
        if kept is None or not settled:
            self._look_again(fact.run)
        else:
            self._wake(fact, max(0.0, kept.at + self._settled_s - _now()))

    def _wait(self, kept: _Read, pods: Iterable[PodFact]) -> float:
        every = self._settled_s if _decided(kept.workflow, pods) else self._every_s
        return kept.at + every - _now()

    async def _fresh(self, name: str) -> JsonObject | None:
        begun = _now()
        self.count += 1
        try:
            whole = await self._kube.get(self._path(name))
        except errors.NotFound:
            self._reads.pop(name, None)
            return None
        metadata = whole["metadata"]
        workflow = _slim(whole)
        self._reads[name] = _Read(workflow, metadata["uid"], metadata["resourceVersion"], begun)
        return workflow

    def forget_gone(self) -> None:
        """Drop what was read of workflows that do not exist any more."""
        for name in [name for name in self._reads if self._table.get(name) is None]:
            del self._reads[name]

    def close(self) -> None:
        """Set no alarm off any more."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _wake(self, fact: WorkflowFact, wait: float) -> None:
        """Have the run looked at once a read is due."""
        alarm = self._alarms.get(fact.name)
        if alarm is not None:
            if alarm.when() <= _now() + wait:
                return
            alarm.cancel()
        self._alarms[fact.name] = asyncio.get_running_loop().call_later(
            wait, self._ring, fact.name, fact.run
        )

    def _ring(self, name: str, run: str) -> None:
        self._alarms.pop(name, None)
        self._look_again(run)


def _decided(workflow: JsonObject, pods: Iterable[PodFact]) -> bool:
    """Whether the pods say all that there is to know: each attempt that Argo has not ended has one that lives, and no other has."""
    nodes: Mapping[str, Mapping[str, Any]] = workflow["status"].get("nodes") or {}
    uid = workflow["metadata"]["uid"]
    attempts = {
        name
        for name, node in nodes.items()
        if node.get("type") == "Pod" and node.get("phase") in _OPEN
    }
    living = {
        pod.node_id
        for pod in pods
        if pod.owner == uid
        and not pod.gone
        and pod.phase in ("Pending", "Running")
        and pod.main is None
    }
    return bool(living) and attempts == living


def _slim(workflow: JsonObject) -> JsonObject:
    """What `status` and the check of ownership ask of a workflow; all of it where its nodes can't be read."""
    metadata, status = workflow["metadata"], workflow.get("status") or {}
    try:
        nodes = nodes_of(status)
    except NodesUnreadable:
        return {**workflow, "status": status}
    return {
        "metadata": {key: metadata.get(key) for key in ("name", "uid", "annotations", "labels")},
        "status": {
            "phase": status.get("phase"),
            "message": status.get("message"),
            "nodes": {name: _slim_node(node) for name, node in nodes.items()},
        },
    }


def _slim_node(node: Mapping[str, Any]) -> JsonObject:
    kept = {key: value for key, value in node.items() if key in _KEPT}
    worker = [
        one
        for one in (node.get("inputs") or {}).get("parameters") or []
        if one.get("name") == "worker"
    ]
    if worker:
        kept["inputs"] = {"parameters": worker}
    if "exitCode" in (node.get("outputs") or {}):
        kept["outputs"] = {"exitCode": node["outputs"]["exitCode"]}
    return kept


def _now() -> float:
    return asyncio.get_running_loop().time()
