"""Gets and starts the programs that bench_watch.py measures beside simrun, and speaks to them: a command, an answer, each a line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KOPF = "kopf==1.45.2"
_LINE = 64 * 2**20
_ANSWER_S = 120.0


def cache() -> Path:
    """Give where built programs are kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "simrun-benchmarks"


def go_program() -> Path:
    """Build main.go, unless it is built."""
    target, source = cache() / "peers", cache() / "source"
    files = [HERE / name for name in ("main.go", "go.mod", "go.sum")]
    newest = max(file.stat().st_mtime for file in files)
    if target.exists() and target.stat().st_mtime > newest:
        return target
    source.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, source)
    _run("go", "build", "-o", target, ".", cwd=source)
    return target


def kopf_python() -> Path:
    """Give a Python that has kopf and nothing of simrun's."""
    python = cache() / KOPF / "bin" / "python"
    if not (python.parent / "kopf").exists():
        _run(sys.executable, "-m", "venv", cache() / KOPF)
        _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", KOPF)
    return python


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)


class Peer:
    """A program that was started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, command: str) -> Any:
        """Send a command and give its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        return await self.answer()

    async def answer(self) -> Any:
        """Wait for a line."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_ANSWER_S):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a program ended: {await self._process.wait()}")
        return json.loads(line)


@contextlib.asynccontextmanager
async def started(*command: str | Path) -> AsyncIterator[Peer]:
    """Run a program until left; its standard input is closed then, which ends it."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=_LINE
    )
    try:
        peer = Peer(process)
        if (word := await peer.answer()) != "ready":
            raise RuntimeError(f"{command[0]} says {word!r}")
        yield peer
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
