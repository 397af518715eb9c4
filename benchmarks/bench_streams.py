"""Streams of events to many readers: does each get every final state, how late, and what does it cost; prints JSON.

    python benchmarks/bench_streams.py [SECONDS]

A process serves; in a second one 450 readers follow one run and 50 all runs, and two more take nothing at all. 200 records a second are
changed and made durable, half of them of the run that is followed, the others of 20 more; in the end all runs end. A change is late by the
time from when it was durable until a reader has it, or a newer state of that run. Both processes share the machine and its clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web
from processes import go_on, heard, line, say, started

from simrun.backends.scripted import ScriptedBackend
from simrun.model.record import RunRecord, RunState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session

OF_ONE, OF_ALL = 450, 50
RATE = 200
OTHERS = 20
HOT = "hot"
ANSWERS_WITHIN_S = 300
LIMITS = {"p99_ms": 250.0, "rss_more_mb": 100.0, "final_states": 1.0}
AT_ONCE = 20
"""Connections that are made at once; a server takes 128 that wait."""


# --- the process that serves -------------------------------------------------------------------------------------------


async def serve(root: Path, seconds: float) -> None:
    """Serve; on a line of stdin change records for some seconds, and print when which was durable."""
    backend = ScriptedBackend()
    async with open_session(
        root / "store", lambda _store, _pool: backend, command="serve", index=root / "index.sqlite"
    ) as session:
        listening = listen("127.0.0.1", 0)
        runner = web.AppRunner(make_app(session), access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        runs = [HOT, *(f"other{number}" for number in range(OTHERS))]
        for run_id in runs:
            await session.submit(flow(), [], run_id)
        for run_id in runs:
            async with contextlib.aclosing(session.updates(run_id)) as updates:
                async for progress in updates:
                    if progress.state is RunState.RUNNING:
                        break
        say(port=listening.getsockname()[1], rss_mb=rss_mb())
        await line()
        told: list[tuple[str, int, float]] = []
        tell = session.events.tell

        def noted(record: RunRecord) -> None:
            told.append((record.id, record.revision, time.monotonic()))
            tell(record)

        session.events.tell = noted  # type: ignore[method-assign] # a measurement
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.monotonic()
        async with sampling() as peak:
            async with asyncio.TaskGroup() as group:
                group.create_task(change(session, HOT, RATE / 2, seconds))
                for run_id in runs[1:]:
                    group.create_task(change(session, run_id, RATE / 2 / OTHERS, seconds))
            took, changes = time.monotonic() - began, len(told)
            after = resource.getrusage(resource.RUSAGE_SELF)
            for run_id in runs:
                await end(session, run_id)
            say(
                changes=changes,
                per_s=round(changes / took, 1),
                cpu=round(
                    (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / took, 2
                ),
            )
            await line()
        say(told=told, peak_mb=max(peak))
        await runner.cleanup()


async def change(session: Session, run_id: str, rate: float, seconds: float) -> None:
    """Change the record of a run at a rate."""
    loop = asyncio.get_running_loop()
    began, count = loop.time(), int(rate * seconds)
    record = await session.record(run_id)
    for number in range(count):
        await asyncio.sleep(began + number / rate - loop.time())
        written = await session._controller.write(record, record.changed(message=f"step {number}"))  # noqa: SLF001 - what a reconcile does
        if written is None:
            raise AssertionError("nobody else writes")
        record = written


async def end(session: Session, run_id: str) -> None:
    """Let a run end with nothing pending."""
    record = await session.record(run_id)
    times = record.times.model_copy(update={"ended": time.time()})
    await session._controller.write(  # noqa: SLF001 - what a reconcile does
        record, record.changed(state=RunState.SUCCEEDED, times=times)
    )


def flow() -> Submission:
    """Make a campaign of ten tasks."""
    kind = TaskType.model_validate({"name": "t", "command": ["true"], "image": "image"})
    tasks = {f"t{number}": Task(type="t") for number in range(10)}
    return Submission(workflow=Workflow(tasks=tasks), types={"t": kind})


@contextlib.asynccontextmanager
async def sampling() -> AsyncIterator[list[float]]:
    """Note the resident memory of this process again and again."""
    seen = [rss_mb()]

    async def note() -> None:
        while True:
            await asyncio.sleep(0.1)
            seen.append(rss_mb())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(note())
        yield seen
        task.cancel()


def rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


# --- the process that reads --------------------------------------------------------------------------------------------


_OF_ONE = re.compile(rb"event: (run|end)\nid: (\d+)\n")
_OF_ALL = re.compile(rb'event: run\nid: \S+\ndata: {"id":"([^"]+)".*?"revision":(\d+)')
_RUNS = re.compile(rb'{"id":"([^"]+)"[^{}]*"revision":(\d+)')


class Stream(asyncio.Protocol):
    """One reader: notes which state of which run it was given, and when."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: list[tuple[str, int, float]] = []
        self.begun = asyncio.get_running_loop().create_future()
        self.left = b""
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())  # type: ignore[attr-defined] # it can write

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        block, cut, self.left = (self.left + data).rpartition(b"\n\n")
        if not cut:
            return
        block += cut
        if self.path.endswith("/v1/events"):
            if b"event: snapshot" in block:
                self.seen += [
                    (run.decode(), int(number), at) for run, number in _RUNS.findall(block)
                ]
            self.seen += [(run.decode(), int(number), at) for run, number in _OF_ALL.findall(block)]
        else:
            for kind, number in _OF_ONE.findall(block):
                self.seen.append((HOT, int(number), at))
                self.ended = self.ended or kind == b"end"
        if self.seen and not self.begun.done():
            self.begun.set_result(None)


