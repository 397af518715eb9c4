"""What the backend tells an attempt: the variables of its pod.

NamedTuples and plain checks, since the harness must be up in a few hundredths of a second and has the standard library only.
Variables that it does not know are ignored, so that an older harness works under a newer service. A wrong one is a
BadSettingsError that names it, its value, and what it must be.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from simrun.worker import protocol
from simrun.worker.endings import BadSettingsError
from simrun.worker.protocol import GIB, TaskDir


class Environment(NamedTuple):
    """The environment of an attempt. Memory in bytes, times in seconds."""

    run: str
    task: str
    worker: str
    attempt: int
    """Base of the round included."""
    attempt_base: int
    role: str
    merge: bool
    task_dir: TaskDir
    scratch: Path | None
    snapshots: Path | None
    stale_s: float
    grace_s: float
    timeout_s: float | None
    memory: int | None
    retry_memory: int | None
    cpus: float | None
    pod_uid: str
    """Made up when the pod was told none: two pods must never share the name under which they hold claims."""
    node: str

    @property
    def holder(self) -> str:
        """The name under which this pod holds claims and beats."""
        return protocol.holder_name(self.worker, self.attempt, self.pod_uid)

    @property
    def attempt_name(self) -> str:
        """The stem of the files about this attempt."""
        return protocol.attempt_name(self.worker, self.attempt)


def read(variables: Mapping[str, str], program: str) -> Environment:
    """Read the environment. `program` is worker, merge or exec; only a worker is told its role by a variable."""
    told = _Variables(variables)
    grace = told.number(protocol.ENV_GRACE_S, protocol.DEFAULT_GRACE_S)
    base = told.whole(protocol.ENV_ATTEMPT_BASE, 0)
    scratch, snapshots = variables.get(protocol.ENV_SCRATCH), variables.get(protocol.ENV_SNAPSHOTS)
    return Environment(
        run=told.required(protocol.ENV_RUN),
        task=told.required(protocol.ENV_TASK),
        worker=told.required(protocol.ENV_WORKER),
        attempt=told.whole(protocol.ENV_ATTEMPT, None) + base,
        attempt_base=base,
        role=told.role() if program == "worker" else program,
        merge=variables.get(protocol.ENV_MERGE, "0") == "1",
        task_dir=TaskDir(told.directory(protocol.ENV_TASK_DIR)),
        scratch=Path(scratch) if scratch else None,
        snapshots=Path(snapshots) if snapshots else None,
        stale_s=told.number(protocol.ENV_STALE_S, grace + protocol.STALE_MARGIN_S),
        grace_s=grace,
        timeout_s=told.optional_number(protocol.ENV_TIMEOUT_S),
        memory=_bytes(told.optional_number(protocol.ENV_MEMORY_GB)),
        retry_memory=_bytes(told.optional_number(protocol.ENV_RETRY_MEMORY_GB)),
        cpus=told.optional_number(protocol.ENV_CPUS),
        pod_uid=variables.get(protocol.ENV_POD_UID) or os.urandom(16).hex(),
        node=variables.get(protocol.ENV_NODE, ""),
    )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)


class _Variables:
    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def required(self, name: str) -> str:
        text = self._variables.get(name)
        if not text:
            raise BadSettingsError(
                f"{name} is not set; the backend that starts the harness sets it"
            )
        return text

    def directory(self, name: str) -> Path:
        path = Path(self.required(name))
        if not path.is_absolute():
            raise BadSettingsError(f"{name} is {str(path)!r}; it must be an absolute path")
        return path

    def whole(self, name: str, default: int | None) -> int:
        text = self._variables.get(name)
        if not text and default is not None:
            return default
        text = self.required(name)
        if not (text.isascii() and text.isdigit()):
            raise BadSettingsError(f"{name} is {text[:80]!r}; it must be a whole number from 0")
        return int(text)

    def optional_number(self, name: str) -> float | None:
        text = self._variables.get(name)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise BadSettingsError(f"{name} is {text[:80]!r}; it must be a number above 0")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.optional_number(name)
        return default if value is None else value

    def role(self) -> str:
        role = self._variables.get(protocol.ENV_ROLE) or protocol.ROLE_BASE
        if role not in (protocol.ROLE_BASE, protocol.ROLE_EXTRA):
            raise BadSettingsError(
                f"{protocol.ENV_ROLE} is {role[:80]!r}; simrun-worker takes base or extra"
            )
        return role
