"""Short words for what a backend and the harness say, for table tests of decisions."""

from __future__ import annotations

from typing import Any

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.report import MemoryUse, WorkerReport
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.service.decision import View

MIB, GIB = 2**20, 2**30
NOW = 1_800_000_000.0
FIRST, RETRY = 256 * MIB, GIB
"""Memory of the plans below: of the first attempt, and of the one after a kill."""

SPLIT = TaskPlan(
    pods=3, split=True, memory=FIRST, retry_memory=RETRY, coordinator_merges=True, image="image"
)
LEGACY = SPLIT.model_copy(update={"coordinator_merges": False})
"""A plan from before coordinators merged: its DAG has a node <task>-merge."""
WHOLE = TaskPlan(memory=FIRST, retry_memory=RETRY, image="image")
"""An unsplit task."""


def attempt(n: int = 0, phase: Phase = Phase.RUNNING, **values: Any) -> Attempt:
    """Attempt n starts n seconds after the first one, a minute ago."""
    started = None if phase is Phase.PENDING else NOW - 60 + n
    return Attempt(n=n, phase=phase, pod_uid=f"uid-{n}", **{"started": started, **values})


def running(n: int = 0) -> Attempt:
    return attempt(n)


def waiting(n: int = 0) -> Attempt:
    return attempt(n, Phase.PENDING)


def done(n: int = 0) -> Attempt:
    return attempt(n, Phase.SUCCEEDED, reason="completed", exit_code=0, memory=FIRST)


def crashed(n: int = 0, exit_code: int = 6) -> Attempt:
    return attempt(n, Phase.FAILED, reason="error", exit_code=exit_code, message="main: Error")


def evicted(n: int = 0, exit_code: int | None = None) -> Attempt:
    return attempt(n, Phase.ERROR, reason="evicted", exit_code=exit_code, message="pod deleted")


def killed(n: int = 0, memory: int | None = FIRST, exit_code: int | None = 137) -> Attempt:
    """Ended with the backend's reason OOMKilled."""
    return attempt(
        n, Phase.FAILED, reason="oom", exit_code=exit_code, oom=True, memory=memory, message="OOM"
    )


def node(phase: Phase, *attempts: Attempt, message: str = "") -> Node:
    return Node(phase=phase, attempts=attempts, message=message)


def live(*attempts: Attempt) -> Node:
    return node(Phase.RUNNING, *attempts)


def succeeded(*attempts: Attempt) -> Node:
    return node(Phase.SUCCEEDED, *(attempts or (done(),)))


def failed(*attempts: Attempt) -> Node:
    return node(Phase.FAILED, *(attempts or (crashed(exit_code=3),)))


def status(phase: Phase = Phase.RUNNING, message: str = "", **nodes: Node) -> BackendStatus:
    """Nodes by worker name, with `_` for `-`."""
    by_worker = {name.replace("_", "-"): item for name, item in nodes.items()}
    return BackendStatus(phase=phase, message=message, nodes=by_worker, uid="workflow-uid")


def report(worker: str, n: int = 0, **values: Any) -> WorkerReport:
    kills, limit = values.pop("oom_kills", 0), values.pop("limit", None)
    given: dict[str, Any] = {
        "run": "run1",
        "task": worker.rpartition("-")[0] or worker,
        "worker": worker,
        "attempt": n,
        "exit_code": 0,
        "reason": "completed",
        "started": NOW - 60,
        "ended": NOW,
        "memory": MemoryUse(oom_kills=kills, limit=limit),
    }
    return WorkerReport(**{**given, **values})


def view(
    plans: dict[str, TaskPlan], what: Any = None, *, markers: set[str] | None = None, **values: Any
) -> View:
    """What is known of a running run with these tasks, each of a type of its own; record_* go into the record."""
    changes = {
        name.removeprefix("record_"): values.pop(name)
        for name in list(values)
        if name.startswith("record_")
    }
    reports = values.pop("reports", [])
    record = RunRecord(
        id="run1",
        state=RunState.RUNNING,
        tasks=dict.fromkeys(plans, TaskState.WAITING),
        plans=plans,
        workflow_name="simrun-run1",
        times=RunTimes(created=NOW - 300),
    ).changed(**changes)
    return View(
        record=record,
        workflow=Workflow(tasks={task: Task(type=task) for task in plans}),
        types={task: TaskType(name=task, command=["true"]) for task in plans},
        plans=plans,
        status=what,
        markers=frozenset(markers or set()),
        reports={f"{item.worker}-{item.attempt}": item for item in reports},
        **values,
    )
