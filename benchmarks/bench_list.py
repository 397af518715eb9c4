"""Pages of a long list while runs change: how many a second, how late; prints JSON.

    python benchmarks/bench_list.py [RUNS]

A process serves a store with so many ended runs, and 50 live ones of which 100 events a second are reconciled, each to a durable record. A
second process asks for pages of 50 over connections that it keeps: first at a fixed rate, where a page is late by the time from when it
was due, then as many as go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from processes import go_on, heard, line, say, started

from simrun.aio.lag import LagProbe
from simrun.backends.base import Attempt, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.model.record import RunRecord, RunState, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session
from simrun.store import codec
from simrun.store.runs import RunStore

RATE = 300
EVENTS = 100
LIVE = 50
TASKS = 60
SECONDS = 10.0
CONNECTIONS = 16
PAGE = "/api/v1/runs?limit=50"
FILTERED = {
    "state": f"{PAGE}&state=failed",
    "two states of a group": f"{PAGE}&group=g7&state=failed,cancelled",
    "label": f"{PAGE}&label=env=prod",
    "name and time": f"{PAGE}&name=nightly&created_after=1000050000",
}
ANSWERS_WITHIN_S = 600
LIMITS = {"pages_per_s": 300.0, "p99_ms": 150.0}


# --- the process that serves -------------------------------------------------------------------------------------------


def fill(root: Path, count: int) -> None:
    """Write the records of ended runs."""
    store = RunStore(root)
    store.open()
    tasks = dict.fromkeys((f"t{number}" for number in range(10)), "done")
    for number in range(count):
        record = RunRecord.model_validate(
            {
                "id": f"r{number:08}",
                "group": f"g{number % 20}",
                "name": ("nightly", "sweep", "test")[number % 3],
                "labels": {"env": "prod" if number % 4 else "dev", "part": str(number % 100)},
                "state": RunState.FAILED if number % 50 == 0 else RunState.SUCCEEDED,
                "tasks": tasks,
                "times": RunTimes(created=1e9 + number, ended=1e9 + number + 60),
                "workflow_name": f"simrun-r{number:08}",
            }
        )
        directory = store.layout.run(record.id).root
        directory.mkdir()
        (directory / "run.json").write_bytes(codec.encode(record))


def flow() -> Submission:
    """Make a campaign of bare commands that do not wait for each other."""
    kind = TaskType.model_validate({"name": "t", "command": ["true"], "image": "image"})
    tasks = {f"t{number}": Task(type="t") for number in range(TASKS)}
    return Submission(workflow=Workflow(tasks=tasks), types={"t": kind})


async def serve(root: Path, count: int) -> None:
    """Serve; after a line of stdin let events come until the next one."""
    fill(root / "store", count)
    backend = ScriptedBackend()
    async with open_session(
        root / "store", lambda _store, _pool: backend, command="serve", index=root / "index.sqlite"
    ) as session:
        for task in asyncio.all_tasks():
            if task.get_name() == "housekeeping":
                await task  # all is indexed
        names = [await started_run(session, number) for number in range(LIVE)]
        listening = listen("127.0.0.1", 0)
        runner = web.AppRunner(make_app(session), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        say(port=listening.getsockname()[1])
        await line()
        changes = 0
        tell = session.events.tell

        def counted(record: RunRecord) -> None:
            nonlocal changes
            changes += 1
            tell(record)

        session.events.tell = counted  # type: ignore[method-assign] # a measurement
        began, spent = time.monotonic(), time.process_time()
        async with LagProbe() as lag, asyncio.TaskGroup() as group:
            coming = group.create_task(events(backend, names))
            await line()
            coming.cancel()
        took = time.monotonic() - began
        say(
            events_per_s=round(changes / took, 1),
            cpu=round((time.process_time() - spent) / took, 2),
            lag_p99_ms=round(lag.statistics().p99_s * 1000, 1),
        )
        await runner.cleanup()


async def started_run(session: Session, number: int) -> str:
    """Start a run, and give the name of its workflow."""
    run_id = await session.submit(flow(), [], f"live{number}")
    async with contextlib.aclosing(session.updates(run_id)) as updates:
        async for progress in updates:
            if progress.state is RunState.RUNNING:
                break
    return (await session.record(run_id)).workflow_name or ""


async def events(backend: ScriptedBackend, names: list[str]) -> None:
    """Let each attempt start, one after the other, at the rate of events."""
    began = time.monotonic()
    for turn in range(LIVE * TASKS):
        await asyncio.sleep(began + turn / EVENTS - time.monotonic())
        task = f"t{turn // LIVE}"
        attempt = Attempt(n=0, phase=Phase.RUNNING, pod_uid=f"uid-{task}", started=time.time())
        backend.attempt(names[turn % LIVE], task, attempt)


# --- the process that asks ---------------------------------------------------------------------------------------------


async def ask(port: int) -> None:
    """Ask for pages, and print how late they were."""
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port))

    async def page(path: str, due: float, late: list[float]) -> None:
        reader, writer = await free.get()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise AssertionError(head)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        late.append((time.monotonic() - due) * 1000)
        free.put_nowait((reader, writer))

    fixed = await at_rate(lambda due, late: page(PAGE, due, late))
    filtered = {}
    for name, path in FILTERED.items():
        late: list[float] = []
        for _ in range(50):
            await page(path, time.monotonic(), late)
        filtered[name] = figures(late)
    most: list[float] = []
    until = time.monotonic() + SECONDS / 2
    began = time.monotonic()

    async def again() -> None:
        while time.monotonic() < until:
            await page(PAGE, time.monotonic(), most)

    await asyncio.gather(*(again() for _ in range(CONNECTIONS // 2)))
    say(
        fixed=fixed,
        filtered_ms=filtered,
        most={"pages_per_s": round(len(most) / (time.monotonic() - began), 1), **figures(most)},
    )


async def at_rate(page: Callable[[float, list[float]], Any]) -> dict[str, float]:
    """Ask at a fixed rate, whether answers come or not."""
    late: list[float] = []
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(int(RATE * SECONDS)):
            due = began + number / RATE
            await asyncio.sleep(due - time.monotonic())
            group.create_task(page(due, late))
    return {"pages_per_s": round(len(late) / (time.monotonic() - began), 1), **figures(late)}


# --- between the processes ---------------------------------------------------------------------------------------------


async def measure(count: int) -> dict[str, object]:
    """Let both processes do their part."""
    with tempfile.TemporaryDirectory() as directory:
        async with started(__file__, "serve", directory, str(count)) as server:
            hello = await heard(server, ANSWERS_WITHIN_S)
            go_on(server)
            async with started(__file__, "ask", str(hello["port"])) as asker:
                asked = await heard(asker, ANSWERS_WITHIN_S)
            go_on(server)
            load = await heard(server, ANSWERS_WITHIN_S)
    return {"runs": count, **asked, **load, "load": os.getloadavg()[0], "limits": LIMITS}


def figures(values: list[float]) -> dict[str, float]:
    """Give p50, p99 and the highest, rounded."""
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 1),
        "p99": round(ordered[int(len(ordered) * 0.99)], 1),
        "max": round(ordered[-1], 1),
    }


def main() -> None:
    """Measure and print, or be one of the processes."""
    match sys.argv[1:]:
        case ["serve", root, count]:
            asyncio.run(serve(Path(root), int(count)))
        case ["ask", port]:
            asyncio.run(ask(int(port)))
        case rest:
            print(json.dumps(asyncio.run(measure(int(rest[0]) if rest else 100_000))))


if __name__ == "__main__":
    main()
