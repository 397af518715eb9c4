"""The state of a workflow in the backend's words, from Argo's workflow object and the facts of its pods. Pure.

Argo's nodes say which workers there are, which attempts they had and what became of them after retries; pods say what Argo does not
know: why an attempt had to leave, its memory, its times; and they say it first, since Argo writes its verdict seconds later. An attempt is a
child of a Retry node and is numbered from the base that the workflow carries as an annotation, since a later round goes on counting. A
pod that vanished before it started is made again under its number: each is an attempt of its own here, the youngest last.

Where Argo's nodes can't be read (offloaded to its database, a compression unknown here), the pods alone tell what they can. They don't
tell whether a failed attempt will be tried again; so its worker counts as waiting until the workflow itself has ended.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.backends.kubernetes.attempts import (
    ALONE,
    PHASES,
    Surroundings,
    attempt_of,
    attempt_of_pod,
    replaced,
)
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.facts import PodFact, wall_seconds, worker_and_index
from simrun.backends.kubernetes.nodes import NodesUnreadable, nodes_of
from simrun.model import labels

_OF_TASK = re.compile(r"(?P<task>.+)-(?:w[0-9]+|merge)")
_ATTEMPT = re.compile(r"\((\d+)\)$")

ArgoNode = Mapping[str, Any]


def status_of(
    workflow: JsonObject, pods: Iterable[PodFact], around: Surroundings = ALONE
) -> BackendStatus:
    """Give the state of a workflow; `pods`: all that is known of pods of this name, another workflow's too."""
    metadata = workflow["metadata"]
    status = workflow.get("status") or {}
    uid = metadata.get("uid", "")
    phase = _phase(status.get("phase"))
    message = status.get("message") or ""
    bases = _bases(metadata.get("annotations") or {})
    mine = [pod for pod in pods if pod.owner == uid]
    try:
        nodes = _Dag(nodes_of(status), mine, bases, phase, around).nodes()
    except NodesUnreadable as error:
        nodes = _nodes_of_pods(mine, bases, phase, around)
        if phase is Phase.SUCCEEDED:
            nodes |= {
                name: replace(nodes.get(name) or Node(phase=phase), phase=phase)
                for name in _must_have_succeeded(workflow)
            }
        message = (
            f"{message}; {error}; told from its pods" if message else f"{error}; told from its pods"
        )
    return BackendStatus(phase=phase, message=message, nodes=nodes, uid=uid)


def attempt_number(workflow: JsonObject, pod: PodFact) -> int:
    """Give the number of the attempt that a pod of a workflow stands for."""
    bases = _bases(workflow["metadata"].get("annotations") or {})
    return bases.get(_task(pod.worker), 0) + pod.index


class _Dag:
    """Reads the nodes of one workflow."""

    def __init__(
        self,
        nodes: Mapping[str, ArgoNode],
        pods: Sequence[PodFact],
        bases: Mapping[str, int],
        workflow: Phase,
        around: Surroundings,
    ) -> None:
        self._nodes = nodes
        self._workflow = workflow
        self._pods = _in_order(pods, key=lambda pod: pod.node_id)
        self._bases = bases
        self._around = around

    def nodes(self) -> dict[str, Node]:
        """Give the workers by name."""
        children = {
            child
            for node in self._nodes.values()
            if node.get("type") == "Retry"
            for child in node.get("children") or []
        }
        found = {}
        for node_id, node in self._nodes.items():
            if node_id in children or node.get("type") not in ("Retry", "Pod", "Skipped"):
                continue
            worker = _worker(node)
            if not worker.endswith("-extra"):  # the group of extra workers is none itself
                found[worker] = self._node(worker, node_id, node)
        return found

    def _node(self, worker: str, node_id: str, node: ArgoNode) -> Node:
        phase = _phase(node.get("phase"))
        message = node.get("message") or ""
        base = self._bases.get(_task(worker), 0)
        if node.get("type") == "Skipped":
            return Node(phase=phase, message=message)
        if node.get("type") == "Pod":
            attempts = self._tries(base, node_id, node)
        else:
            attempts = self._attempts(base, node)
        phase = _worker_phase(phase, attempts, self._workflow)
        return Node(phase=phase, attempts=tuple(attempts), message=message)

    def _attempts(self, base: int, retry: ArgoNode) -> list[Attempt]:
        """The attempts below a Retry node; hooks are its children too."""
        attempts = {}
        for place, child_id in enumerate(retry.get("children") or []):
            child = self._nodes.get(child_id)
            if child is None or (child.get("nodeFlag") or {}).get("hooked"):
                continue
            match = _ATTEMPT.search(child.get("name") or "")
            index = int(match[1]) if match else place
            attempts[index] = self._tries(base + index, child_id, child)
        return [attempt for index in sorted(attempts) for attempt in attempts[index]]

    def _tries(self, n: int, node_id: str, node: ArgoNode) -> list[Attempt]:
        """The attempt of a node, after what came of earlier pods of its number."""
        phase = _phase(node.get("phase"))
        pods = list(self._pods.get(node_id, ()))
        pod = pods.pop() if pods else None
        if pod is not None and not phase.ended and pod.gone and pod.started is None:
            pods.append(pod)  # Argo makes another
            pod = None
        outputs = node.get("outputs") or {}
        last = attempt_of(
            n,
            phase,
            node.get("message") or "",
            _exit_code(outputs.get("exitCode")),
            pod=pod,
            around=self._around,
            created=wall_seconds(node.get("startedAt")),
            ended=wall_seconds(node.get("finishedAt")),
            host=node.get("hostNodeName") or "",
        )
        return [*(replaced(n, earlier, self._around) for earlier in pods), last]


