"""A service that is killed with SIGKILL when the workflow of its run was created and nobody has written that down yet.

python -m tests.cluster.dying STORE CLUSTER_FILE KUBECONFIG RUN
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from simrun.aio.threads import Pool
from simrun.backends.base import Backend
from simrun.backends.kubernetes.backend import open_backend
from simrun.model.cluster import ClusterConfig
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType
from simrun.service.opening import open_session
from simrun.store.runs import RunStore
from tests.cluster.scenarios import GATE, submission, sweep


class DyingBackend:
    """A backend whose process is killed when the API server has answered that the workflow exists."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def submit(
        self, record: RunRecord, plans: Mapping[str, TaskPlan], types: Mapping[str, TaskType]
    ) -> str:
        await self._backend.submit(record, plans, types)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


async def submit_and_die(store: Path, config: ClusterConfig, kubeconfig: Path, run: str) -> None:
    """Submit a run of one task with two workers."""

    @asynccontextmanager
    async def backend(_store: RunStore, _pool: Pool) -> AsyncIterator[Backend]:
        async with open_backend(config, kubeconfig) as opened:
            yield DyingBackend(opened)

    assert config.run_as_user is not None
    assert config.run_as_group is not None
    owner = config.run_as_user, config.run_as_group
    async with open_session(store, backend, command="run", owner=owner) as session:
        kind = sweep(f"{GATE}; echo {{unit.index}} > value", workers=2, units=4)
        await session.submit(submission({"sweep": {"type": "sweep"}}, {"sweep": kind}), [], run)
        await asyncio.sleep(60)


if __name__ == "__main__":
    directory, cluster_file, access, run_id = sys.argv[1:]
    read = ClusterConfig.model_validate(yaml.safe_load(Path(cluster_file).read_text()))
    asyncio.run(submit_and_die(Path(directory), read, Path(access), run_id))
