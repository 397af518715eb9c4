"""What an attempt of a pod is told to run, with which environment, where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from simrun.backends.local.config import LocalConfig, harness_command
from simrun.backends.local.dag import Try, Workflow
from simrun.backends.local.records import AttemptFiles, Order
from simrun.backends.local.state import EngineState
from simrun.model.quantities import memory_gb_text
from simrun.pods import Pod
from simrun.worker import protocol
from simrun.worker.protocol import TaskDir, attempt_name

PASSED_ON = ("PATH", "HOME", "LANG")
"""What an attempt gets of simrun's own environment; the rest is its type's business."""

_HARNESS_MARGIN_S = 60.0
"""The harness keeps the time limit itself and ends with a report; this much later it is ended from outside."""


class StartRefused(Exception):  # noqa: N818 - reads as what it is
    """Raised when an attempt cannot even be ordered; the text says what is missing and where to put it."""


class Orders:
    """Makes orders for one machine."""

    def __init__(
        self, config: LocalConfig, state: EngineState, environ: Mapping[str, str], *, host: str
    ) -> None:
        self._config, self._state, self._environ = config, state, environ
        self._host = host
        self.cgroup: Path | None = None
        """Where attempts may have cgroups of their own; found when the engine is opened."""

    def place(self, workflow: str, worker: str, index: int) -> AttemptFiles:
        """Give the files of an attempt in the engine's state."""
        return AttemptFiles(self._state.directory(workflow), attempt_name(worker, index))

    def log(self, run: str, pod: Pod, index: int) -> Path:
        """Give the log of an attempt in the run store; the harness of a pod that has one writes the same file."""
        task = TaskDir(Path(self._config.mounts(run).run) / "tasks" / pod.task)
        return task.logs / f"{attempt_name(pod.worker, pod.attempt_base + index)}.log"

    def scratch(self, run: str, pod: Pod) -> str:
        """Give the scratch directory of a worker: the one its environment names, where that says one."""
        own = (
            f"{self._config.mounts(run).scratch}/{pod.scratch or f'{run}/{pod.task}/{pod.worker}'}"
        )
        return pod.env.get(protocol.ENV_SCRATCH, own)

    def make(self, workflow: Workflow, pod: Pod, attempt: Try) -> Order:
        """Give the order for an attempt. Raises StartRefused."""
        scratch = self.scratch(workflow.run, pod)
        bare = pod.harness is None
        return Order(
            directory=str(self._state.directory(workflow.name)),
            attempt=attempt_name(pod.worker, attempt.index),
            uid=attempt.uid,
            command=list(pod.command) if pod.harness is None else harness_command(pod.harness),
            env=self._environment(pod, attempt, scratch),
            cwd=pod.working_dir or scratch,
            scratch=scratch,
            scratch_root=str(self._config.scratch),
            log=str(self.log(workflow.run, pod, attempt.index)) if bare else None,
            memory=attempt.memory,
            cgroup=None if self.cgroup is None else str(self.cgroup),
            deadline_s=_deadline(pod),
            grace_s=pod.grace_s,
            presence=str(self._state.presence),
            orphan_s=self._config.orphan_s,
        )

    def _environment(self, pod: Pod, attempt: Try, scratch: str) -> dict[str, str]:
        env = {name: self._environ[name] for name in PASSED_ON if name in self._environ}
        env["TMPDIR"] = scratch
        env[protocol.ENV_ATTEMPT_BASE] = str(pod.attempt_base)
        env |= pod.env
        env |= {name: self._secret(name, pod) for name in pod.secret_env}
        env[protocol.ENV_ATTEMPT] = str(attempt.index)
        env[protocol.ENV_POD_UID] = attempt.uid
        env[protocol.ENV_NODE] = self._host
        if attempt.memory:
            env[protocol.ENV_MEMORY_GB] = memory_gb_text(attempt.memory)
        return env

    def _secret(self, name: str, pod: Pod) -> str:
        key = pod.secret_env[name].key
        if key not in self._environ:
            raise StartRefused(
                f"secret_env.{name} of type {pod.type!r}: simrun's own environment has no variable {key!r}, "
                "which stands for the secret on this machine; set it and start simrun again"
            )
        return self._environ[key]


def _deadline(pod: Pod) -> float | None:
    if pod.timeout_s is None or pod.harness is None:
        return pod.timeout_s
    return pod.timeout_s + pod.grace_s + _HARNESS_MARGIN_S
