"""A reflector keeps a local table equal to one kind of object of the API server: list, watch from there, and again.

It lists consistently (no resourceVersion, which a stale cache could answer), hands the whole list to its sink, and watches from the
resourceVersion of the list. Whatever ends the watch, a clean close by the server or an error, leads to a new list: slower than going on
where the stream broke off, but what was missed meanwhile, deletions too, is always found. It never ends and raises nothing but what is a
bug: a table that silently stopped being updated, while everyone goes on reading it, is the worst that can happen here.

Bookmarks matter although every end leads to a list: the server sends one a minute, and so tells a quiet stream from a dead one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from simrun.backends.kubernetes import errors, session
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.listing import list_with_version
from simrun.backends.kubernetes.session import KubeSession

_log = logging.getLogger(__name__)

LONGEST_LINE = 32 * 2**20
"""Bytes of one event. A server stores objects of 1.5 MiB; beyond this it is no event."""


class Sink(Protocol):
    """What a reflector writes to. Synchronous, so that nobody sees half a change."""

    def replace(self, objects: Iterable[JsonObject]) -> None:
        """Take what exists: all of it, and nothing else does."""
        ...

    def upsert(self, obj: JsonObject) -> None:
        """Take an object that is new or changed."""
        ...

    def drop(self, obj: JsonObject) -> None:
        """Take the last state of an object that is gone, or no longer selected."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Which objects: the path of their collection, a selector, and whether their metadata is enough."""

    path: str
    labels: str = ""
    metadata_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a reflector waits for what, in seconds."""

    silence_s: float = 70.0
    """Without a byte for as long, the connection counts as dead. Bookmarks come every 60 s."""
    server_s: tuple[float, float] = (300.0, 600.0)
    """The server is asked to end a watch after a time drawn from here, so that not all watches of a fleet end at once."""
    short_s: float = 5.0
    """A watch that ended sooner counts as failed, or a server that ends all at once would be listed without a pause."""
    first_s: float = 0.8
    longest_s: float = 30.0
    quiet_s: float = 120.0
    """Failures that lie further back are forgotten."""
    page: int = 500


@dataclass(slots=True)
class Backoff:
    """Waits between failures: none after the first, then doubling, drawn from [d, 2d) so that clients part."""

    timing: Timing
    random: random.Random = field(default_factory=random.Random)
    _failures: int = 0
    _last: float = -1e9

    def next(self, now: float) -> float:
        """Note a failure at the monotonic time `now` and give the seconds to wait."""
        if now - self._last > self.timing.quiet_s:
            self._failures = 0
        self._last = now
        self._failures += 1
        if self._failures == 1:
            return 0.0
        # The exponent is capped: 2.0 ** 2000 overflows after a day without a server
        delay = self.timing.first_s * 2.0 ** min(self._failures - 2, 30)
        return min(delay * self.random.uniform(1, 2), self.timing.longest_s)


@dataclass(frozen=True, slots=True)
class ReflectorStatistics:
    """What a reflector has done, and how fresh its table is (seconds since the server was last heard, None: never)."""

    lists: int
    watches: int
    failures: int
    age_s: float | None


class Reflector:
    """Lists and watches one kind of object into a sink, for ever."""

    def __init__(
        self,
        kube: KubeSession,
        resource: Resource,
        sink: Sink,
        timing: Timing | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._kube = kube
        self._resource = resource
        self._sink = sink
        self._timing = timing or Timing()
        self._random = rng or random.Random()
        self._backoff = Backoff(self._timing, self._random)
        self._version = ""
        self._heard_at: float | None = None
        self._lists = self._watches = self._failures = 0
        self.synced = asyncio.Event()
        """Set once the table holds a whole list."""

    async def run(self) -> NoReturn:
        """Keep the sink up to date until cancelled."""
        while True:
            delay = 0.0
            try:
                await self.relist()
                await self.watch()
            except errors.ApiError as error:
                self._failures += 1
                delay = max(error.after or 0.0, self._backoff.next(_now()))
                _log.warning(
                    "list-watch failed, will list again",
                    extra={"path": self._resource.path, "error": str(error), "delay_s": delay},
                )
            await asyncio.sleep(delay)

    async def relist(self) -> None:
        """Read all objects and hand them to the sink."""
        items, version = await list_with_version(
            self._kube,
            self._resource.path,
            self._resource.labels,
            accept=session.METADATA_LIST if self._resource.metadata_only else session.JSON,
            page=self._timing.page,
        )
        self._lists += 1
        self._heard()
        self._sink.replace(items)
        self._version = version
        self.synced.set()

    async def watch(self) -> None:
        """Follow changes from the last list on; returns when the server ends the stream in good order."""
        seconds = self._random.uniform(*self._timing.server_s)
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        if self._resource.labels:
            query["labelSelector"] = self._resource.labels
        accept = session.METADATA if self._resource.metadata_only else session.JSON
        self._watches += 1
        begun = _now()
        stream = self._kube.stream(
            self._resource.path, query, accept=accept, silence_s=self._timing.silence_s
        )
        async with aclosing(stream), aclosing(_lines(stream)) as lines:
            async for line in lines:
                self._apply(line)
        if _now() - begun < self._timing.short_s:
            raise errors.ServerFailure(
                f"watch of {self._resource.path}: ended by the server at once"
            )

    def statistics(self) -> ReflectorStatistics:
        """Give what this reflector has done so far."""
        age = None if self._heard_at is None else _now() - self._heard_at
        return ReflectorStatistics(self._lists, self._watches, self._failures, age)

    def _apply(self, line: bytes) -> None:
        """Hand one event of a watch to the sink; an ERROR event is raised."""
        try:
            event = json.loads(line)
            kind, obj = event["type"], event["object"]
            version = "" if kind == "ERROR" else str(obj["metadata"]["resourceVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise errors.Nonsense(
                f"watch of {self._resource.path}: {line[:100]!r} is no event"
            ) from error
        self._heard()
        if kind == "ERROR":
            raise errors.status_error(f"watch of {self._resource.path}", obj)
        if kind in ("ADDED", "MODIFIED"):
            self._sink.upsert(obj)
        elif kind == "DELETED":
            self._sink.drop(obj)
        # Only now, when it is applied; a BOOKMARK brings nothing else
        self._version = version

    def _heard(self) -> None:
        self._heard_at = _now()


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Cut a stream into lines of any length up to LONGEST_LINE. Raises Nonsense for a longer one, and for one without an end."""
    buffer = bytearray()
    searched = 0
    async for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            searched = 0
            if line:
                yield line
        searched = len(buffer)
        if searched > LONGEST_LINE:
            raise errors.Nonsense(f"watch: a line of more than {LONGEST_LINE} bytes")
    if buffer:
        raise errors.Nonsense(f"watch: cut off in the middle of {bytes(buffer[:100])!r}")


def _now() -> float:
    return asyncio.get_running_loop().time()
