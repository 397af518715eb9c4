"""Processes that a benchmark has beside its own: started from one file, they speak JSON on lines of their pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

LINE_MAX = 2**30
"""Bytes of a line; a reader tells all that it saw at once."""


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def line() -> None:
    """Wait for a line of stdin, which the main process sends."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


@contextlib.asynccontextmanager
async def started(script: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_MAX,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def heard(process: asyncio.subprocess.Process, within_s: float) -> Any:
    if process.stdout is None:
        raise AssertionError("it was started with a pipe")
    async with asyncio.timeout(within_s):
        return json.loads(await process.stdout.readline())


def go_on(process: asyncio.subprocess.Process) -> None:
    if process.stdin is None:
        raise AssertionError("it was started with a pipe")
    process.stdin.write(b"\n")
