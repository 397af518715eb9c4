"""What everything that an attempt runs has in common, and how a command or a plugin function is run with it."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simrun.worker import call, placeholders, trees
from simrun.worker.child import Outcome, Runner
from simrun.worker.endings import BadSettingsError, MemoryKillError
from simrun.worker.environment import Environment
from simrun.worker.protocol import GIB
from simrun.worker.settings import PluginRef, TaskSettings

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_NO_ANSWER = "the process ended with 0 before the plugin function returned"


class Ran(NamedTuple):
    """A program that ended, and what a plugin function returned. `problem` says why it is no success; empty when it is."""

    outcome: Outcome
    problem: str = ""
    result: Any = None


class Job(NamedTuple):
    """One attempt at a task."""

    env: Environment
    settings: TaskSettings
    inputs: Mapping[str, Path]
    scratch: Path
    runner: Runner
    memory: int | None = None
    """Bytes that this attempt has; None when nobody knows."""

    def command(
        self,
        command: Sequence[str],
        values: Mapping[str, Any],
        *,
        out: Path,
        scratch: Path,
        variables: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Ran:
        """Run a command in `out`. `values` are those of the placeholders besides params, inputs, outputs, scratch and out."""
        known = {
            **{f"params.{name}": value for name, value in self.settings.params.items()},
            **dict.fromkeys(
                (f"inputs.{port}" for port in (*self.settings.inputs, *self.settings.open_inputs)),
                "",
            ),
            **{f"inputs.{port}": str(path) for port, path in self.inputs.items()},
            **{f"outputs.{port}": f"{out}/{path}" for port, path in self.settings.outputs.items()},
            "scratch": str(scratch),
            "out": str(out),
        }
        try:
            items = placeholders.substitute(command, {**known, **values})
        except ValueError as error:
            raise BadSettingsError(f"settings.json: {error}") from error
        env = {**self._variables(scratch), **(variables or {})}
        outcome = self.runner.run(items, cwd=out, env=env, timeout_s=timeout_s)
        return Ran(outcome, _problem(outcome, out))

    def function(
        self,
        plugin: PluginRef,
        kind: str,
        request: Mapping[str, Any],
        *,
        out: Path,
        scratch: Path,
        timeout_s: float | None = None,
    ) -> Ran:
        """Call a plugin function in a process of its own, with `out` as its current directory."""
        path = scratch / f".{kind}.request.json"
        answer = scratch / f".{kind}.answer.json"
        file = None if plugin.file is None else str(self.env.task_dir.run_dir / plugin.file)
        body = {
            "kind": kind,
            "plugin": {"file": file, "module": plugin.module, "function": plugin.function},
            "inputs": {port: str(place) for port, place in self.inputs.items()},
            "out": str(out),
            "scratch": str(scratch),
            "cpus": self.env.cpus,
            "memory_gb": None if self.memory is None else self.memory / GIB,
            "answer": str(answer),
            **request,
        }
        path.write_text(json.dumps(body), encoding="utf-8")
        answer.unlink(missing_ok=True)
        # -P: neither the directory of call.py nor the current one may offer modules to a user's code
        command = [sys.executable, "-P", call.__file__, str(path)]
        outcome = self.runner.run(
            command, cwd=out, env=self._variables(scratch), timeout_s=timeout_s
        )
        if problem := _problem(outcome, out):
            return Ran(outcome, problem)
        try:
            result = json.loads(answer.read_bytes())["result"]
        except FileNotFoundError:
            return Ran(outcome, _NO_ANSWER)
        return Ran(outcome, "", result)

    def fresh(self, out: Path) -> None:
        """Make a directory, empty whatever was there."""
        trees.remove(out)
        out.mkdir()

    def _variables(self, scratch: Path) -> dict[str, str]:
        """Give the environment of a program: the harness's own, and defaults that nobody has set."""
        variables = dict(os.environ)
        variables.setdefault(
            "PYTHONUNBUFFERED", "1"
        )  # what it prints is in the log when it is killed
        if self.env.cpus is not None:
            # Libraries start a thread for every core of the node, which is more than the pod may use
            threads = str(max(1, math.ceil(self.env.cpus)))
            for name in _THREAD_VARIABLES:
                variables.setdefault(name, threads)
        if "TMPDIR" not in variables and not os.access("/tmp", os.W_OK):
            variables["TMPDIR"] = str(scratch)  # a read-only root file system
        return variables


def _problem(outcome: Outcome, out: Path) -> str:
    """Say why a program is no success; raise where it is not for the task to deal with."""
    if outcome.killed_for_memory:
        raise MemoryKillError(
            f"the kernel killed the simulation for memory ({outcome.message})", outcome.tail
        )
    if outcome.stopped is not None:
        outcome.stopped.tail = list(outcome.tail)
        raise outcome.stopped
    if outcome.ok:
        return "" if out.is_dir() else "the program removed its output directory"
    last = next((line.strip() for line in reversed(outcome.tail) if line.strip()), "")
    return f"{outcome.message}: {last[:300]}" if last else outcome.message
