"""A task in a run store of its own, and the real harness run against it as a backend would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simrun.model.report import WorkerReport
from simrun.worker import units
from simrun.worker.protocol import TaskDir, attempt_name

RUN, TASK = "run", "t"
PLUGIN_FILE = "code/plugin.py"


@dataclass(frozen=True)
class Ended:
    """How a program of the harness ended."""

    code: int
    output: str
    report: WorkerReport


@dataclass
class Started:
    """A program of the harness that runs."""

    process: subprocess.Popen[bytes]
    task_dir: TaskDir
    name: str

    def wait(self) -> Ended:
        """Wait for its end; fails when it has left no report."""
        output, _ = self.process.communicate(timeout=50)
        text = output.decode(errors="replace")
        path = self.task_dir.reports / f"{self.name}.json"
        assert path.exists(), text
        return Ended(
            self.process.returncode, text, WorkerReport.model_validate_json(path.read_bytes())
        )

    def kill(self) -> None:
        """Kill it and its simulation without a word, as a node that goes away does."""
        for pid in [self.process.pid, *children(self.process.pid)]:
            os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=50)


@dataclass
class Campaign:
    """A task in a store of its own. Its plugins are in code/plugin.py."""

    root: Path
    settings: dict[str, Any] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)

    @property
    def run_dir(self) -> Path:
        return self.root / "runs" / RUN

    @property
    def dir(self) -> TaskDir:
        return TaskDir(self.run_dir / "tasks" / TASK)

    def make(self, source: str = "", **settings: Any) -> None:
        """Write settings.json and the plugin file; `source` defines compute, and perhaps merge and units."""
        self.dir.root.mkdir(parents=True, exist_ok=True)
        body: dict[str, Any] = {"schema": 1, "run": RUN, "task": TASK, "type": "test"}
        if source:
            path = self.run_dir / PLUGIN_FILE
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
            body["plugin"] = ref("compute")
        self.settings = {**body, **settings}
        self.dir.settings.write_text(json.dumps(self.settings))

    def split(self, rows: list[dict[str, Any]], source: str = "", **settings: Any) -> None:
        """Make a split task whose unit table is published already."""
        self.make(source, units={"kind": "table"}, **settings)
        made = units.make_units(rows, seed_base=0, task=TASK)
        units.write_table(self.dir, made)

    def start(
        self,
        worker: str = f"{TASK}-w0",
        attempt: int = 0,
        program: str = "worker",
        cgroup: Path | None = None,
        **env: str,
    ) -> Started:
        """Start a program of the harness; `env` are variables without the prefix SIMRUN_."""
        told = {
            "RUN": RUN,
            "TASK": TASK,
            "WORKER": worker,
            "ATTEMPT": str(attempt),
            "TASK_DIR": str(self.dir.root),
            "SCRATCH": str(self.root / "scratch" / worker),
            "GRACE_S": "4",
            "POD_UID": str(uuid.uuid4()),
            "NODE": "here",
            "MERGE": "1" if worker.endswith("-w0") else "0",
            **env,
        }
        variables = {f"SIMRUN_{name}": value for name, value in told.items()}
        command = [sys.executable, "-m", "simrun.worker", program]
        if cgroup is not None:
            enter = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
            command = ["/bin/sh", "-c", enter, "sh", *command]
        process = subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        base = int(told.get("ATTEMPT_BASE", "0"))
        started = Started(process, self.dir, attempt_name(worker, attempt + base))
        self.started.append(started)
        return started

    def run(self, *args: Any, **env: Any) -> Ended:
        """Run a program of the harness to its end."""
        return self.start(*args, **env).wait()

    def done(self) -> dict[int, dict[str, Any]]:
        """Give the records of committed units."""
        return {int(path.name): json.loads(path.read_bytes()) for path in self.dir.done.iterdir()}

    def failed(self) -> dict[int, dict[str, Any]]:
        """Give the records of units that were given up."""
        return {
            int(path.name.split(".")[0]): json.loads(path.read_bytes())
            for path in self.dir.failed.iterdir()
        }

    def marker(self) -> dict[str, Any] | None:
        """Give what the merge marker says; None when there is none."""
        path = self.dir.out / ".simrun-merged"
        return json.loads(path.read_bytes()) if path.exists() else None

    def close(self) -> None:
        """End what still runs."""
        for started in self.started:
            if started.process.poll() is None:
                started.kill()
            if started.process.stdout:
                started.process.stdout.close()


def ref(function: str) -> dict[str, str]:
    """Refer to a function of the campaign's plugin file."""
    return {"file": PLUGIN_FILE, "function": function}


def children(pid: int) -> list[int]:
    """Give the descendants of a process."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            for child in thread.read_text().split():
                found += [int(child), *children(int(child))]
    return found


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something holds that no event tells of."""
    deadline = time.monotonic() + 30
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return value