async def read(port: int) -> None:
    """Open all streams; on a line of stdin print what each was given."""
    loop = asyncio.get_running_loop()
    paths = [f"/api/v1/runs/{HOT}/events"] * OF_ONE + ["/api/v1/events"] * OF_ALL
    streams: list[Stream] = []
    deaf = [stalled(port, paths[0]), stalled(port, paths[-1])]
    gate = asyncio.Semaphore(AT_ONCE)

    async def opened(path: str) -> None:
        async with gate:
            _, stream = await loop.create_connection(lambda: Stream(path), "127.0.0.1", port)
            streams.append(stream)
            await stream.begun

    async with asyncio.timeout(120):
        await asyncio.gather(*map(opened, paths))
    say(open=len(streams))
    await line()
    say(
        streams=[
            {"all": stream.path == paths[-1], "ended": stream.ended, "seen": stream.seen}
            for stream in streams
        ]
    )
    for one in deaf:
        one.close()


def stalled(port: int, path: str) -> socket.socket:
    """Connect as a reader that takes nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return made


# --- between the processes ---------------------------------------------------------------------------------------------


async def measure(seconds: float) -> dict[str, object]:
    """Let both processes do their part, and compare what was told with what was seen."""
    with tempfile.TemporaryDirectory() as directory:
        async with started(__file__, "serve", directory, str(seconds)) as server:
            hello = await heard(server, ANSWERS_WITHIN_S)
            async with started(__file__, "read", str(hello["port"])) as readers:
                await heard(readers, ANSWERS_WITHIN_S)
                go_on(server)
                load = await heard(server, ANSWERS_WITHIN_S)
                await asyncio.sleep(2)  # what is late comes until then
                go_on(server)
                go_on(readers)
                told, streams = (
                    await heard(server, ANSWERS_WITHIN_S),
                    (await heard(readers, ANSWERS_WITHIN_S))["streams"],
                )
    late = {
        kind: lateness(told["told"], [one for one in streams if one["all"] == (kind == "all")])
        for kind in ("one", "all")
    }
    final = {run_id: revision for run_id, revision, _ in told["told"]}
    complete = sum(knows(one, final) for one in streams) / len(streams)
    return {
        "readers": {"of_one": OF_ONE, "of_all": OF_ALL, "stalled": 2},
        **load,
        "final_states": round(complete, 4),
        "late_ms": {kind: figures(values) for kind, values in late.items()},
        "events_of_one": round(
            sum(len(one["seen"]) for one in streams if not one["all"]) / OF_ONE, 1
        ),
        "rss_mb": {"before": hello["rss_mb"], "highest": told["peak_mb"]},
        "rss_more_mb": round(told["peak_mb"] - hello["rss_mb"], 1),
        "load": os.getloadavg()[0],
        "limits": LIMITS,
    }


def knows(stream: dict[str, Any], final: dict[str, int]) -> bool:
    """Whether a reader was given every final state."""
    last = {run_id: revision for run_id, revision, _ in stream["seen"]}
    wanted = final if stream["all"] else {HOT: final[HOT]}
    return all(last.get(run_id) == revision for run_id, revision in wanted.items()) and (
        stream["all"] or stream["ended"]
    )


def lateness(told: list[tuple[str, int, float]], streams: list[dict[str, Any]]) -> list[float]:
    """Give, for each reader and change, the milliseconds until it had that state or a newer one."""
    found = []
    changes: dict[str, list[tuple[int, float]]] = {}
    for run_id, revision, at in told:
        changes.setdefault(run_id, []).append((revision, at))
    for stream in streams:
        seen: dict[str, list[tuple[int, float]]] = {}
        for run_id, revision, at in stream["seen"]:
            seen.setdefault(run_id, []).append((revision, at))
        for run_id in changes if stream["all"] else [HOT]:
            given = iter(seen.get(run_id, []))
            newest, when = -1, 0.0
            for revision, at in changes[run_id]:
                while newest < revision:
                    newest, when = next(given, (sys.maxsize, float("inf")))
                found.append((when - at) * 1000)
    return found


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
        case ["serve", root, seconds]:
            asyncio.run(serve(Path(root), float(seconds)))
        case ["read", port]:
            asyncio.run(read(int(port)))
        case rest:
            print(json.dumps(asyncio.run(measure(float(rest[0]) if rest else 20.0))))


if __name__ == "__main__":
    main()
