"""What the controller adds to an event, and what the index of many runs costs; prints JSON.

    python benchmarks/bench_controller.py [RUNS_OF_THE_INDEX]

Events come at a fixed rate from the scripted backend; each changes the record of its run, so each ends in one durable write. Timed are: the
event until the write of its record begins, and until it is durable. Bare durable writes of the same number and size go on
beside, at the same rate, in the same process: a disk that is slow then is slow for both.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from simrun.aio.lag import LagProbe
from simrun.aio.threads import Pool
from simrun.backends.base import Attempt, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.base.clock import SystemClock
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service.controller import Controller
from simrun.service.index import IndexedRunStore
from simrun.service.runindex import RunIndex
from simrun.service.submission import Submitter, create_run, new_record
from simrun.store import codec
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.worker import files

RATE = 200
RUNS = 50
TASKS = 30
LIMITS = {
    "begin_ms": {"p50": 2.0, "p99": 20.0},
    "durable_ratio": {"p50": 2.0, "p99": 3.0},
    "lag_p99_ms": 20.0,
    "index_s": 20.0,
    "live_followed_s": 2.0,
}


class TimedStore(RunStore):
    """A store that notes when the write of a record begins and when it is done."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.began: dict[tuple[str, int], float] = {}
        self.ended: dict[tuple[str, int], float] = {}

    def write_if_unchanged(self, before: RunRecord, after: RunRecord) -> RunRecord | None:
        """Write, and note the times of all events that the record knows of for the first time: events may share a write."""
        began = time.perf_counter()
        written = super().write_if_unchanged(before, after)
        if written is not None:
            ended = time.perf_counter()
            known = sum(state is not TaskState.WAITING for state in written.tasks.values())
            for number in range(known, 0, -1):
                if (written.id, number) in self.ended:
                    break
                self.began[written.id, number], self.ended[written.id, number] = began, ended
        return written


def flow() -> Submission:
    """Make a campaign of bare commands that do not wait for each other."""
    kind = TaskType.model_validate({"name": "t", "command": ["true"], "image": "image"})
    tasks = {f"t{number}": Task(type="t") for number in range(TASKS)}
    return Submission(workflow=Workflow(tasks=tasks), types={"t": kind})


async def events(root: Path) -> dict[str, object]:
    """Let events come, and give what they cost."""
    store, clock, pool = TimedStore(root), SystemClock(), Pool("files", 8)
    store.open()
    backend, resources = ScriptedBackend(), ResourceStore(root)
    controller = Controller(store, resources, backend, pool=pool, clock=clock)
    controller.resume = Submitter(store, resources, backend, pool, clock, write=controller.write)
    what = flow()
    names = {}
    for number in range(RUNS):
        run_id = f"run{number}"
        create_run(store, new_record(what, run_id, clock.wall()), what, [])
        await controller.resume(run_id)
        names[run_id] = store.read(run_id).workflow_name or ""
    sent: dict[str, list[float]] = {run_id: [] for run_id in names}
    bare: list[float] = []
    payload = store.layout.run("run0").record.read_bytes()
    async with LagProbe() as lag, asyncio.TaskGroup() as group:
        loop = group.create_task(controller.run())
        await asyncio.sleep(1)
        beside = group.create_task(bare_writes(pool, root / "bare", payload, bare))
        begin = time.perf_counter()
        for turn in range(RUNS * TASKS):
            await asyncio.sleep(max(0.0, begin + turn / RATE - time.perf_counter()))
            run_id, task = f"run{turn % RUNS}", f"t{turn // RUNS}"
            sent[run_id].append(time.perf_counter())
            attempt = Attempt(n=0, phase=Phase.RUNNING, pod_uid=f"uid-{task}", started=time.time())
            backend.attempt(names[run_id], task, attempt)
        await beside
        await asyncio.sleep(2)
        loop.cancel()
    begins, durables = [], []
    for run_id, times in sent.items():
        for number, at in enumerate(times, start=1):
            begins.append((store.began[run_id, number] - at) * 1000)
            durables.append((store.ended[run_id, number] - at) * 1000)
    late = lag.statistics()
    pool.close()
    return {
        "events": len(begins),
        "rate_per_s": RATE,
        "begin_ms": figures(begins),
        "durable_ms": figures(durables),
        "bare_durable_ms": figures(bare),
        "durable_ratio": {
            name: round(figures(durables)[name] / figures(bare)[name], 2) for name in ("p50", "p99")
        },
        "lag_p99_ms": round(late.p99_s * 1000, 2),
    }


async def bare_writes(pool: Pool, directory: Path, payload: bytes, took: list[float]) -> None:
    """Write as many files as there are events, at their rate: one hop and one durable write each."""
    await pool.run(directory.mkdir)

    async def one(number: int) -> None:
        at = time.perf_counter()
        await pool.run(files.replace, directory / f"run{number % RUNS}", payload)
        took.append((time.perf_counter() - at) * 1000)

    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(RUNS * TASKS):
            await asyncio.sleep(max(0.0, begin + (number + 0.5) / RATE - time.perf_counter()))
            group.create_task(one(number))


def index(root: Path, count: int) -> dict[str, object]:
    """Index many records, of which few are live: until all are indexed, and until the live ones are known."""
    made = IndexedRunStore(root, RunIndex(root / "index.sqlite"))
    made.open()
    tasks = dict.fromkeys((f"t{number}" for number in range(10)), "done")
    for number in range(count):
        live = number % 1000 == 0
        record = RunRecord.model_validate(
            {
                "id": f"r{number:08}",
                "state": RunState.RUNNING if live else RunState.SUCCEEDED,
                "tasks": tasks,
                "times": RunTimes(created=float(number)),
                "workflow_name": f"simrun-r{number:08}",
            }
        )
        directory = made.layout.run(record.id).root
        directory.mkdir()
        (directory / "run.json").write_bytes(codec.encode(record))
        if live:
            made.layout.live_mark(record.id).touch()
    began = time.perf_counter()
    live_ids = made.live_ids()
    followed = time.perf_counter() - began
    read = made.reindex(everything=True)
    took = time.perf_counter() - began
    if read != count or len(live_ids) != len(made.index.live()):
        raise AssertionError(f"indexed {read} of {count}, {len(live_ids)} live")
    began = time.perf_counter()
    for _ in range(100):
        made.index.rows(limit=50)
    page_ms = (time.perf_counter() - began) * 10
    return {
        "runs": count,
        "index_s": round(took, 2),
        "live_followed_s": round(followed, 3),
        "page_of_50_ms": round(page_ms, 2),
    }


def figures(values: list[float]) -> dict[str, float]:
    """Give p50, p99 and the highest, rounded."""
    ordered = sorted(values)
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p99": round(ordered[int(len(ordered) * 0.99)], 2),
        "max": round(ordered[-1], 2),
    }


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as directory:
        result = asyncio.run(events(Path(directory) / "store"))
    with tempfile.TemporaryDirectory() as directory:
        result |= index(Path(directory) / "store", count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {**result, "rss_mb": round(peak, 1), "load": os.getloadavg()[0], "limits": LIMITS}
        )
    )


if __name__ == "__main__":
    main()
