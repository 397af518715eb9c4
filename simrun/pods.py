"""The pods of a run: which workers a round has, what each of them runs, with what, and after what.

One description for every backend: `simrun.argo.to_argo` renders it as a workflow, the local engine runs it. Pure.

Whether a task runs bare or under the harness is decided here. A split task always runs under the harness. An unsplit
command runs bare, so that any image will do, unless its type asks for what only the harness can give
(`TaskType.under_harness`), or unless its text holds `{{` once its placeholders are replaced: that would meet the template
language of a workflow engine, so the command stays in settings.json and simrun-exec reads it there.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from simrun.model import labels
from simrun.model.inputs import input_refs, open_inputs, task_dir, task_params
from simrun.model.mounts import Mounts
from simrun.model.plan import TaskPlan
from simrun.model.quantities import memory_gb_text
from simrun.model.record import RunRecord, TaskState
from simrun.model.settings import InputRef
from simrun.model.tasktype import SecretRef, TaskType
from simrun.model.workflow import Workflow
from simrun.worker import placeholders, protocol
from simrun.worker.seeds import Seeds

Role = Literal["base", "extra", "merge", "exec"]

TEMPLATE_MARK = "{{"
"""What starts a template of a workflow engine; no text of a user may carry it into a manifest."""

_SEEDS = ("unit.seed", "unit.seed31")


class PodConfig(Protocol):
    """What pods_of needs of a backend's configuration; ClusterConfig and LocalConfig have it."""

    @property
    def image(self) -> str | None:
        """Image of types that name none."""
        ...

    def mounts(self, run: str) -> Mounts:
        """Give the directories of a run's pods."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One worker of a round, the same for all its attempts.

    `env` holds everything but what differs from attempt to attempt (SIMRUN_ATTEMPT, SIMRUN_MEMORY_PER_WORKER_GB,
    SIMRUN_POD_UID, SIMRUN_NODE), which the backend adds. Memory in bytes, times in seconds.
    """

    worker: str
    """Name within the run: <task>-w<index>, <task>-merge, or <task>."""
    task: str
    type: str
    """Name of the task type, under which observations are kept."""
    role: Role
    index: int = 0
    """Number of the worker within its task; 0 but for extra workers."""
    image: str | None = None
    """From the plan, the type, or the configuration, in this order. None: only a backend without images can run it."""
    harness: Literal["worker", "merge", "exec"] | None = None
    """Which program of the harness runs; None runs `command` bare."""
    command: tuple[str, ...] = ()
    """The bare command, placeholders replaced; empty under the harness, which reads settings.json."""
    working_dir: str | None = None
    """Where a bare command starts: the output directory of its task."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The type's own variables first, then those of the harness, which nothing can overlay."""
    secret_env: Mapping[str, SecretRef] = field(default_factory=dict)
    cpus: float = 1.0
    memory: int = 0
    """Of every attempt but the one after a kill for memory."""
    retry_memory: int | None = None
    """Of the attempt after a kill for memory; None: there is no such attempt."""
    scratch: str = ""
    """Directory below the scratch root: <run>/<task>/<worker>, <run>/<task>/merge, <run>/<task>."""
    scratch_limit: int | None = None
    extended: Mapping[str, int] = field(default_factory=dict)
    """Extended resources by name, such as nvidia.com/gpu."""
    priority: Literal["base", "extra"] = "base"
    needs: tuple[str, ...] = ()
    """Workers that must have succeeded before this one starts."""
    may_fail: bool = False
    """Extra workers: their failure is no failure of the workflow."""
    timeout_s: float | None = None
    """Time limit of an attempt, from its start. The harness keeps it itself; of a bare command the backend does."""
    grace_s: float = 30.0
    """Between SIGTERM and SIGKILL."""
    retry_limit: int = 12
    """How many attempts may follow the first."""
    attempt_base: int = 0
    """Added to the number of an attempt in this round."""
    node_selector: Mapping[str, str] = field(default_factory=dict)


