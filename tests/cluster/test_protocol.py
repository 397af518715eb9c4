"""Kubernetes against the expectations that every backend has to meet (tests/backends/protocol.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simrun.backends.kubernetes.backend import open_backend
from simrun.base.clock import SystemClock
from simrun.base.ids import new_run_id
from simrun.model.cluster import ClusterConfig
from simrun.model.tasktype import TaskType
from simrun.store.layout import StoreLayout
from tests.backends.protocol import *  # noqa: F403 - the tests
from tests.backends.protocol import Place

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WAIT = "until [ -e go ]; do sleep 0.1; done"


@pytest.fixture
async def place(
    kubeconfig: Path, namespace: str, store_dir: Path, worker_image: str, pod_uid: int
) -> AsyncIterator[Place]:
    config = ClusterConfig(
        namespace=namespace,
        local_queue="sims",
        image=worker_image,
        run_as_user=pod_uid,
        run_as_group=pod_uid,
        snapshots={"persistentVolumeClaim": {"claimName": "simrun-snapshots", "readOnly": True}},
        snapshots_path="",
    )
    small = {"cpu": 0.1, "memory": "64Mi"}
    types = {
        "wait": TaskType.model_validate({"command": WAIT, "resources": small, "grace": 2}),
        "after": TaskType.model_validate({"command": ["true"], "resources": small, "grace": 2}),
    }
    run_id = new_run_id(SystemClock().wall())

    async def let_go(run: str, _name: str) -> None:
        (StoreLayout(store_dir).run(run).task("wait").out / "go").touch()

    async with open_backend(config, kubeconfig) as backend:
        made = Place(backend, store_dir, types, let_go, run_id, (pod_uid, pod_uid), 60.0)
        yield made
        await backend.delete(f"simrun-{run_id}")
