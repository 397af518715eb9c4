"""Blocking calls in threads: pools with a name, one hop per operation, and nothing that keeps writing behind our back.

asyncio.to_thread has two faults here. Its one pool serves everybody, so that a file server that hangs takes name lookups
and the API with it. And when the caller is cancelled the thread goes on: a record is written after the code that wanted
it has given up. So each kind of work has a pool of its own, and `in_thread` returns only when the thread has, or when no
thread had taken the call yet.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


class Saturated(TimeoutError):  # noqa: N818 - says the state of the pool, and is an error by its base
    """Raised when no thread of a pool became free in time; the call was not begun, so trying again later is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """What a pool is doing: calls that a thread has taken (`busy`), and calls that wait for one."""

    name: str
    threads: int
    busy: int
    waiting: int

    @property
    def saturated(self) -> bool:
        """Whether a new call would have to wait."""
        return self.busy >= self.threads


class Pool:
    """A fixed number of threads for one kind of blocking work.

    `patience_s` is how long a call may wait for a thread before `in_thread` raises Saturated; None waits for ever. A
    call that a thread has taken is never given up: a thread cannot be stopped, and what it writes would come as a
    surprise. So a server that hangs costs at most `threads` callers, and the others are told at once. `measure` is told each
    function that was called and the seconds it took, in its thread.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        patience_s: float | None = None,
        measure: Callable[[Callable[..., Any], float], None] | None = None,
    ) -> None:
        if threads < 1:
            raise ValueError(f"a pool needs at least one thread (pool {name!r}, threads {threads})")
        self.name = name
        self.threads = threads
        self.patience_s = patience_s
        self.measure = measure
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._unfinished: set[Future[Any]] = set()

    @property
    def executor(self) -> Executor:
        """The threads as a library takes them that waits by itself; its calls are counted like all others."""
        return _Threads(self)

    @property
    def statistics(self) -> PoolStatistics:
        """What the pool is doing now."""
        busy = sum(call.running() for call in list(self._unfinished))
        waiting = max(len(self._unfinished) - busy, 0)
        return PoolStatistics(name=self.name, threads=self.threads, busy=busy, waiting=waiting)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread of this pool: `in_thread`, from the pool's point of view."""
        return await in_thread(self, function, *args, **kwargs)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Hand a call to the threads; for `in_thread`, which adds what a coroutine needs."""
        call = self._executor.submit(function)
        self._unfinished.add(call)
        call.add_done_callback(self._unfinished.discard)
        return call

    def close(self) -> None:
        """Take no more calls and drop those that wait; those that run are left to end."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class _Threads(Executor):
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(functools.partial(fn, *args, **kwargs))


async def in_thread(
    pool: Pool, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call `function` in a thread of `pool` and give its result.

    A caller that is cancelled gets its CancelledError once the thread has ended, or at once if none had begun; what the
    function raised then is logged, since nobody else would hear of it. Raises Saturated as the pool says.
    """
    context = contextvars.copy_context()
    called = functools.partial(context.run, function, *args, **kwargs)
    if pool.measure is not None:
        called = functools.partial(_measured, pool.measure, function, called)
    call = pool.submit(called)
    future = asyncio.wrap_future(call)
    cancelled: asyncio.CancelledError | None = None
    patience = pool.patience_s
    while not future.done():
        try:
            done, _ = await asyncio.wait({future}, timeout=patience)
        except asyncio.CancelledError as error:
            cancelled = error
            patience = None
            call.cancel()  # without effect once a thread has it
            continue
        if not done:
            patience = None
            if call.cancel():
                raise Saturated(
                    f"all {pool.threads} threads of {pool.name} have been busy for {pool.patience_s} s"
                )
    if cancelled is not None:
        if not future.cancelled() and (failure := future.exception()) is not None:
            logger.error("A call failed after its caller was cancelled", exc_info=failure)
        raise cancelled
    return future.result()


def _measured(
    measure: Callable[[Callable[..., Any], float], None],
    function: Callable[..., Any],
    called: Callable[[], T],
) -> T:
    begun = time.monotonic()
    try:
        return called()
    finally:
        measure(function, time.monotonic() - begun)
