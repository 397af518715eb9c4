"""Connections to the API server that die in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrun.backends.kubernetes.facts import wall_seconds
from simrun.model.record import RunState
from tests.cluster.proxy import through_proxy
from tests.cluster.scenarios import GATE, Scene, running, sweep

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

SEEN_WITHIN_S = 75.0
"""Bookmarks come each minute; a connection that is silent for longer is given up."""


async def test_the_end_of_a_run_is_seen_within_75_s_when_all_connections_go_silent(
    scene: Scene, tmp_path: Path
) -> None:
    access = tmp_path / "kubeconfig"
    async with (
        through_proxy(scene.kubeconfig, access) as proxy,
        scene.service(kubeconfig=access) as service,
    ):
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=1)},
        )
        await service.when(run, running("sweep-w0"))
        silent = proxy.freeze()
        scene.open_gate(run, "sweep")
        record = await service.ended(run, 180)
        path = f"/apis/argoproj.io/v1alpha1/namespaces/{scene.config.namespace}/workflows"
        workflow = await service.kube.get(f"{path}/simrun-{run}")

    assert silent >= 2, "the watches of workflows and pods"
    assert record.state is RunState.SUCCEEDED, record.message
    finished = wall_seconds(workflow["status"]["finishedAt"])
    assert record.times.ended is not None
    assert finished is not None
    assert record.times.ended - finished < SEEN_WITHIN_S
