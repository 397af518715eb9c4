"""Many live runs on a cluster, of pods that are only objects: what it costs a service to come up, to be there, and to tell of events."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import objects, programs
from peers.objects import Json

from simrun.aio.threads import Pool
from simrun.argo import workflow_name
from simrun.backends.kubernetes.session import KubeSession
from simrun.backends.scripted import ScriptedBackend
from simrun.base.clock import SystemClock
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service.controller import Controller
from simrun.service.submission import Submitter, create_run, new_record
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore

HERE = Path(__file__).parent
TASKS = [f"t{n}" for n in range(5)]


async def measure(kube: KubeSession, runs: int, seconds: float) -> dict[str, Any]:
    """Have a service follow so many runs, and let nothing happen for so long."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        async with objects.namespace(kube) as namespace:
            names = [f"run{n}" for n in range(runs)]
            _say(f"{runs} runs of {len(TASKS)} pods")
            await asyncio.gather(make_records(store, names), make_objects(kube, namespace, names))
            begun = str(time.time())
            command = (sys.executable, HERE / "service_peer.py", store, namespace, str(runs), begun)
            async with programs.started(*command) as service:
                came_up = await service.answer()
                cold = await service.ask("mark")
                _say(f"nothing for {seconds:g} s")
                await asyncio.sleep(min(20.0, seconds))
                before = await service.ask("mark")
                await asyncio.sleep(seconds)
                after = await service.ask("mark")
    return {
        "runs": runs,
        "pods": runs * len(TASKS),
        "cold_sync_s": round(came_up["synced_s"], 2),
        "all_looked_at_s": round(came_up["looked_s"], 2),
        "cold_cpu_s": round(cold["cpu_s"], 2),
        "rss_mb": round(after["rss_mb"], 1),
        "rss_max_mb": round(after["rss_max_mb"], 1),
        "steady_s": seconds,
        "steady_requests": after["requests"] - before["requests"],
        "steady_looks": after["looks"] - before["looks"],
        "steady_cpu_percent": round((after["cpu_s"] - before["cpu_s"]) / seconds * 100, 2),
        "drift": after["drift"],
    }


def pod_name(run: int, task: int, runs: int) -> str:
    """Name pods so that one after the other are of different runs."""
    return f"bench-{task * runs + run}"


async def make_objects(kube: KubeSession, namespace: str, names: list[str]) -> None:
    """Make the workflows of runs and their pods."""
    workflows = f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows"
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def one(number: int) -> None:
        run = names[number]
        flow = workflow_name(run)
        made = await kube.create(workflows, objects.workflow(flow, run, TASKS))
        owner: Json = {
            "apiVersion": made["apiVersion"],
            "kind": "Workflow",
            "name": flow,
            "uid": made["metadata"]["uid"],
        }
        for index, task in enumerate(TASKS):
            name = pod_name(number, index, len(names))
            await kube.create(pods, objects.pod(name, run, task, workflow=flow, owner=owner))

    await objects.at_once(one, range(len(names)))


async def make_records(root: Path, names: list[str]) -> None:
    """Make a store with the records of runs that were submitted."""
    store, clock, pool = RunStore(root), SystemClock(), Pool("files", 8)
    store.open()
    backend, resources = ScriptedBackend(), ResourceStore(root)
    controller = Controller(store, resources, backend, pool=pool, clock=clock)
    submitter = Submitter(store, resources, backend, pool, clock, write=controller.write)
    kind = TaskType.model_validate({"name": "t", "command": ["true"], "image": "image"})
    what = Submission(
        workflow=Workflow(tasks={task: Task(type="t") for task in TASKS}), types={"t": kind}
    )

    async def one(run: str) -> None:
        await pool.run(create_run, store, new_record(what, run, clock.wall()), what, [])
        await submitter(run)

    await objects.at_once(one, names)
    pool.close()


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
