"""Campaigns on a real cluster: the same files as on this machine, through the command, with real kills."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simrun.base.clock import SystemClock
from simrun.base.ids import new_run_id
from tests.scenario.campaign import (
    EXAMPLE,
    FLOWS,
    Simrun,
    finish,
    kill,
    units_done,
    wait_until,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

SMALL = tuple(
    part
    for text in ("rows=24", "columns=32", "rows_per_tile=2", "years=1000")
    for part in ("--param", f"map.{text}")
)


@pytest.fixture(scope="module")
def store(store_dir: Path, pod_uid: int) -> Iterator[Path]:
    """A store of its own: what earlier runs used, and where they were killed, is no part of these plans."""
    made = store_dir / f"campaign-{uuid.uuid4().hex[:8]}"
    made.mkdir()
    os.chown(made, pod_uid, pod_uid)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster_file(
    tmp_path_factory: pytest.TempPathFactory,
    namespace: str,
    worker_image: str,
    pod_uid: int,
    store: Path,
) -> Path:
    config = {
        "namespace": namespace,
        "local_queue": "sims",
        "image": worker_image,
        "run_as_user": pod_uid,
        "run_as_group": pod_uid,
        "store_path": store.name,
        "store": {"persistentVolumeClaim": {"claimName": "simrun-store"}},
        "snapshots": {"persistentVolumeClaim": {"claimName": "simrun-snapshots", "readOnly": True}},
        "snapshots_path": "",
    }
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def simrun(cluster_file: Path, kubeconfig: Path, store: Path) -> Simrun:
    access = ("--cluster", str(cluster_file), "--kubeconfig", str(kubeconfig))
    return Simrun(store, ("--backend", "kubernetes", *access))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Simrun:
    return Simrun(tmp_path_factory.mktemp("store"), ("--cpus", "2"))


@pytest.fixture
def run_id() -> str:
    """An id of its own for each test and process, since the store outlives them."""
    return new_run_id(SystemClock().wall())


def test_the_main_job_gives_the_array_of_this_machine_byte_for_byte_though_a_worker_is_killed(
    simrun: Simrun, local: Simrun, run_id: str
) -> None:
    """One coordinator and three extra workers; image and machine have the same wheels and the same C library (Debian 12)."""
    process = simrun.start(EXAMPLE, run_id, *SMALL)
    here = local.run(EXAMPLE, "here", *SMALL)
    assert here.code == 0, here.err
    wait_until("the first units", lambda: units_done(simrun, run_id, "map") >= 1)
    wait_until("worker 1 to be killed", lambda: kill(run_id, "map-w1"))

    outcome = finish(process, 360)

    assert outcome.code == 0, outcome.err
    expected = (local.task("here", "map") / "out" / "map.npy").read_bytes()
    assert (simrun.task(run_id, "map") / "out" / "map.npy").read_bytes() == expected
    assert (simrun.task(run_id, "map") / "out" / "map.png").stat().st_size > 10_000
    assert simrun.record(run_id)["plans"]["map"]["pods"] == 4


@pytest.mark.parametrize("victim", ["tile-w0", "tile-w2"])
def test_the_array_is_byte_identical_however_workers_die(
    simrun: Simrun, local: Simrun, run_id: str, victim: str
) -> None:
    process = simrun.start(FLOWS / "tiles.yaml", run_id, "--param", "tile.seconds=1.0")
    calm = local.run(FLOWS / "tiles.yaml", f"calm-{victim}", "--param", "tile.seconds=0.02")
    assert calm.code == 0, calm.err
    wait_until("the first units", lambda: units_done(simrun, run_id, "tile") >= 1)
    wait_until(f"{victim} to be killed", lambda: kill(run_id, victim))

    outcome = finish(process)

    assert outcome.code == 0, outcome.err
    expected = (local.task(f"calm-{victim}", "tile") / "out" / "map.bin").read_bytes()
    assert (simrun.task(run_id, "tile") / "out" / "map.bin").read_bytes() == expected
    killed = [item for item in simrun.attempts(run_id, "tile") if item.get("exit_code") == 137]
    assert [item["worker"] for item in killed] == [victim]
    assert not simrun.record(run_id).get("oom_kills"), "a kill -9 is no kill for memory"


def test_a_task_that_the_kernel_kills_for_memory_is_retried_with_the_retry_memory_and_succeeds(
    simrun: Simrun, run_id: str
) -> None:
    outcome = simrun.run(FLOWS / "hog.yaml", run_id)

    assert outcome.code == 0, outcome.err
    assert simrun.record(run_id)["oom_kills"] == {"hog-w0": [0]}
    first, *asked, last = simrun.attempts(run_id, "hog")
    assert (first["reason"], first["memory"]) == ("oom", 128 * 2**20)
    assert (last["reason"], last["memory"]) == ("completed", 400 * 2**20)
    # A pod that is made again under its number comes with the first memory, and only asks for more
    assert all(item["reason"] == "asked" for item in asked)


def test_a_task_that_is_killed_twice_fails_and_the_message_names_the_retry_memory(
    simrun: Simrun, run_id: str
) -> None:
    outcome = simrun.run(FLOWS / "hog-twice.yaml", run_id)

    assert outcome.code == 1
    record = simrun.record(run_id)
    assert record["state"] == "failed"
    assert record["oom_kills"] == {"hog-w0": [0, 1]}
    assert "with the retry memory of" in record["message"]


def test_ctrl_c_cancels_the_run_and_its_pods_go(
    simrun: Simrun,
    run_id: str,
    kubectl,  # type: ignore[no-untyped-def]
) -> None:
    process = simrun.start(FLOWS / "tiles.yaml", run_id, "--param", "tile.seconds=1.0")
    wait_until("the first units", lambda: units_done(simrun, run_id, "tile") >= 1)
    process.send_signal(2)

    outcome = finish(process)

    assert outcome.code == 3, outcome.err
    assert simrun.record(run_id)["state"] == "cancelled"
    kubectl.wait(f"workflow/simrun-{run_id}", "jsonpath={.status.phase}=Failed", 60)
