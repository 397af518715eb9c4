"""What `simrun run` costs beside what it runs, as a user meets it: the whole command, against a bare asyncio loop in the same run.

python benchmarks/bench_run.py [REPEATS]
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIMRUN = [sys.executable, "-m", "simrun"]
LIMITS = {
    "sleep_ratio": 1.2,
    "true_tasks_per_s": 100,
    "chain_s": 2.0,
    "first_task_s": 0.5,
    "rss_mb": 80,
    "help_ms": 150,
}


def workflow(count: int, command: list[str], *, chain: bool = False) -> dict[str, Any]:
    """Make a workflow of equal tasks, side by side or one after the other."""
    tasks = {
        f"t{number}": {"type": "t", **({"after": [f"t{number - 1}"]} if chain and number else {})}
        for number in range(count)
    }
    kind = {"command": command, "resources": {"cpu": 1, "memory": "64Mi"}}
    return {"name": "bench", "types": {"t": kind}, "tasks": tasks}


def simrun(flow: dict[str, Any]) -> dict[str, float]:
    """Run a workflow with the command, 8 at once: wall seconds from the command, and from the first start; RSS in MB."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "flow.json"
        file.write_text(json.dumps(flow))
        options = [
            "--store",
            f"{directory}/store",
            "--cpus",
            "8",
            "-q",
            "-o",
            "json",
            "--id",
            "bench",
        ]
        began = time.time()
        process = subprocess.Popen([*SIMRUN, "run", str(file), *options], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.time() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise AssertionError(f"simrun ended with {process.returncode}")
        times = json.loads((Path(directory) / "store/runs/bench/run.json").read_text())["times"]
    return {
        "wall_s": wall,
        "run_s": times["ended"] - times["created"],
        "span_s": times["ended"] - times["started"],
        "first_task_s": times["started"] - began,
        "rss_mb": usage.ru_maxrss / 1024,
    }


async def bare(count: int, command: list[str], at_once: int = 8) -> float:
    """Run the same commands from a bare asyncio loop: wall seconds."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            process = await asyncio.create_subprocess_exec(*command)
            if await process.wait():
                raise AssertionError("the command failed")

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())
    return time.perf_counter() - began


def help_ms() -> float:
    """Time `simrun --help`."""
    began = time.perf_counter()
    subprocess.run([*SIMRUN, "--help"], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began) * 1000


def median(values: list[float]) -> float:
    """Give the median, rounded."""
    return round(statistics.median(values), 3)


def main() -> None:
    """Measure and print."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    sleeps, trues, chains, helps, ratios = [], [], [], [], []
    for _ in range(repeats):
        floor = asyncio.run(bare(200, ["sleep", "0.5"]))
        sleeps.append(simrun(workflow(200, ["sleep", "0.5"])))
        ratios.append(sleeps[-1]["wall_s"] / floor)
        trues.append(simrun(workflow(200, ["true"])))
        chains.append(simrun(workflow(50, ["true"], chain=True)))
        helps.append(min(help_ms() for _ in range(5)))
    result = {
        "sleep_ratio": median(ratios),
        "true_tasks_per_s": median([200 / item["span_s"] for item in trues]),
        "true_tasks_per_s_whole_command": median([200 / item["wall_s"] for item in trues]),
        "chain_s": median([item["run_s"] for item in chains]),
        "first_task_s": median([item["first_task_s"] for item in chains]),
        "rss_mb": round(max(item["rss_mb"] for item in [*sleeps, *trues, *chains]), 1),
        "help_ms": median(helps),
        "load": os.getloadavg()[0],
        "children_cpu_s": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1),
        "limits": LIMITS,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
