"""A backend in memory whose pods do what a test says: the shipped fake.

tests/backends/test_protocol.py holds it to the same expectations as the local engine and Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from simrun.argo import workflow_name
from simrun.backends.base import Attempt, BackendStatus, Node, Phase, QueueState, Quota
from simrun.base.errors import BackendUnavailable, Conflict
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType


@dataclass(slots=True)
class ScriptedWorkflow:
    """A workflow of the scripted backend; a test changes it through the backend."""

    run: str
    fingerprint: str
    phase: Phase = Phase.RUNNING
    nodes: dict[str, Node] = field(default_factory=dict)
    stopped: bool = False
    message: str = ""


class ScriptedBackend:
    """Runs nothing. `calls` lists what was asked of it, in order; `fail_next` makes calls of a name fail."""

    def __init__(self) -> None:
        self.workflows: dict[str, ScriptedWorkflow] = {}
        self.calls: list[tuple[str, str]] = []
        self.output: dict[tuple[str, str, int], bytes] = {}
        self.reserved: dict[str, str] = {}
        self.failing: dict[str, int] = {}
        self._listeners: set[asyncio.Queue[str]] = set()

    async def __aenter__(self) -> ScriptedBackend:
        """Needs no start."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Needs no stop."""

    # --- what tests say --------------------------------------------------------------------------------------------------

    def attempt(self, name: str, worker: str, attempt: Attempt, node: Phase | None = None) -> None:
        """Let an attempt be in a state; `node` is the phase of its worker, by default the attempt's."""
        workflow = self.workflows[name]
        old = workflow.nodes.get(worker, Node(phase=Phase.PENDING))
        attempts = {seen.n: seen for seen in old.attempts} | {attempt.n: attempt}
        workflow.nodes[worker] = replace(
            old,
            phase=node or attempt.phase,
            attempts=tuple(attempts[n] for n in sorted(attempts)),
        )
        self._tell(workflow.run)

    def succeed(self, name: str, worker: str, n: int = 0) -> None:
        """Let a worker succeed at once."""
        done = Attempt(
            n=n, phase=Phase.SUCCEEDED, reason="completed", exit_code=0, pod_uid=f"uid-{worker}-{n}"
        )
        self.attempt(name, worker, done)

    def end(self, name: str, phase: Phase, message: str = "") -> None:
        """Let a workflow end."""
        workflow = self.workflows[name]
        workflow.phase, workflow.message = phase, message
        self._tell(workflow.run)

    def forget(self, name: str) -> None:
        """Let a workflow vanish, as its time to live would."""
        self._tell(self.workflows.pop(name).run)

    def fail_next(self, call: str, times: int = 1) -> None:
        """Let the next calls of a method raise BackendUnavailable."""
        self.failing[call] = times

    # --- the protocol ----------------------------------------------------------------------------------------------------

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        """Take a workflow in."""
        del plans, types
        name = record.workflow_name or workflow_name(record.id)
        self._called("submit", name)
        there = self.workflows.get(name)
        if there is None:
            self.workflows[name] = ScriptedWorkflow(run=record.id, fingerprint=record.fingerprint)
            self._tell(record.id)
        elif (there.run, there.fingerprint) != (record.id, record.fingerprint):
            raise Conflict(
                f"workflow {name} is another run's: {there.run} ({there.fingerprint[:12]})"
            )
        return name

    async def status(self, name: str) -> BackendStatus | None:
        """Give what the script says."""
        self._called("status", name)
        workflow = self.workflows.get(name)
        if workflow is None:
            return None
        return BackendStatus(
            phase=workflow.phase,
            message=workflow.message,
            nodes=dict(workflow.nodes),
            uid=f"uid-{name}",
        )

    async def stop(self, name: str, *, now: bool = False) -> None:
        """End every pod with 143, as a stopped workflow does."""
        del now
        self._called("stop", name)
        workflow = self.workflows.get(name)
        if workflow is None or workflow.phase.ended:
            return
        workflow.stopped = True
        workflow.phase = Phase.FAILED
        for worker, node in workflow.nodes.items():
            if node.phase.ended:
                continue
            ended = tuple(
                seen
                if seen.phase.ended
                else replace(seen, phase=Phase.FAILED, reason="cancelled", exit_code=143)
                for seen in node.attempts
            )
            workflow.nodes[worker] = replace(node, phase=Phase.FAILED, attempts=ended)
        self._tell(workflow.run)

    async def delete(self, name: str) -> None:
        """Forget a workflow."""
        self._called("delete", name)
        self.workflows.pop(name, None)

    async def reserve(self, run: str) -> str:
        """Give the one node."""
        self._called("reserve", run)
        holder = self.reserved.setdefault("node0", run)
        if holder != run:
            raise BackendUnavailable(f"node0 is reserved for run {holder}")
        return "node0"

    async def release(self, node: str | None, run: str) -> None:
        """Give the node back if it is this run's."""
        self._called("release", node or "whatever it has")
        for name in [node] if node is not None else list(self.reserved):
            if self.reserved.get(name) == run:
                del self.reserved[name]

    async def queues(self) -> list[QueueState]:
        """Give one queue without a limit."""
        self._called("queues", "")
        running = sum(
            bool(node.attempts) and not node.attempts[-1].phase.ended
            for workflow in self.workflows.values()
            for node in workflow.nodes.values()
        )
        used = Quota(given=None, used=float(running))
        return [QueueState(name="scripted", active=True, admitted=running, resources={"cpu": used})]

    async def logs(self, name: str, worker: str, attempt: int) -> AsyncIterator[bytes]:
        """Give what a test put into `output`."""
        self._called("logs", name)
        if text := self.output.get((name, worker, attempt)):
            yield text

    async def events(self) -> AsyncIterator[str]:
        """Yield ids of runs of which something changed."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    def _tell(self, run: str) -> None:
        for queue in self._listeners:
            queue.put_nowait(run)

    def _called(self, call: str, about: str) -> None:
        self.calls.append((call, about))
        if self.failing.get(call, 0) > 0:
            self.failing[call] -= 1
            raise BackendUnavailable(f"{call} fails, as the script says")
