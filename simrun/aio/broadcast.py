"""One publisher, many subscribers, none of whom can hold up the others.

Each subscriber has a bounded stream of its own. Whoever doesn't keep up loses what doesn't fit and is told so by `lagged`: it then looks
at the present state instead of the changes it missed, which for states of runs is what it wants anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Subscription(Generic[T]):
    """What a subscriber holds. `lagged` says that something was dropped since it was last cleared."""

    _send: MemoryObjectSendStream[T]
    _receive: MemoryObjectReceiveStream[T]
    lagged: bool = field(default=False)

    async def next(self, timeout_s: float | None = None) -> T | None:
        """Wait for what is published next; None after `timeout_s` seconds, and when the publisher has closed."""
        try:
            with anyio.move_on_after(timeout_s):
                return await self._receive.receive()
        except anyio.EndOfStream:
            pass
        return None

    def offer(self, item: T) -> None:
        """Put an item in, or note that it did not fit."""
        try:
            self._send.send_nowait(item)
        except anyio.WouldBlock:
            self.lagged = True


class Broadcast(Generic[T]):
    """Gives every item to all who subscribe at that moment. Belongs to one event loop; nothing of it waits but `next`."""

    def __init__(self, *, capacity: int = 64) -> None:
        self._capacity = capacity
        self._subscriptions: set[Subscription[T]] = set()
        self._closed = False

    @contextmanager
    def subscribe(self) -> Iterator[Subscription[T]]:
        """Take part for as long as this lasts."""
        send, receive = anyio.create_memory_object_stream[T](self._capacity)
        subscription = Subscription(send, receive)
        if self._closed:
            send.close()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            send.close()
            receive.close()

    def publish(self, item: T) -> None:
        """Give an item to every subscriber; never waits."""
        for subscription in self._subscriptions:
            subscription.offer(item)

    def close(self) -> None:
        """Let every subscriber come to its end after what it has not read yet."""
        self._closed = True
        for subscription in self._subscriptions:
            subscription._send.close()  # noqa: SLF001 - the two classes are one thing

    def __len__(self) -> int:
        """Give how many take part."""
        return len(self._subscriptions)
