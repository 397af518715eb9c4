"""A real `simrun serve` beside a test: started, asked over HTTP, killed, started again."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from simrun.model.workflow import Submission

TERMINAL = ("succeeded", "failed", "cancelled")


class Answer:
    """What came over HTTP."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body: Any = json.loads(body) if body else None


class Service:
    """`simrun serve` over a store; `private` holds what it keeps outside of it, and the HOME of commands."""

    def __init__(self, store: Path, private: Path, *, stop_within: float | None = None) -> None:
        self.store, self.private = store, private
        self.home = private / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self._stop_within = stop_within
        self._log = private / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        program = "from simrun.cli.main import main; main()"
        if self._stop_within is not None:
            short = f"import simrun.service.main as m; m.STOP_WITHIN_S = {self._stop_within}; "
            program = short + program
        where = ["--store", str(self.store), "--index", str(self.private / "index.sqlite")]
        begin = self._log.stat().st_size if self._log.exists() else 0
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "serve", *where, "--port", "0", "--cpus", "4"],
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self.home), "TMPDIR": str(self.private)},
                start_new_session=True,
            )

        def served() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log()
            text = self._log.read_bytes()[begin:].decode()
            if found := re.search(r"serving at (http://\S+?);", text):
                self.url = found[1]
            return bool(found)

        wait("the service", served)

    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(20)

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, and its end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold it where it asks nobody anything: each call of a thread has come back before the thread stops."""
        assert self.process is not None
        pid = self.process.pid
        self.process.send_signal(signal.SIGSTOP)
        try:
            wait("the service to stop", lambda: is_stopped(pid))
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, seconds: float = 10
    ) -> Answer:
        """Ask the API; an answer that is an error is an answer. Raises TimeoutError without one."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data=data,
            method=method or ("GET" if body is None else "POST"),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise TimeoutError from error
            raise

    def submit(self, run_id: str, what: Submission) -> Answer:
        """Ask for a run; the answer may be a refusal. `submitted` is for those that must not be refused."""
        body = {"id": run_id, "submission": what.model_dump(mode="json", by_alias=True)}
        return self.ask("/api/v1/runs", body)

    def submitted(self, run_id: str, what: Submission) -> None:
        answer = self.submit(run_id, what)
        assert answer.status == 201, f"{answer.body}\n{self.log()[-3000:]}"

    def run(self, run_id: str) -> dict[str, Any]:
        answer = self.ask(f"/api/v1/runs/{run_id}")
        assert answer.status == 200, answer.body
        assert isinstance(answer.body, dict)
        return answer.body

    def ended(self, run_id: str, seconds: float = 40) -> dict[str, Any]:
        """Wait until a run has ended with nothing pending."""

        def done() -> bool:
            record = self.run(run_id)
            pending = [name for name in record if name.startswith("pending_") and record[name]]
            return record["state"] in TERMINAL and not pending

        wait(f"the end of {run_id}\n{self.log()[-3000:]}", done, seconds)
        return self.run(run_id)

    def commands(self) -> list[int]:
        """The processes of runs: harness and commands."""
        assert self.process is not None
        return [pid for pid in pids_with(f"HOME={self.home}") if pid != self.process.pid]

    def open_gate(self, name: str = "gate") -> None:
        (self.home / name).touch()


@contextlib.contextmanager
def service(store: Path, *, stop_within: float | None = None) -> Iterator[Service]:
    """A service with a private directory of its own, not yet started; killed at the end, with everything it started."""
    with tempfile.TemporaryDirectory(prefix="simrun-serving-", ignore_cleanup_errors=True) as name:
        made = Service(store, Path(name), stop_within=stop_within)
        try:
            yield made
        finally:
            made.close()
            for pid in made.commands() if made.process else []:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def pids_with(variable: str) -> list[int]:
    """The processes of this machine that have a variable in their environment, `NAME=value`."""
    wanted = variable.encode()
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (directory / "environ").read_bytes().split(b"\0"):
                    found.append(int(directory.name))
    return sorted(found)


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped by a signal."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            states.append((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def wait(what: str, holds: Callable[[], bool], seconds: float = 40) -> None:
    """Wait for what other processes do, and nobody tells."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.02)