def pods_of(
    record: RunRecord,
    plans: Mapping[str, TaskPlan],
    types: Mapping[str, TaskType],
    config: PodConfig,
) -> list[Pod]:
    """Give the pods of a round of a run, in an order in which every pod stands after those it needs.

    record.workflow must be there. Tasks that are done already (an earlier round) have no pods and nobody waits for them.
    Raises ValueError where a task has no command, or stages a port which is no input. That a task has no image is
    refused where images matter, by to_argo: on this machine nothing runs in one.
    """
    workflow = record.workflow
    if workflow is None:
        raise ValueError(f"the record of run {record.id!r} was read without its workflow")
    pods: list[Pod] = []
    for task in task_order(workflow):
        if record.tasks.get(task) == TaskState.DONE:
            continue
        pods += _TaskPods(task, record, workflow, plans=plans, types=types, config=config).pods()
    return pods


def task_order(workflow: Workflow) -> list[str]:
    """Give the tasks so that each stands after those it needs; ValueError where they wait for each other, or for nobody."""
    for name, task in workflow.tasks.items():
        if unknown := [need for need in task.needs if need not in workflow.tasks]:
            raise ValueError(f"task {name!r} waits for {unknown[0]!r}, which is no task")
    graph = {name: task.needs for name, task in workflow.tasks.items()}
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise ValueError(f"tasks wait for each other: {circle}") from error


