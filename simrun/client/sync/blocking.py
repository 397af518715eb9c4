"""What the calls of Client share: a loop in a thread of its own, in which the AsyncClient does the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from anyio.from_thread import BlockingPortal, start_blocking_portal

from simrun.client.client import AsyncClient
from simrun.client.transport import TRIES

T = TypeVar("T")


class Blocking:
    """An AsyncClient and its thread."""

    def __init__(
        self, url: str | None = None, *, token: str | None = None, tries: int = TRIES
    ) -> None:
        """Name the server.

        url: $SIMRUN_SERVER where it is None. token: $SIMRUN_TOKEN likewise; "" for none. tries: 1 for calls that are made once.
        """
        self._client = AsyncClient(url, token=token, tries=tries)
        self._portal: BlockingPortal | None = None
        self._open = ExitStack()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._client.url

    def __enter__(self) -> Self:
        """Start the thread and open the connections."""
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal("asyncio"))
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._open = stack.pop_all()
        self._portal = portal
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections and end the thread."""
        self._portal = None
        self._open.__exit__(exc_type, exc, traceback)

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Have a call made, and wait for what it gives."""
        if self._portal is None:
            call.close()  # it will not be awaited
            raise RuntimeError(f"use the client as `with {type(self).__name__}(url)`")
        result: T = self._portal.call(_awaited, call)
        return result

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield what a stream gives; leaving the loop over it, also by Ctrl-C, closes the stream."""
        portal = self._portal
        if portal is None:
            raise RuntimeError(f"use the client as `with {type(self).__name__}(url)`")
        # The next item and the closing come from different tasks; only one may be in the generator
        turn = portal.call(_lock)
        try:
            while True:
                future = portal.start_task_soon(_next, items, turn)
                try:
                    found = future.result()
                except BaseException:
                    future.cancel()
                    raise
                if not found:
                    return
                yield found[0]
        finally:
            portal.call(_close, items, turn)


async def _awaited(call: Coroutine[Any, Any, T]) -> T:
    return await call


async def _lock() -> asyncio.Lock:
    return asyncio.Lock()


async def _next(items: AsyncIterator[T], turn: asyncio.Lock) -> tuple[T] | tuple[()]:
    """Give the next item in a tuple, or an empty one at the end: StopIteration may not leave a coroutine."""
    async with turn:
        try:
            return (await anext(items),)
        except StopAsyncIteration:
            return ()


async def _close(items: AsyncIterator[T], turn: asyncio.Lock) -> None:
    async with turn:
        await cast("AsyncGenerator[T, None]", items).aclose()
