"""A service that is away while something happens, or dies in the middle of it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simrun.model.record import RunState, TaskState
from simrun.worker.protocol import MERGE_MARKER
from tests.cluster.scenarios import GATE, Scene, aside, running, successor, sweep
from tests.scenario.campaign import wait_until

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


async def test_a_service_killed_between_creating_a_workflow_and_recording_it_adopts_it_when_it_is_back(
    scene: Scene, kubectl: Kubectl
) -> None:
    run = scene.new_run()
    where = (str(scene.store), str(scene.cluster_file()), str(scene.kubeconfig), run)
    died = await aside(
        subprocess.run, [sys.executable, "-m", "tests.cluster.dying", *where], timeout=60
    )
    left = scene.record(run)
    uid = kubectl.get("workflow", f"simrun-{run}")["metadata"]["uid"]

    async with scene.service() as service:
        await service.recorded(run, lambda record: record.state is RunState.RUNNING)
        await service.when(run, running("sweep-w0", "sweep-w1"))
        pods = len(await service.pods(run))
        scene.open_gate(run, "sweep")
        record = await service.ended(run)

    assert died.returncode == -signal.SIGKILL
    assert left.state is RunState.SUBMITTING
    assert (record.state, record.workflow_uid) == (RunState.SUCCEEDED, uid)
    assert pods == 2
    assert {one["attempt"] for one in scene.attempts(run, "sweep").values()} == {0}


async def test_runs_whose_workflow_was_deleted_while_the_service_was_down_end_by_what_the_store_says(
    scene: Scene, kubectl: Kubectl
) -> None:
    """One had not ended, of the other only the record was not written yet."""
    types = {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=2)}
    async with scene.service() as service:
        lost = await service.submit({"sweep": {"type": "sweep"}}, types)
        merged = await service.submit({"sweep": {"type": "sweep"}}, types)
        for run in (lost, merged):
            await service.when(run, running("sweep-w0"))
    scene.open_gate(merged, "sweep")
    marker = scene.task(merged, "sweep").out / MERGE_MARKER
    await aside(wait_until, "the merge", marker.exists)
    names = (f"workflow/simrun-{lost}", f"workflow/simrun-{merged}")
    await aside(kubectl, "delete", *names, "--cascade=foreground")

    async with scene.service() as service:
        ends = await asyncio.gather(service.ended(lost), service.ended(merged))
        await asyncio.gather(service.nothing_left(lost), service.nothing_left(merged))

    assert [end.state for end in ends] == [RunState.FAILED, RunState.SUCCEEDED]
    assert ends[0].message == "the workflow is gone, and sweep had not ended"
    assert ends[1].tasks == {"sweep": TaskState.DONE}


async def test_a_run_whose_workflow_is_deleted_while_the_marker_of_its_merge_is_awaited_succeeds_when_it_comes(
    scene: Scene, kubectl: Kubectl
) -> None:
    """The marker is hidden as a cache of a network file system hides a new file: for longer than the coordinator lives."""
    async with scene.service() as service:
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=1)},
        )
        await service.when(run, running("sweep-w0"))
        marker = scene.task(run, "sweep").out / MERGE_MARKER
        with hidden(marker):
            scene.open_gate(run, "sweep")
            await service.recorded(run, lambda record: bool(record.merge_pending))
            gone = ("delete", f"workflow/simrun-{run}", "--cascade=foreground")
            await aside(kubectl, *gone)
            await asyncio.sleep(1)
            waiting = await service.session.record(run)
    async with scene.service() as service:
        record = await service.ended(run)

    assert (waiting.state, set(waiting.merge_pending)) == (RunState.RUNNING, {"sweep"})
    assert (record.state, record.tasks) == (RunState.SUCCEEDED, {"sweep": TaskState.DONE})


async def test_a_pod_that_vanished_while_the_service_was_down_is_told_as_lost_and_replaced(
    scene: Scene, kubectl: Kubectl
) -> None:
    async with scene.service() as service:
        run = await service.submit(
            {"sweep": {"type": "sweep"}},
            {"sweep": sweep(f"{GATE}; echo {{unit.index}} > value", workers=1, units=1)},
        )
        await service.when(run, running("sweep-w0"))
        await service.no_longer_young(run)
        pod = (await service.pod(run, "sweep-w0"))["metadata"]
        seen = scene.attempts(run, "sweep")
    await aside(kubectl, "delete", "pod", pod["name"])

    async with scene.service() as service:
        await service.when(
            run, lambda status: successor(status, "sweep-w0", pod["uid"]) is not None
        )
        scene.open_gate(run, "sweep")
        record = await service.ended(run)

    assert {one["pod_uid"]: one["reason"] for one in seen.values()} == {pod["uid"]: None}
    assert record.state is RunState.SUCCEEDED, record.message
    evidence = {one["pod_uid"]: one["reason"] for one in scene.attempts(run, "sweep").values()}
    assert evidence.pop(pod["uid"]) in ("evicted", "lost")
    assert list(evidence.values()) == ["completed"]
    assert record.evictions == {"sweep-w0": 1}


@contextmanager
def hidden(path: Path) -> Iterator[None]:
    """Take a file away as soon as it is there, and put it back at the end."""
    aside, over = path.parent.parent / "aside", threading.Event()

    def hide() -> None:
        while not over.wait(0.001):
            if path.exists():
                path.rename(aside)
                return

    thread = threading.Thread(target=hide)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        aside.rename(path)