class _TaskPods:
    """Makes the pods of one task."""

    def __init__(
        self,
        task: str,
        record: RunRecord,
        workflow: Workflow,
        *,
        plans: Mapping[str, TaskPlan],
        types: Mapping[str, TaskType],
        config: PodConfig,
    ) -> None:
        if task not in plans:
            raise ValueError(f"task {task!r} has no plan")
        self.record, self.workflow, self.plans, self.types = record, workflow, plans, types
        self.task, self.plan, self.config = task, plans[task], config
        self.type = types[workflow.tasks[task].type]
        self.refs = input_refs(workflow, types, task)
        self.mounts = config.mounts(record.id)
        directory = task_dir(task)
        self.root, self.out = self._in_run(str(directory.root)), self._in_run(str(directory.out))

    def pods(self) -> Iterator[Pod]:
        """Yield the pods of the task: coordinator, extra workers, merge, or the one of an unsplit task."""
        self._check()
        scratch = f"{self.record.id}/{self.task}"
        if self.type.split is None:
            yield self._unsplit(self._pod(self.task, protocol.ROLE_EXEC, scratch))
            return
        for index in range(max(1, self.plan.pods)):
            worker = protocol.worker_name(self.task, index)
            role: Role = protocol.ROLE_EXTRA if index else protocol.ROLE_BASE
            pod = self._pod(worker, role, f"{scratch}/{worker}")
            yield replace(pod, index=index, harness="worker")
        if not self.plan.coordinator_merges:
            worker = protocol.merge_name(self.task)
            pod = self._pod(worker, protocol.ROLE_MERGE, f"{scratch}/merge")
            yield replace(pod, harness="merge", needs=(protocol.worker_name(self.task, 0),))

    def _check(self) -> None:
        task_type = self.type
        if not task_type.command and task_type.plugin is None:
            raise ValueError(f"task {self.task!r} has no command")
        for port in task_type.stage:
            declared = task_type.inputs.get(port)
            if declared is None or (port not in self.refs and not declared.optional):
                raise ValueError(f"task {self.task!r} stages {port!r}, which is no input of it")
        if task_type.harness is False and task_type.split is None and task_type.stage:
            raise ValueError(
                f"task {self.task!r} stages inputs, which the harness does: leave out `harness: false`"
            )

    def _pod(self, worker: str, role: Role, scratch: str) -> Pod:
        """Give what all pods of the task have in common."""
        task_type, plan = self.type, self.plan
        selector = dict(task_type.node_selector)
        if self.record.reserve_node or self.record.node is not None:
            selector[labels.RESERVED] = self.record.id
        return Pod(
            worker=worker,
            task=self.task,
            type=self.workflow.tasks[self.task].type,
            role=role,
            image=plan.image or task_type.image or self.config.image,
            env={**task_type.env, **self._harness_env(worker, role, scratch)},
            secret_env=task_type.secret_env,
            cpus=plan.cpus,
            memory=plan.memory,
            retry_memory=plan.retry_memory,
            scratch=scratch,
            scratch_limit=task_type.resources.scratch,
            extended=task_type.resources.extended,
            priority="extra" if role == protocol.ROLE_EXTRA else "base",
            needs=self._needs(),
            may_fail=role == protocol.ROLE_EXTRA,
            timeout_s=task_type.timeout,
            grace_s=task_type.grace,
            retry_limit=protocol.retry_limit(self.record.max_evictions),
            attempt_base=self.record.base_of(self.task),
            node_selector=selector,
        )

    def _needs(self) -> tuple[str, ...]:
        """Name the workers whose success means that the tasks this one waits for are done."""
        waits = []
        for task in self.workflow.tasks[self.task].needs:
            if self.record.tasks.get(task) == TaskState.DONE:
                continue
            if self.types[self.workflow.tasks[task].type].split is None:
                waits.append(task)
            elif self.plans[task].coordinator_merges:
                waits.append(protocol.worker_name(task, 0))
            else:
                waits.append(protocol.merge_name(task))
        return tuple(waits)

    def _harness_env(self, worker: str, role: str, scratch: str) -> dict[str, str]:
        task_type, plan, mounts = self.type, self.plan, self.mounts
        env = {
            protocol.ENV_RUN: self.record.id,
            protocol.ENV_TASK: self.task,
            protocol.ENV_WORKER: worker,
            protocol.ENV_ROLE: role,
            protocol.ENV_ATTEMPT_BASE: str(self.record.base_of(self.task)),
            protocol.ENV_TASK_DIR: self.root,
            protocol.ENV_SCRATCH: f"{mounts.scratch}/{scratch}",
            protocol.ENV_SNAPSHOTS: mounts.snapshots,
            protocol.ENV_GRACE_S: _number(task_type.grace),
            protocol.ENV_STALE_S: _number(task_type.grace + protocol.STALE_MARGIN_S),
            protocol.ENV_CPUS: _number(plan.cpus),
        }
        if task_type.split is not None and role == protocol.ROLE_BASE and plan.coordinator_merges:
            env[protocol.ENV_MERGE] = "1"
        if task_type.timeout is not None:
            env[protocol.ENV_TIMEOUT_S] = _number(task_type.timeout)
        if plan.retry_memory is not None:
            env[protocol.ENV_RETRY_MEMORY_GB] = memory_gb_text(plan.retry_memory)
        return env

    def _unsplit(self, pod: Pod) -> Pod:
        """Decide between harness and bare command, and prepare the latter."""
        task_type = self.type
        if task_type.under_harness or task_type.command is None:
            return replace(pod, harness="exec")
        try:
            command = placeholders.substitute(task_type.command, self._values(pod))
        except ValueError as error:
            raise ValueError(f"task {self.task!r}: {error}") from error
        if any(TEMPLATE_MARK in item for item in command):
            if task_type.harness is False:
                raise ValueError(
                    f"task {self.task!r}: a bare command must not contain {TEMPLATE_MARK!r};"
                    " leave out `harness: false` to run it under simrun-exec"
                )
            return replace(pod, harness="exec")
        return replace(pod, command=tuple(command), working_dir=self.out)

    def _values(self, pod: Pod) -> dict[str, Any]:
        """Give the values of the placeholders of a bare command, paths as its pod sees them."""
        task_type = self.type
        params = task_params(task_type, self.workflow.tasks[self.task])
        unconnected = open_inputs(self.workflow, self.types, self.task)
        return {
            **{f"params.{name}": value for name, value in params.items()},
            **dict.fromkeys((f"inputs.{port}" for port in unconnected), ""),
            **{f"inputs.{port}": self._input_path(ref) for port, ref in self.refs.items()},
            **{f"outputs.{port}": f"{self.out}/{path}" for port, path in task_type.outputs.items()},
            "out": self.out,
            "scratch": pod.env[protocol.ENV_SCRATCH],
            "unit.index": 0,
            "unit.key": self.task,
            **self._seeds(),
        }

    def _seeds(self) -> dict[str, int]:
        """Give the seeds where the command names one: they cost more than all the rest of a pod."""
        if not set(_SEEDS).intersection(placeholders.names(self.type.command or ())):
            return {}
        return dict(zip(_SEEDS, Seeds(0, self.task).at(0), strict=True))

    def _input_path(self, ref: InputRef) -> str:
        if ref.snapshot is not None:
            return f"{self.mounts.snapshots}/{ref.snapshot}"
        return self._in_run(ref.run or "")

    def _in_run(self, path: str) -> str:
        return f"{self.mounts.run}/{path}"


def _number(value: float) -> str:
    """Give a number as decimal text without an exponent: 30.0 as 30, 0.25 as 0.25."""
    return f"{value:.12g}"
