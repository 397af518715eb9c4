"""Campaigns on this machine, through the command, with real kills."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.scenario.campaign import (
    FLOWS,
    Simrun,
    finish,
    harness_pids,
    kill,
    units_done,
    wait_until,
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def simrun(tmp_path_factory: pytest.TempPathFactory) -> Simrun:
    return Simrun(tmp_path_factory.mktemp("store"), ("--cpus", "2"))


@pytest.fixture(scope="module")
def undisturbed(simrun: Simrun) -> bytes:
    """The merged array of a run that nothing happened to."""
    outcome = simrun.run(FLOWS / "tiles.yaml", "calm", "--param", "tile.seconds=0.05")
    assert outcome.code == 0, outcome.err
    return (simrun.task("calm", "tile") / "out" / "map.bin").read_bytes()


def test_a_split_task_is_merged_and_read_by_the_next_task(
    simrun: Simrun, undisturbed: bytes
) -> None:
    size = json.loads((simrun.task("calm", "check") / "out" / "size.json").read_text())

    assert size == {"bytes": len(undisturbed)}
    assert len(undisturbed) == 16 * 64 * 8
    assert simrun.record("calm")["state"] == "succeeded"


@pytest.mark.parametrize("victims", [("tile-w0",), ("tile-w1",), ("tile-w0", "tile-w2", "tile-w3")])
def test_the_array_is_byte_identical_however_workers_die(
    simrun: Simrun, undisturbed: bytes, victims: tuple[str, ...]
) -> None:
    run_id = "killed-" + "-".join(victims)
    process = simrun.start(FLOWS / "tiles.yaml", run_id)
    wait_until("the first units", lambda: units_done(simrun, run_id, "tile") >= 2)
    for victim in victims:
        wait_until(f"{victim} to run", lambda victim=victim: kill(run_id, victim))

    outcome = finish(process)

    assert outcome.code == 0, outcome.err
    assert (simrun.task(run_id, "tile") / "out" / "map.bin").read_bytes() == undisturbed
    lost = {
        item["worker"] for item in simrun.attempts(run_id, "tile") if item.get("exit_code") == 137
    }
    assert set(victims) <= lost
    assert not simrun.record(run_id).get("oom_kills")


def test_a_task_that_is_killed_for_memory_is_retried_with_the_retry_memory_and_succeeds(
    simrun: Simrun,
) -> None:
    outcome = simrun.run(FLOWS / "hog.yaml", "hog")

    assert outcome.code == 0, outcome.err
    assert simrun.record("hog")["oom_kills"] == {"hog-w0": [0]}
    first, second = simrun.attempts("hog", "hog")
    assert (first["reason"], first["memory"]) == ("oom", 128 * 2**20)
    assert (second["reason"], second["memory"]) == ("completed", 400 * 2**20)


def test_a_task_that_is_killed_twice_fails_and_the_message_names_the_retry_memory(
    simrun: Simrun,
) -> None:
    outcome = simrun.run(FLOWS / "hog-twice.yaml", "hog-twice")

    assert outcome.code == 1
    record = simrun.record("hog-twice")
    assert record["state"] == "failed"
    assert record["oom_kills"] == {"hog-w0": [0, 1]}
    assert "with the retry memory of 256 MiB" in record["message"]
    assert len(simrun.attempts("hog-twice", "hog")) == 2


def test_ctrl_c_cancels_the_run_and_leaves_no_worker(simrun: Simrun) -> None:
    process = simrun.start(FLOWS / "tiles.yaml", "interrupted")
    wait_until("the first units", lambda: units_done(simrun, "interrupted", "tile") >= 1)
    process.send_signal(2)

    outcome = finish(process)

    assert outcome.code == 3, outcome.err
    assert simrun.record("interrupted")["state"] == "cancelled"
    assert all(not harness_pids("interrupted", f"tile-w{n}") for n in range(4))


def test_a_second_run_waits_for_the_one_that_holds_the_store_names_it_and_then_runs(
    simrun: Simrun,
) -> None:
    process = simrun.start(FLOWS / "tiles.yaml", "holder")
    wait_until("the first units", lambda: units_done(simrun, "holder", "tile") >= 1)

    held = [pid for n in range(4) for pid in harness_pids("holder", f"tile-w{n}")]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)  # so that it is there for as long as the second needs to come
    second = simrun.start(FLOWS / "tiles.yaml", "second", "--param", "tile.seconds=0.05")
    assert second.stderr is not None
    assert any(f"process {process.pid}" in line for line in second.stderr)
    for pid in held:
        os.kill(pid, signal.SIGCONT)

    first, outcome = finish(process), finish(second)
    assert outcome.code == 0, outcome.err
    assert first.code == 0, first.err
    assert simrun.record("holder")["times"]["ended"] < simrun.record("second")["times"]["created"]