def _worker_phase(phase: Phase, attempts: Sequence[Attempt], workflow: Phase) -> Phase:
    """The phase of a worker after retries. Argo's word while it lives lags or stays Running; its end is final."""
    last = attempts[-1].phase if attempts else Phase.PENDING
    if phase.ended:
        return Phase.FAILED if phase is Phase.SUCCEEDED and last is Phase.FAILED else phase
    if workflow.ended:
        # A workflow that is stopped leaves its Retry nodes as Running for good
        return last if last.ended else Phase.FAILED
    # A success that Argo hasn't accepted yet is still running; a failure waits for the next attempt
    return Phase.RUNNING if last in (Phase.RUNNING, Phase.SUCCEEDED) else Phase.PENDING


# --- from pods alone -------------------------------------------------------------------------------------------------


def _nodes_of_pods(
    pods: Sequence[PodFact], bases: Mapping[str, int], workflow: Phase, around: Surroundings
) -> dict[str, Node]:
    """What the pods alone tell of the workers."""
    found: dict[str, dict[int, list[Attempt]]] = {}
    for same in _in_order(pods, key=lambda pod: f"{pod.worker}({pod.index})").values():
        *earlier, last = same
        n = bases.get(_task(last.worker), 0) + last.index
        attempts = [replaced(n, pod, around) for pod in earlier]
        found.setdefault(last.worker, {})[n] = [*attempts, attempt_of_pod(n, last, around)]
    nodes = {}
    for worker, by_number in found.items():
        flat = [attempt for n in sorted(by_number) for attempt in by_number[n]]
        succeeded = flat[-1].phase is Phase.SUCCEEDED
        known = Phase.SUCCEEDED if succeeded else Phase.RUNNING
        nodes[worker] = Node(phase=_worker_phase(known, flat, workflow), attempts=tuple(flat))
    return nodes


def _must_have_succeeded(workflow: JsonObject) -> list[str]:
    """Name the workers without which a workflow can't have succeeded: the tasks of its DAG that may not fail."""
    spec = workflow.get("spec") or {}
    for template in spec.get("templates") or []:
        if template.get("name") == spec.get("entrypoint"):
            tasks = (template.get("dag") or {}).get("tasks") or []
            return [task["name"] for task in tasks if not task.get("continueOn")]
    return []


# --- small words -----------------------------------------------------------------------------------------------------


def _in_order(pods: Iterable[PodFact], key: Callable[[PodFact], str]) -> dict[str, list[PodFact]]:
    """The pods of each key: those that are gone before the one that exists, then by age."""
    found: dict[str, list[PodFact]] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.gone, pod.created or 0.0, pod.uid)):
        found.setdefault(key(pod), []).append(pod)
    return found


def _phase(text: Any) -> Phase:
    return PHASES.get(text or "", Phase.PENDING)


def _exit_code(text: Any) -> int | None:
    """Argo writes exit codes as text, and -1 for none."""
    try:
        code = int(text)
    except (TypeError, ValueError):
        return None
    return code if code >= 0 else None


def _worker(node: ArgoNode) -> str:
    for parameter in (node.get("inputs") or {}).get("parameters") or []:
        if parameter.get("name") == "worker" and parameter.get("value"):
            return str(parameter["value"])
    return worker_and_index(node.get("displayName") or node.get("name") or "")[0]


def _task(worker: str) -> str:
    """The task of a worker; no task's own name ends like this."""
    match = _OF_TASK.fullmatch(worker)
    return match["task"] if match else worker


def _bases(annotations: Mapping[str, str]) -> dict[str, int]:
    """The numbers at which the attempts of tasks begin in this round."""
    try:
        bases = json.loads(annotations.get(labels.ATTEMPT_BASE, "{}"))
    except ValueError:
        bases = {}
    return (
        {task: n for task, n in bases.items() if isinstance(n, int)}
        if isinstance(bases, dict)
        else {}
    )
