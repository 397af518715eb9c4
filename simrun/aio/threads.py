"""Blocking work in a pool of its own, one hop per operation.

asyncio's default executor also serves DNS: a few calls that hang on a dead NFS server there would stall every look-up of the process. And a
write whose caller was cancelled goes on in its thread; `in_thread` waits for it, so that nothing writes behind one's back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """How busy a pool is: calls that run or wait, and its threads."""

    pending: int
    threads: int


class Pool:
    """A named pool of threads. Closing it does not wait: a thread that hangs in the kernel can't be ended."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self._threads = threads
        self._pending = 0
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run fn(*args) in the pool; on cancellation wait for it to end, then raise CancelledError."""
        loop = asyncio.get_running_loop()
        self._pending += 1
        future = loop.run_in_executor(self._executor, lambda: fn(*args, **kwargs))
        cancelled: asyncio.CancelledError | None = None
        try:
            while not future.done():
                try:
                    await asyncio.wait({future})  # does not cancel the future
                except asyncio.CancelledError as error:
                    cancelled = error
        finally:
            self._pending -= 1
        if cancelled is not None:
            if not future.cancelled():
                future.exception()  # seen, so that nothing is logged about it
            raise cancelled
        return future.result()

    def statistics(self) -> PoolStatistics:
        """Give how busy the pool is."""
        return PoolStatistics(self._pending, self._threads)

    def close(self) -> None:
        """Take no more calls and drop the waiting ones; running ones end by themselves."""
        self._executor.shutdown(wait=False, cancel_futures=True)


async def in_thread(pool: Pool, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run fn(*args) in `pool`; the spelling for where the pool is not at hand as an object with a name."""
    return await pool.run(fn, *args, **kwargs)
