"""From the start of simrun-worker to its first unit, and what a unit costs besides its own work. Prints JSON.

python benchmarks/bench_harness.py [repeats]

`start_to_first_unit_ms`: from before the harness is started until the first unit's program runs (a shell that writes the time).
`python_ms`: the same interpreter doing nothing, for comparison. `command_unit_ms` and `plugin_unit_ms`: time per unit of
a worker that has many units which do nothing. Medians, and the lowest of the repeats: others use the machine too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simrun.worker import units
from simrun.worker.protocol import TaskDir

PLUGIN = "def compute(unit):\n    return {'index': unit.index}\n"
SCRIPT = "date +%s.%N > {out}/at"


def make_task(root: Path, count: int, **settings: Any) -> Path:
    """Make the directory of a split task with `count` units."""
    task_dir = root / "runs" / "r" / "tasks" / "t"
    task_dir.mkdir(parents=True)
    code = root / "runs" / "r" / "code"
    code.mkdir()
    (code / "plugin.py").write_text(PLUGIN)
    body = {"schema": 1, "run": "r", "task": "t", "type": "bench", "units": {"kind": "table"}}
    (task_dir / "settings.json").write_text(json.dumps({**body, **settings}))
    rows = [{"x": number} for number in range(count)]
    units.write_table(TaskDir(task_dir), units.make_units(rows, seed_base=0, task="t"))
    return task_dir


def run_worker(task_dir: Path, scratch: Path) -> float:
    """Run a coordinator to its end; gives the wall time of its start."""
    env = {
        **os.environ,
        "SIMRUN_RUN": "r",
        "SIMRUN_TASK": "t",
        "SIMRUN_WORKER": "t-w0",
        "SIMRUN_ATTEMPT": "0",
        "SIMRUN_TASK_DIR": str(task_dir),
        "SIMRUN_SCRATCH": str(scratch),
    }
    started = time.time()
    command = [sys.executable, "-m", "simrun.worker", "worker"]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return started


def first_unit(root: Path) -> float:
    """Give the seconds from the start of a worker to the first unit's program."""
    task_dir = make_task(root, 1, command=["/bin/sh", "-c", SCRIPT])
    started = run_worker(task_dir, root / "scratch")
    return float((task_dir / "work" / "0.1" / "at").read_text()) - started


def bare_python(_root: Path) -> float:
    """Give the seconds that the interpreter takes to do nothing."""
    started = time.time()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.time() - started


def per_unit(root: Path, count: int, **settings: Any) -> float:
    """Give the seconds per unit of a worker that has `count`."""
    task_dir = make_task(root, count, **settings)
    run_worker(task_dir, root / "scratch")
    report = json.loads((task_dir / "reports" / "t-w0-0.json").read_text())
    return float(report["ended"] - report["started"]) / count


def repeat(measure: Callable[[Path], float], times: int) -> dict[str, float]:
    """Give median and lowest of several measurements, in milliseconds."""
    values = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as directory:
            values.append(measure(Path(directory)) * 1000)
    return {"median": round(statistics.median(values), 1), "lowest": round(min(values), 1)}


def main() -> None:
    """Measure and print."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    plugin = {"plugin": {"file": "code/plugin.py", "function": "compute"}}
    figures = {
        "python_ms": repeat(bare_python, times),
        "start_to_first_unit_ms": repeat(first_unit, times),
        "command_unit_ms": repeat(lambda root: per_unit(root, 50, command=["/bin/true"]), 3),
        "plugin_unit_ms": repeat(lambda root: per_unit(root, 25, **plugin), 3),
    }
    print(json.dumps({"bench": "harness", "load": os.getloadavg()[0], **figures}))


if __name__ == "__main__":
    main()
