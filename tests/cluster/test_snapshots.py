"""A run in pods reads a snapshot that was made of a local path, can't write to it, and sees no other."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simrun.base.clock import SystemClock
from simrun.base.ids import new_run_id
from simrun.store.layout import StoreLayout
from simrun.store.runs import RunStore
from simrun.store.snapshots import Making, SnapshotStore
from tests.scenario.campaign import Simrun

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WORKFLOW = """
types:
  read:
    command: |
      ls $SIMRUN_SNAPSHOTS > {outputs.seen}
      cat {inputs.mesh}/fine.vtk >> {outputs.seen}
      touch {inputs.mesh}/new 2>> {outputs.seen} || true
    inputs: [mesh]
    outputs: {seen: seen.txt}
    resources: {memory: 64Mi}
tasks:
  only: {type: read, inputs: {mesh: "snapshot:./mesh"}}
"""


@pytest.fixture
def store(store_dir: Path, pod_uid: int) -> Iterator[Path]:
    made = store_dir / f"snapshots-{uuid.uuid4().hex[:8]}"
    made.mkdir()
    os.chown(made, pod_uid, pod_uid)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_pod_reads_what_its_task_names_and_nothing_else(
    store: Path,
    tmp_path: Path,
    kubeconfig: Path,
    namespace: str,
    worker_image: str,
    pod_uid: int,
) -> None:
    config = {
        "namespace": namespace,
        "local_queue": "sims",
        "image": worker_image,
        "run_as_user": pod_uid,
        "run_as_group": pod_uid,
        "store_path": store.name,
        "snapshots_path": f"{store.name}/snapshots",
        "snapshots_mounted": "named",
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    (tmp_path / "mesh").mkdir(mode=0o700)
    (tmp_path / "mesh" / "fine.vtk").write_text("fine\n")
    (tmp_path / "mesh" / "fine.vtk").chmod(0o600)
    RunStore(store).open()
    snapshots = SnapshotStore(StoreLayout(store))
    (tmp_path / "theirs").write_text("theirs")
    snapshots.create(tmp_path / "theirs", Making("others", 0.0, name="theirs"))
    access = ("--cluster", str(tmp_path / "cluster.yaml"), "--kubeconfig", str(kubeconfig))
    simrun = Simrun(store, ("--backend", "kubernetes", *access))
    run_id = new_run_id(SystemClock().wall())

    outcome = simrun.run(tmp_path / "workflow.yaml", run_id)

    assert outcome.code == 0, outcome.err
    (made,) = snapshots.all({"default"})
    first, second, third = (
        (simrun.task(run_id, "only") / "out" / "seen.txt").read_text().splitlines()
    )
    assert (first, second) == (made.name, "fine")
    assert "Read-only file system" in third
    submission = json.loads((store / "runs" / run_id / "submission.json").read_text())
    assert submission["snapshots"] == {made.name: made.digest}
