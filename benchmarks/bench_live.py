"""Memory of a controller that follows many live runs, and the time until it has looked at all of them; prints JSON.

    python benchmarks/bench_live.py [RUNS]

The runs lie in a store as a service finds them at its start: running, five tasks each, every task with a pod. A child makes them, so that
what is measured is the memory of following them. The scripted backend's own share is taken before the controller starts and told apart.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from simrun.aio.lag import LagProbe
from simrun.aio.threads import Pool
from simrun.backends.base import Attempt, BackendStatus, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.base.clock import SystemClock
from simrun.model.record import RunRecord, RunState, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.planning import plan_run
from simrun.service.controller import Controller
from simrun.service.index import IndexedRunStore
from simrun.service.runindex import RunIndex
from simrun.service.submission import new_record
from simrun.store import codec
from simrun.store.resources import ResourceStore

RUNS = 10_000
TASKS = 5
LIMITS = {"rss_mb": 200.0}


def flow() -> Submission:
    """Make a small campaign of bare commands."""
    kind = TaskType.model_validate({"name": "t", "command": ["true"], "image": "image"})
    tasks = {f"t{number}": Task(type="t") for number in range(TASKS)}
    return Submission(workflow=Workflow(tasks=tasks), types={"t": kind})


def records(count: int) -> list[str]:
    """Give the ids of the runs."""
    return [f"run{number:05}" for number in range(count)]


def make_store(root: Path, count: int) -> None:
    """Write the files of the runs, without fsync: what is measured comes later."""
    store = IndexedRunStore(root, RunIndex(root.parent / "index.sqlite"))
    store.open()
    what = flow()
    plans = plan_run(what.workflow, what.types, {}, {})
    submission = codec.encode(what)
    for run_id in records(count):
        record = new_record(what, run_id, time.time()).changed(
            state=RunState.RUNNING,
            plans=plans,
            tasks=dict.fromkeys(plans, TaskState.QUEUED),
        )
        run = store.layout.run(run_id)
        for task in plans:
            run.task(task).root.mkdir(parents=True)
        run.submission.write_bytes(submission)
        run.record.write_bytes(codec.encode(record))
        store.layout.live_mark(run_id).touch()


def in_child(work: Callable[[], None]) -> None:
    """Do something in a process of its own, whose memory goes with it."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError("the store could not be made")


class Counter:
    """Counts down to an event."""

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self.all = asyncio.Event()

    def one(self) -> None:
        """Count one."""
        self._left -= 1
        if self._left <= 0:
            self.all.set()


class CountingBackend(ScriptedBackend):
    """A scripted backend that keeps no list of calls and counts the looks."""

    looks = Counter(0)

    async def status(self, name: str) -> BackendStatus | None:
        """Give what the script says."""
        found = await super().status(name)
        self.calls.clear()
        self.looks.one()
        return found


async def follow(root: Path, count: int) -> dict[str, object]:
    """Start a controller over the store, and give what it takes once it has looked at every run, twice."""
    started = rss_mb()
    backend = CountingBackend()
    for run_id in records(count):
        record = RunRecord.model_validate({"id": run_id, "times": {"created": 0.0}})
        name = await backend.submit(record, {}, {})
        for number in range(TASKS):
            uid = f"{run_id}-{number}-5f0c7f6e-4c55-4d0a"
            attempt = Attempt(n=0, phase=Phase.RUNNING, pod_uid=uid, node="node", started=1.0)
            backend.attempt(name, f"t{number}", attempt)
    scripted = rss_mb()
    store = IndexedRunStore(root, RunIndex(root.parent / "index.sqlite"))
    pool = Pool("files", 8)
    written = Counter(count)
    controller = Controller(
        store,
        ResourceStore(root),
        backend,
        pool=pool,
        clock=SystemClock(),
        on_change=lambda _record: written.one(),
        resync_s=3600.0,
    )
    begin = time.perf_counter()
    async with LagProbe() as lag, asyncio.TaskGroup() as group:
        loop = group.create_task(controller.run())
        await written.all.wait()
        first = time.perf_counter() - begin
        backend.looks, begin = Counter(count), time.perf_counter()
        controller.wake()
        await backend.looks.all.wait()
        again = time.perf_counter() - begin
        loop.cancel()
    pool.close()
    used = rss_mb()
    return {
        "runs": count,
        "first_look_s": round(first, 1),
        "second_look_s": round(again, 1),
        "rss_at_start_mb": started,
        "rss_of_script_mb": round(scripted - started, 1),
        "rss_mb": round(used - (scripted - started), 1),
        "lag_p99_ms": round(lag.statistics().p99_s * 1000, 2),
    }


def rss_mb() -> float:
    """Give the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "store"
        in_child(lambda: make_store(root, count))
        result = asyncio.run(follow(root, count))
    print(json.dumps({**result, "load": os.getloadavg()[0], "limits": LIMITS}))


if __name__ == "__main__":
    main()
