"""What the local engine costs beside the commands it runs; prints JSON.

    python benchmarks/bench_local.py [REPEATS]

Every figure is taken next to a bare asyncio loop that does the same without records, limits or supervisors, since only ratios within
one run mean something on a machine that others use too. Of the repeats the best counts, on both sides. The engine is started
before the clock; its zygote comes up meanwhile and is part of the time.

half_second: 200 commands of 0.5 s, 8 at once. true: 200 commands that do nothing, 8 at once, each with a durable record of its start
and of its end, without and with a memory limit. chain: 50 commands, each after the one before. first_start: from the
submission to the start of the first command. rss: of the engine's process after all that.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from simrun.backends.base import BackendStatus
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.model.record import RunRecord, RunTimes
from simrun.pods import Pod

AT_ONCE = 8
TASKS = 200
CHAIN = 50
MEMORY = 256 * 2**20


def pods(
    count: int, command: tuple[str, ...], *, chain: bool = False, memory: int = 0
) -> list[Pod]:
    """Make pods of one command, side by side or one after the other."""
    return [
        Pod(
            worker=f"t{i}",
            task=f"t{i}",
            type="bench",
            role="exec",
            command=command,
            cpus=1,
            memory=memory,
            scratch=f"r/t{i}",
            needs=(f"t{i - 1}",) if chain and i else (),
        )
        for i in range(count)
    ]


async def engine_s(what: list[Pod]) -> tuple[float, float]:
    """Run pods in a fresh engine; seconds for all, and until the first command started."""
    store = Path(tempfile.mkdtemp(prefix="simrun-bench-"))
    try:
        config = LocalConfig.for_store(store, cpus=AT_ONCE)
        async with LocalBackend(config, pods=lambda *_: what) as backend:
            events = backend.events()
            began, wall = time.perf_counter(), time.time()
            name = await backend.submit(RunRecord(id="r", times=RunTimes(created=0)), {}, {})
            status = await end_of(backend, name, events)
            took = time.perf_counter() - began
        assert status.phase == "Succeeded", status.message
        starts = [one.started or 0.0 for node in status.nodes.values() for one in node.attempts]
        return took, min(starts) - wall
    finally:
        shutil.rmtree(store)


async def end_of(backend: LocalBackend, name: str, events: Any) -> BackendStatus:
    """Follow a workflow as the controller does, by its events."""
    async for _ in events:
        status = await backend.status(name)
        if status is not None and status.phase.ended:
            return status
    raise AssertionError("the engine was closed")


async def bare_s(count: int, command: tuple[str, ...], at_once: int) -> float:
    """Run the same commands in a bare asyncio loop."""
    slots = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with slots:
            process = await asyncio.create_subprocess_exec(*command)
            await process.wait()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    return time.perf_counter() - began


async def measure(repeats: int) -> dict[str, Any]:
    """Take all figures."""
    half, none = ("sleep", "0.5"), ("true",)
    sleeping, idle = pods(TASKS, half), pods(TASKS, none)
    limited, chain = pods(TASKS, none, memory=MEMORY), pods(CHAIN, none, chain=True)
    half_engine = (await engine_s(sleeping))[0]
    half_bare = await bare_s(TASKS, half, AT_ONCE)
    runs: dict[str, list[float]] = {name: [] for name in ("true", "limited", "chain", "first")}
    bare: dict[str, list[float]] = {"true": [], "chain": []}
    for _ in range(repeats):
        took, first = await engine_s(idle)
        runs["true"].append(took)
        runs["first"].append(first)
        bare["true"].append(await bare_s(TASKS, none, AT_ONCE))
        runs["limited"].append((await engine_s(limited))[0])
        runs["chain"].append((await engine_s(chain))[0])
        bare["chain"].append(await bare_s(CHAIN, none, 1))
    best = {name: min(values) for name, values in runs.items()}
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "half_second": {
            "engine_s": round(half_engine, 3),
            "bare_s": round(half_bare, 3),
            "ratio": round(half_engine / half_bare, 3),
            "target": "<= 1.2",
        },
        "true": {
            "tasks_per_s": round(TASKS / best["true"], 1),
            "tasks_per_s_of_each_repeat": [round(TASKS / took, 1) for took in runs["true"]],
            "with_memory_limit": round(TASKS / best["limited"], 1),
            "bare_tasks_per_s": round(TASKS / min(bare["true"]), 1),
            "target": ">= 100, aim 200",
        },
        "chain_of_50": {
            "engine_s": round(best["chain"], 3),
            "bare_s": round(min(bare["chain"]), 3),
            "target": "<= 2",
        },
        "first_start_s": {"engine_s": round(best["first"], 3), "target": "<= 0.5 (whole command)"},
        "rss_mib": {"engine": round(rss, 1), "target": "<= 80"},
    }


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(json.dumps(asyncio.run(measure(repeats)), indent=2))


if __name__ == "__main__":
    main()
