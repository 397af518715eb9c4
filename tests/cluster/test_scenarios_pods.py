"""Pods that are taken away: by hand, by an eviction, and one that goes on although it is gone for everybody else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simrun.model.record import RunState
from tests.cluster.scenarios import GATE, Scene, aside, running, successor, sweep
from tests.scenario.campaign import harness_pids, wait_until

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


async def test_a_run_outlives_a_coordinator_deleted_by_hand_and_an_extra_worker_evicted_by_a_drain(
    scene: Scene, kubectl: Kubectl
) -> None:
    async with scene.service() as service:
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=2, units=4)},
        )
        await service.when(run, running("sweep-w0", "sweep-w1"))
        await service.no_longer_young(run)
        coordinator = (await service.pod(run, "sweep-w0"))["metadata"]["name"]
        extra = (await service.pod(run, "sweep-w1"))["metadata"]["name"]
        await aside(kubectl, "delete", "pod", coordinator, "--wait=false")
        await aside(evict, kubectl, extra)
        await service.when(run, running("sweep-w0", "sweep-w1", attempt=1))
        scene.open_gate(run, "sweep")
        record = await service.ended(run)

    assert record.state is RunState.SUCCEEDED, record.message
    assert record.evictions == {"sweep-w0": 1, "sweep-w1": 1}
    evidence = scene.attempts(run, "sweep")
    assert evidence["sweep-w0-0"]["reason"] == "evicted"
    assert evidence["sweep-w1-0"]["reason"] == "evicted"
    assert "EvictionByEvictionAPI" in evidence["sweep-w1-0"]["message"]
    assert evidence["sweep-w0-1"]["reason"] == "completed"
    uids = {one["pod_uid"] for one in evidence.values()}
    assert len(uids) == len(evidence)


async def test_a_worker_killed_for_memory_and_evicted_in_its_retry_gets_the_retry_memory_again(
    scene: Scene, kubectl: Kubectl
) -> None:
    """Argo knows only the last exit, so its next attempt has the first memory: that one asks, and counts as no kill."""
    command = f"python3 -c 'len(b\"x\" * (150 << 20))' && {GATE}"
    memory = {"cpu": 0.2, "memory": "96Mi", "retry_memory": "256Mi"}
    async with scene.service() as service:
        run = await service.submit(
            {"hog": {"type": "hog"}},
            {"hog": {"command": command, "harness": True, "resources": memory}},
        )
        await service.when(run, running("hog", attempt=1))
        await service.no_longer_young(run)
        await aside(evict, kubectl, (await service.pod(run, "hog"))["metadata"]["name"])
        await service.recorded(run, lambda record: record.evictions == {"hog": 1})
        await service.when(run, running("hog", attempt=3))
        scene.open_gate(run, "hog")
        record = await service.ended(run)

    assert record.state is RunState.SUCCEEDED, record.message
    assert (record.oom_kills, record.evictions) == ({"hog": [0]}, {"hog": 1})
    evidence = scene.attempts(run, "hog").values()
    assert [(one["reason"], one["memory"] >> 20) for one in evidence] == [
        ("oom", 96),
        ("evicted", 256),
        ("asked", 96),
        ("completed", 256),
    ]


def evict(kubectl: Kubectl, pod: str) -> None:
    """Evict a pod as a drain does."""
    metadata = {"name": pod, "namespace": kubectl.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    kubectl("create", "--raw", path, "--filename=-", text=json.dumps(body))


async def test_a_zombie_whose_pod_is_gone_overwrites_nothing_of_its_successor(
    scene: Scene, kubectl: Kubectl
) -> None:
    """Its node is frozen while its pod is deleted and replaced, and it goes on when its successor has done its unit."""
    command = f"{GATE}; echo $SIMRUN_POD_UID > value; echo $SIMRUN_POD_UID >> $SIMRUN_TASK_DIR/ran"
    async with scene.service() as service:
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(command, workers=1, units=2, grace=60)},
        )
        await service.when(run, running("sweep-w0"))
        await aside(wait_until, "a claim", lambda: bool(claims(scene, run)))
        await service.no_longer_young(run)
        old = (await service.pod(run, "sweep-w0"))["metadata"]
        (harness,) = harness_pids(run, "sweep-w0")
        with frozen(run) as zombie:
            force = ("--force", "--grace-period=0", "--wait=false")
            await aside(kubectl, "delete", "pod", old["name"], *force)
            await service.when(
                run, lambda status: successor(status, "sweep-w0", old["uid"]) is not None
            )
            scene.open_gate(run, "sweep")
            record = await service.ended(run)
            before = written(scene, run)
            signal_all(zombie, signal.SIGCONT)
            await aside(wait_until, "the zombie's end", lambda: has_ended(harness))
            after = written(scene, run)

    assert record.state is RunState.SUCCEEDED, record.message
    evidence = {one["pod_uid"]: one["reason"] for one in scene.attempts(run, "sweep").values()}
    new = next(uid for uid in evidence if uid != old["uid"])
    assert evidence == {old["uid"]: "evicted", new: "completed"}
    assert (scene.task(run, "sweep").root / "ran").read_text().split() == [new, new, old["uid"]]
    assert after == before
    assert {"0", "1"} < set(before)


def claims(scene: Scene, run: str) -> list[Path]:
    return list(scene.task(run, "sweep").claims.glob("*.*"))


def written(scene: Scene, run: str) -> dict[str, bytes]:
    """What the run came to: the records of its units, and its output."""
    task = scene.task(run, "sweep")
    files = [path for place in (task.done, task.out) for path in place.iterdir()]
    return {path.name: path.read_bytes() for path in files if path.is_file()}


@contextmanager
def frozen(run: str) -> Iterator[list[int]]:
    """Stop all processes of the pod of a run, and the runtime's beside it, through which the kubelet would kill them.

    What was stopped of the pod is killed afterwards.
    """
    (executor,) = [pid for pid in processes(run) if "argoexec" in command_line(pid)]
    runtime = parent(executor)
    assert "containerd-shim" in command_line(runtime)
    pids: list[int] = []
    try:
        signal_all([runtime], signal.SIGSTOP)
        # A shell may have started another program between two looks
        while new := [pid for pid in processes(run) if pid not in pids]:
            signal_all(new, signal.SIGSTOP)
            pids += new
        yield pids
    finally:
        signal_all(pids, signal.SIGKILL)
        signal_all([runtime], signal.SIGCONT)


def processes(run: str) -> list[int]:
    """The processes that know the id of a run from their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                entry.name.isdigit()
                and f"SIMRUN_RUN={run}\0".encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(pid: int) -> bool:
    """Whether a process has ended; a parent that is frozen takes no note."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
