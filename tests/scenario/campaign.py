"""What the campaign scenarios share: simrun as users call it, and kill -9 as machines do it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLOWS = Path(__file__).parent / "flows"
EXAMPLE = Path(__file__).parents[2] / "examples" / "stability-map" / "workflow.yaml"


@dataclass(frozen=True)
class Simrun:
    """The command, with a store and a backend."""

    store: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, flow: Path, run_id: str, *more: str) -> list[str]:
        where = ("--store", str(self.store), "--id", run_id, "-o", "json")
        return [sys.executable, "-m", "simrun", "run", str(flow), *where, *self.options, *more]

    def start(self, flow: Path, run_id: str, *more: str) -> subprocess.Popen[str]:
        """Start a run and go on."""
        return subprocess.Popen(
            self.command(flow, run_id, *more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )

    def run(self, flow: Path, run_id: str, *more: str, seconds: float = 240) -> Outcome:
        """Run to the end."""
        return finish(self.start(flow, run_id, *more), seconds)

    def task(self, run_id: str, task: str) -> Path:
        return self.store / "runs" / run_id / "tasks" / task

    def record(self, run_id: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.store / "runs" / run_id / "run.json").read_text())
        return loaded

    def attempts(self, run_id: str, task: str) -> list[dict[str, Any]]:
        """The evidence that was kept of a task's attempts."""
        found = sorted((self.task(run_id, task) / "attempts").glob("*.json"))
        return [json.loads(path.read_text()) for path in found]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def finish(process: subprocess.Popen[str], seconds: float = 240) -> Outcome:
    """Wait for a command to end; its output on failure is the test's message."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        raise AssertionError(f"not ended after {seconds} s\n{out}\n{err}") from None
    return Outcome(process.returncode, out, err)


def wait_until(what: str, holds: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for something that another process does, and that nobody tells."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds} s in vain for {what}"
        time.sleep(0.02)


def harness_pids(run_id: str, worker: str) -> list[int]:
    """The harness processes of a worker of a run on this machine, in pods too: found by their environment."""
    wanted = {f"SIMRUN_RUN={run_id}".encode(), f"SIMRUN_WORKER={worker}".encode()}
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            variables = set((directory / "environ").read_bytes().split(b"\0"))
            command = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is not ours to look at
        if (
            wanted <= variables
            and b"simrun.worker" in command
            and b"simrun.worker.call" not in command
        ):
            found.append(int(directory.name))
    return sorted(found)


def kill(run_id: str, worker: str) -> bool:
    """kill -9 the harness of a worker; whether there was one."""
    pids = harness_pids(run_id, worker)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return bool(pids)


def units_done(simrun: Simrun, run_id: str, task: str) -> int:
    done = simrun.task(run_id, task) / "done"
    return len(list(done.iterdir())) if done.is_dir() else 0
