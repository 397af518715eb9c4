"""Telling everybody which runs changed: each subscriber hears of a run once, however often it changed meanwhile."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator


class Subscription(AsyncIterator[str]):
    """One subscriber's view: run ids, from the moment of subscribing until the backend is closed."""

    def __init__(self) -> None:
        self._pending: dict[str, None] = {}
        self._news = asyncio.Event()
        self._closed = False

    def tell(self, run: str) -> None:
        """Note that a run changed."""
        self._pending[run] = None
        self._news.set()

    def close(self) -> None:
        """End the iteration once what is pending was heard."""
        self._closed = True
        self._news.set()

    async def __anext__(self) -> str:
        """Wait for the next run that changed."""
        while not self._pending:
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        run = next(iter(self._pending))
        del self._pending[run]
        return run


class Subscriptions:
    """All subscribers. Weakly: one that nobody iterates any more is forgotten."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Subscription] = weakref.WeakSet()

    def subscribe(self) -> Subscription:
        """Make a subscription; changes from now on are heard."""
        subscription = Subscription()
        self._all.add(subscription)
        return subscription

    def publish(self, run: str) -> None:
        """Tell everybody that a run changed."""
        for subscription in self._all:
            subscription.tell(run)

    def close(self) -> None:
        """End all subscriptions."""
        for subscription in self._all:
            subscription.close()
