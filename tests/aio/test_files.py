"""Files that stream through a pool: nothing stays open, and nothing is opened for nobody."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from io import BufferedReader, BufferedWriter
from pathlib import Path

import pytest

from simrun.aio.files import opened
from simrun.aio.threads import Pool


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool("test", 2)
    yield pool
    pool.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a thread waits for; set at the end, so that no thread outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


async def busy(pool: Pool) -> None:
    while not pool.statistics.busy:
        await asyncio.sleep(0.001)


async def test_bytes_are_written_and_read_in_threads_of_the_pool(
    pool: Pool, tmp_path: Path
) -> None:
    names = []

    def target() -> BufferedWriter:
        names.append(threading.current_thread().name)
        return (tmp_path / "f").open("xb")

    async with opened(pool, target) as file:
        await file.write(b"some")
        await file.write(b" bytes")
    async with opened(pool, lambda: (tmp_path / "f").open("rb")) as file:
        assert await file.read(4) == b"some"
        await file.seek(0)
        assert await file.read() == b"some bytes"

    assert names[0].startswith("test")


async def test_what_the_opener_raises_comes_out(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with opened(pool, lambda: (tmp_path / "none").open("rb")):
            pass


async def test_a_file_that_is_opened_for_a_cancelled_caller_is_closed_again(
    pool: Pool, tmp_path: Path, gate: threading.Event
) -> None:
    (tmp_path / "f").write_bytes(b"bytes")
    files: list[BufferedReader] = []

    def slowly() -> BufferedReader:
        gate.wait()
        files.append((tmp_path / "f").open("rb"))
        return files[0]

    async def use() -> None:
        async with opened(pool, slowly):
            raise AssertionError("nobody is here any more")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(use())
        await busy(pool)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()  # what it has begun is waited for
        gate.set()

    assert task.cancelled()
    assert files[0].closed


async def test_closing_waits_for_a_read_that_a_cancelled_caller_left_behind(pool: Pool) -> None:
    reading, writing = os.pipe()
    pipe = os.fdopen(reading, "rb")
    open_now = asyncio.Event()

    async def use() -> None:
        async with opened(pool, lambda: pipe) as file:
            open_now.set()
            await file.read(1)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(use())
        await open_now.wait()
        await busy(pool)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        os.write(writing, b"x")
        os.close(writing)

    assert task.cancelled()
    assert pipe.closed
