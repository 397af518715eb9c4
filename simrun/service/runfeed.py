"""One run as its watchers see it: one look at store and backend per change, however many watch.

A change of the record is told; what workers commit is not, so that a watched run is looked at each second in any case. Looks in quick
succession are drawn together: the newest state is what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from simrun.aio.bell import Bell
from simrun.base.errors import BackendUnavailable, SimrunError
from simrun.service.events import frame
from simrun.service.progress import RunProgress

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Units are committed by workers without an event, so a run that is watched is looked at this often."""
EVERY_S = 0.02
PER_READER_S = 0.0002
EVERY_MOST_S = 0.1
"""Looks are at least EVERY_S apart, and more with many readers: each look may be a write to all of them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found. over: the run has ended with nothing pending, so this is the last word."""

    revision: int
    over: bool
    progress: RunProgress


@dataclass(frozen=True, slots=True)
class Told:
    """What watchers are told: what was seen, and the same as an event, encoded once."""

    seen: Seen
    data: bytes


Look = Callable[[str], Awaitable[Seen]]


class RunFeed:
    """The news of one run."""

    def __init__(self, run_id: str, look: Look, *, beat_s: float) -> None:
        self.run_id, self._look = run_id, look
        self.bell = Bell(beat_s=beat_s)
        self.readers = 0
        self.latest: Told | None = None
        self._version = 0
        self._failure: Exception | None = None
        self._woken = asyncio.Event()

    @property
    def done(self) -> bool:
        """Whether it looks no more: the run is over, or could not be looked at."""
        return self._failure is not None or (self.latest is not None and self.latest.seen.over)

    def wake(self) -> None:
        """Make it look again."""
        self._woken.set()

    async def run(self) -> None:
        """Look until the run is over, or until looking fails: then all readers are told, and whoever comes later begins anew."""
        loop = asyncio.get_running_loop()
        try:
            while not self.done:
                self._woken.clear()
                began = loop.time()
                self._tell(await self._look(self.run_id))
                if not self.done:
                    await self._pause(began)
        except (SimrunError, OSError, TimeoutError) as error:
            self._failure = error
        except Exception as error:
            log.exception("run %s can't be watched", self.run_id)
            self._failure = error
        finally:
            if not self.done:
                self._failure = BackendUnavailable("the service stops")
            self.bell.ring()

    def _tell(self, seen: Seen) -> None:
        if self.latest is not None and self.latest.seen == seen:
            return
        body = json.dumps(asdict(seen.progress), separators=(",", ":")).encode()
        self.latest = Told(seen, frame("run", body, str(seen.revision)))
        self._version += 1
        self.bell.ring()

    async def _pause(self, began: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._woken.wait()
        apart = min(EVERY_MOST_S, EVERY_S + self.readers * PER_READER_S)
        await asyncio.sleep(began + apart - asyncio.get_running_loop().time())

    async def news(self) -> AsyncGenerator[Told | None, None]:
        """Yield the newest that is told whenever that is new, None when nothing was for a beat; ends once the run is over.

        Who is slow misses what was between, never the last. Raises what looking raised.
        """
        version = 0
        while True:
            if self._version != version:
                version = self._version
                yield self.latest
            elif self._failure is not None:
                raise self._failure
            elif self.done:
                return
            else:
                await self.bell.wait()
                if self._version == version and not self.done:
                    yield None


class RunFeeds:
    """The feeds of the runs that are watched now. Use as an async context manager: their tasks live as long."""

    def __init__(self, look: Look, *, beat_s: float = 10.0) -> None:
        self._look = look
        self.beat_s = beat_s
        """How long a reader of a quiet run waits at the longest before it says that it lives."""
        self._feeds: dict[str, tuple[RunFeed, asyncio.Task[None]]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        """Begin."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Look no more; readers are told."""
        for _, task in self._feeds.values():
            task.cancel()
        # None of it is theirs: an error passes through as it is
        await self._group.__aexit__(None, None, None)

    def wake(self, run_id: str) -> None:
        """Look at a run again, if anybody watches it."""
        if (there := self._feeds.get(run_id)) is not None:
            there[0].wake()

    @contextmanager
    def reading(self, run_id: str) -> Iterator[RunFeed]:
        """Watch a run for as long as this lasts."""
        there = self._feeds.get(run_id)
        if there is None or there[0].done:
            feed = RunFeed(run_id, self._look, beat_s=self.beat_s)
            task = self._group.create_task(feed.run(), name=f"watch {run_id}")
            there = self._feeds[run_id] = feed, task
        feed, task = there
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                task.cancel()
                if self._feeds.get(run_id) is there:
                    del self._feeds[run_id]
