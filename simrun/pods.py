"""The pods of a run: which workers a round has, what each of them runs, with what, and after what.

One description for every backend: `simrun.argo.to_argo` renders it as a workflow, the local engine runs it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from simrun.model.mounts import Mounts
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import SecretRef, TaskType


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
    task: str
    type: str
    role: Literal["base", "extra", "merge", "exec"]
    index: int = 0
    """Number of the worker within its task; 0 but for extra workers."""
    image: str | None = None
    harness: Literal["worker", "merge", "exec"] | None = None
    """Which program of the harness runs; None runs `command` bare."""
    command: tuple[str, ...] = ()
    """The bare command, placeholders replaced; empty under the harness, which reads settings.json."""
    working_dir: str | None = None
    """Where a bare command starts: the output directory of its task."""
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretRef] = field(default_factory=dict)
    cpus: float = 1.0
    memory: int = 0
    retry_memory: int | None = None
    scratch: str = ""
    """Directory below the scratch root: <run>/<task>/<worker>, <run>/<task>/merge, <run>/<task>."""
    scratch_limit: int | None = None
    extended: Mapping[str, int] = field(default_factory=dict)
    priority: Literal["base", "extra"] = "base"
    needs: tuple[str, ...] = ()
    """Workers that must have succeeded before this one starts."""
    may_fail: bool = False
    """Extra workers: their failure is no failure of the workflow."""
    timeout_s: float | None = None
    grace_s: float = 30.0
    retry_limit: int = 12
    attempt_base: int = 0
    node_selector: Mapping[str, str] = field(default_factory=dict)


def pods_of(
    record: RunRecord,
    plans: Mapping[str, TaskPlan],
    types: Mapping[str, TaskType],
    config: PodConfig,
) -> list[Pod]:
    """Give the pods of a round of a run, in an order in which every pod stands after those it needs.

    record.workflow must be there. Tasks that are done already (an earlier round) have no pods and nobody waits for them.
    Raises ValueError where a task has no image on a cluster or no command, or stages a port which is no input.
    """
    raise NotImplementedError
