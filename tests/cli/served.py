"""A store that a real `simrun serve` holds, and calls of the command line beside it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from click.testing import Result

from tests.cli.store import simrun

SIMRUN = [sys.executable, "-m", "simrun"]

QUICK = """
tasks:
  first: {command: "echo hello > {outputs.text}", outputs: {text: text.txt}, resources: {memory: 64Mi}}
"""
HELD = """
tasks:
  held:
    command: |
      echo started $$
      while [ ! -e {outputs.go} ]; do sleep 0.1; done
      echo over
      exit $(cat {outputs.go})
    outputs: {go: go}
    grace: 20
    resources: {memory: 64Mi}
"""
"""Its task goes on until it is told with which code to end."""


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Call a command in a process of its own, and wait for its end."""
    return subprocess.run(
        [*SIMRUN, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=50
    )


class Started:
    """A command that goes on beside the test; killed when it is left."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [*SIMRUN, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def reads(self, text: str) -> str:
        """Wait for a text on stderr; the line that holds it."""
        return _line_with(self.process.stderr, text)

    def prints(self, text: str) -> str:
        """Wait for a text on stdout; the line that holds it."""
        return _line_with(self.process.stdout, text)

    def ends(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Wait for its end, with `number` after sending it that signal: the exit code, and what was left on stdout and stderr."""
        if number is not None:
            self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=40)
        return self.process.returncode, stdout, stderr


class Served:
    """A `simrun serve` over a store, on a port of its own."""

    def __init__(self, store: Path, *options: str) -> None:
        self.store = store
        self._options = options
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start it, again on the same port."""
        self.running = Started(
            "serve", "--store", self.store, "--port", str(self.port), *self._options
        )
        try:
            line = self.running.reads("serving at")
        except BaseException:
            self.kill()
            raise
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.url, self.port = found[0], int(found[1])

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        with self.running:
            if self.running.process.poll() is None:
                self.running.ends(signal.SIGTERM)

    @property
    def pid(self) -> int:
        return self.running.process.pid

    def kill(self) -> None:
        """kill -9."""
        self.running.process.kill()
        self.running.process.communicate()

    def simrun(self, *arguments: str | Path) -> Result:
        """Call a command with the store, in this process."""
        return simrun(*arguments, "--store", self.store)

    def log(self, run: str) -> str:
        """Wait until the task of a HELD run has started, and give its log."""
        return log_of(self.store, run)

    def let_go(self, run: str, code: int = 0) -> None:
        """Have the task of a HELD run end."""
        let_go(self.store, run, code)


def log_of(store: Path, run: str) -> str:
    """Wait until the task of a HELD run has started, and give the logs of its attempts."""

    def text() -> str:
        logs = sorted((store / "runs" / run / "tasks" / "held" / "logs").glob("*.log"))
        return "".join(path.read_text() for path in logs)

    until(lambda: "started" in text())
    return text()


def let_go(store: Path, run: str, code: int = 0) -> None:
    """Have the task of a HELD run end."""
    out = store / "runs" / run / "tasks" / "held" / "out"
    (out / "new").write_text(f"{code}\n")
    (out / "new").rename(out / "go")


def until(holds: Callable[[], bool], seconds: float = 40) -> None:
    """Wait for what another process does, and nobody tells."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def _line_with(stream: IO[str] | None, text: str) -> str:
    assert stream is not None
    seen = ""
    while line := stream.readline():
        seen += line
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came:\n{seen}")
