"""Parts for tests of the local engine: real processes, a store in a temporary directory, pods made by hand."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from simrun.backends.base import BackendStatus
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.model.record import RunRecord, RunTimes
from simrun.pods import Pod

MIB = 2**20


@dataclass
class Engine:
    """An open engine and what tests do with it."""

    backend: LocalBackend
    pods: dict[str, list[Pod]]
    config: LocalConfig

    async def submit(self, *pods: Pod, run: str = "run") -> str:
        self.pods[run] = list(pods)
        record = RunRecord(id=run, times=RunTimes(created=0.0))
        return await self.backend.submit(record, {}, {})

    async def when(self, name: str, condition) -> BackendStatus:
        """Wait for events until the status of a workflow is as wanted."""
        events = self.backend.events()
        while True:
            status = await self.backend.status(name)
            assert status is not None
            if condition(status):
                return status
            await anext(events)

    async def ended(self, name: str) -> BackendStatus:
        return await self.when(name, lambda status: status.phase.ended)

    async def finish(self, *pods: Pod, run: str = "run") -> BackendStatus:
        return await self.ended(await self.submit(*pods, run=run))

    async def log(self, name: str, worker: str, attempt: int = 0) -> str:
        return b"".join(
            [chunk async for chunk in self.backend.logs(name, worker, attempt)]
        ).decode()

    def out(self, task: str, run: str = "run") -> Path:
        return self.config.layout.run(run).task(task).out


@pytest.fixture
def make_pod(tmp_path):
    """Make a pod that runs a command in the output directory of its task."""

    def make(worker, *command, run="run", **other):
        task = other.pop("task", worker)
        out = LocalConfig.for_store(tmp_path / "store").layout.run(run).task(task).out
        settings = {
            "worker": worker,
            "task": task,
            "type": "type",
            "role": "exec",
            "command": command,
            "working_dir": str(out),
            "scratch": f"{run}/{worker}",
            "grace_s": 5.0,
        }
        return Pod(**settings | other)

    return make


@pytest.fixture
def shell(make_pod):
    """Make a pod that runs lines of a shell."""

    def make(worker, script, **other):
        return make_pod(worker, "/bin/sh", "-c", script, **other)

    return make


@pytest.fixture
def python(make_pod):
    """Make a pod that runs lines of Python, without anything of this project."""

    def make(worker, script, **other):
        return make_pod(worker, "/usr/bin/env", "python3", "-I", "-S", "-c", script, **other)

    return make


@pytest.fixture
def open_engine(tmp_path):
    """Open an engine on the store of this test; several in turn see what the one before left."""

    @asynccontextmanager
    async def opened(*, end_attempts=True, environ=None, **settings):
        settings.setdefault("cpus", 8)
        config = LocalConfig.for_store(tmp_path / "store", **settings)
        pods = {}
        backend = LocalBackend(
            config,
            end_attempts=end_attempts,
            environ=environ,
            pods=lambda record, _plans, _types, _config: pods[record.id],
        )
        async with backend:
            yield Engine(backend, pods, config)

    return opened


@pytest.fixture
async def engine(open_engine):
    async with open_engine() as engine:
        yield engine


@pytest.fixture
def gone():
    """Wait until processes are gone; their parent may need a moment to reap them."""

    async def wait(*pids):
        for pid in pids:
            while is_running(pid):
                await asyncio.sleep(0.01)

    return wait


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.fixture
def alive():
    return is_running


@pytest.fixture
def file_of(tmp_path):
    """Wait for a file that a command writes, and give its text."""

    async def wait(path, *, lines=1):
        while True:
            try:
                text = Path(path).read_text()
            except FileNotFoundError:
                text = ""
            if text.count("\n") >= lines:
                return text
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def kill_at_end():
    """Processes that must not outlive a test that fails."""
    pids = []
    yield pids.append
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
