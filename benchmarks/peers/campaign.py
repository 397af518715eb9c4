"""Many live runs on a cluster, of pods that are only objects: what it costs a service to come up, to be there, and to tell of events."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from peers import objects, programs
from peers.figures import spread
from peers.objects import Json
from peers.programs import Peer

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


RATE = 50.0
STARTED = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "main",
            "image": "image",
            "imageID": "image",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-11-30T12:00:00Z"}},
        }
    ],
}
"""The status of a pod whose program runs."""


async def measure(
    kube: KubeSession, go: Path, *, runs: int, seconds: float, events: int
) -> dict[str, Any]:
    """Have a service follow so many runs, let nothing happen for so long, and then let so many of their pods start.

    `go`: the program that changes pods.
    """
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
                async with programs.started(go, "change", namespace) as source:
                    out = await stream(source, came_up["url"], runs, min(events, runs * len(TASKS)))
                last = await service.ask("mark")
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
        "drift": last["drift"],
        "events": out,
    }


async def stream(source: Peer, url: str, runs: int, count: int) -> dict[str, Any]:
    """Let pods start at a steady rate, and read the stream of all runs: from the change until the run is told with one task more running."""
    _say(f"{count} events at {RATE:g} a second")
    arrived: dict[tuple[str, int], int] = {}
    came = asyncio.Event()
    async with aiohttp.ClientSession() as client, asyncio.TaskGroup() as group:
        reading = group.create_task(read_events(client, url, arrived, came))
        await came.wait()
        body = json.dumps(STARTED, separators=(",", ":"))
        sent = await source.ask(f"go {RATE:g} {count} {runs * len(TASKS)} {body}")
        took, lost = [], []
        for turn, note in enumerate(sent):
            key = (f"run{turn % runs}", turn // runs + 1)
            try:
                async with asyncio.timeout(10):
                    while key not in arrived:
                        came.clear()
                        await came.wait()
            except TimeoutError:
                lost.append(key)
            else:
                took.append((arrived[key] - note["at"]) / 1e6)
        reading.cancel()
    return {
        "count": count,
        "rate_per_s": RATE,
        "out_ms": spread(took),
        "lost": len(lost),
        "request_ms": spread(
            [(note["done"] - note["at"]) / 1e6 for note in sent if "done" in note]
        ),
    }


async def read_events(
    client: aiohttp.ClientSession,
    url: str,
    arrived: dict[tuple[str, int], int],
    came: asyncio.Event,
) -> None:
    """Note when each run was told with how many tasks that run, for the first time."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with client.get(f"{url}/api/v1/events", timeout=timeout, read_bufsize=2**24) as response:
        kind = ""
        async for line in response.content:
            at = time.time_ns()
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            elif line.startswith(b"data: ") and kind == "run":
                run = json.loads(line[6:])
                for number in range(run["tasks"].get("running", 0), 0, -1):
                    if (run["id"], number) in arrived:
                        break
                    arrived[run["id"], number] = at
                came.set()
            elif line.startswith(b"data: "):  # the snapshot
                came.set()


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
