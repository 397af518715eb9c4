"""A reflector keeps a local table equal to one kind of object of the API server: list, watch from there, and again.

It lists consistently (no resourceVersion, which a stale cache could answer), hands the whole list to its sink, and watches from the
resourceVersion of the list. A watch that ended, in good order or not, goes on at the version that was applied last: nothing between is
missed, and what an object said only for a moment is seen although the connection broke in that moment. Only where that can't be, a new list
is made: the server forgot the version, its versions went back, an event can't be read, or one version fails again and again.

It never ends and raises nothing but what is a bug: a table that silently stopped being updated, while everyone goes on reading it, is
the worst that can happen here. Three clocks stand against it. Bookmarks come once a minute, and silence for longer is a dead connection.
`statistics` tells how long ago the server was last heard. And now and then, after a watch that ended in good order, an audit lists
all objects: whatever the list changes and the watch does not tell of in its turn, the watch has hidden; `drift` counts it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from simrun.backends.kubernetes import errors, session
from simrun.backends.kubernetes.backoff import Backoff, Timing
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.lines import lines
from simrun.backends.kubernetes.listing import pages
from simrun.backends.kubernetes.session import KubeSession

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """What a reflector writes to. Synchronous, so that nobody sees half a change."""

    def fact_of(self, obj: JsonObject) -> Any:
        """Give what is kept of an object: small, since a list of thousands stands in memory until it is whole."""
        ...

    def replace(self, facts: Iterable[Any]) -> None:
        """Take what exists, as `fact_of` gave it: all of it, and nothing else does."""
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


@dataclass(slots=True)
class ReflectorStatistics:
    """What a reflector has done. failures: of lists and watches; expired: lists that were needed since a watch could not go on.

    drift: objects that an audit found changed although the watch never told; anything but 0 means that the server, or a
    proxy in front of it, lies. age_s: seconds since the server was last heard, which is how fresh the table is; None: never.
    """

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    expired: int = 0
    audits: int = 0
    drift: int = 0
    age_s: float | None = None
    failing_s: float | None = None
    """Seconds for which nothing has succeeded; None while all goes well."""
    failure: str = ""
    """The last thing that went wrong since then."""


@dataclass(slots=True)
class _Audit:
    """A list that is checked against the watch.

    suspects: uids of what the list changed, until the watch tells of them; version: of the list, up to which it must.
    """

    suspects: set[str]
    version: int


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
        self.resource = resource
        self._sink = sink
        self._timing = timing or Timing()
        self._random = rng or random.Random()
        self._backoff = Backoff(self._timing, self._random)
        self._version = ""
        self._known: dict[str, str] = {}
        """resourceVersion by uid of what is in the sink."""
        self._audit: _Audit | None = None
        self._audit_at = 0.0
        self._heard_at: float | None = None
        self._failing_since: float | None = None
        self._failure = ""
        self._statistics = ReflectorStatistics()
        self.synced = asyncio.Event()
        """Set once the table holds a whole list."""

    async def run(self) -> NoReturn:
        """Keep the sink up to date until cancelled."""
        must_list, failed = True, 0
        while True:
            delay = 0.0
            events = self._statistics.events
            try:
                if must_list:
                    await self.relist()
                    must_list = False
                await self.watch()
                failed = 0
                if _now() >= self._audit_at:
                    await self.audit()
            except errors.ApiError as error:
                failed = 1 if self._statistics.events > events else failed + 1
                lost = isinstance(error, errors.Gone | errors.Nonsense)
                if not must_list and (lost or failed > self._timing.tries):
                    must_list, failed = True, 0
                    self._statistics.expired += 1
                self._statistics.failures += 1
                self._failure = str(error)
                if self._failing_since is None:
                    self._failing_since = _now()
                delay = max(error.after or 0.0, self._backoff.next(_now()))
                _log.warning(
                    "watching failed, will %s again",
                    "list" if must_list else "watch",
                    extra={"path": self.resource.path, "error": str(error), "delay_s": delay},
                )
            await asyncio.sleep(delay)

    async def relist(self) -> None:
        """Read all objects and hand them to the sink; the next watch begins there."""
        _, self._version = await self._list()
        self._audit = None

    async def audit(self) -> None:
        """Read all objects and hand them to the sink; the next watch begins where the last ended, and has to tell of every change."""
        before = dict(self._known)
        known, version = await self._list()
        self._statistics.audits += 1
        if not (version.isdecimal() and self._version.isdecimal()):
            self._version = version  # versions that can't be compared: nothing to check
            return
        changed = {uid for uid in before.keys() | known.keys() if before.get(uid) != known.get(uid)}
        self._audit = _Audit(changed, int(version))
        self._settle_audit()

    async def _list(self) -> tuple[dict[str, str], str]:
        found = pages(
            self._kube,
            self.resource.path,
            self.resource.labels,
            accept=session.METADATA_LIST if self.resource.metadata_only else session.JSON,
            page=self._timing.page,
        )
        facts: list[Any] = []
        known: dict[str, str] = {}
        version = ""
        async with aclosing(found):
            async for page in found:
                facts += [self._sink.fact_of(item) for item in page.items]
                known |= {_uid(item): _version(item) for item in page.items}
                version = page.version
        self._statistics.lists += 1
        self._heard()
        self._sink.replace(facts)
        self._known = known
        self._audit_at = _now() + self._random.uniform(*self._timing.audit_s)
        self.synced.set()
        return known, version

    async def watch(self) -> None:
        """Follow changes from the version applied last; returns when the server ends the stream in good order."""
        seconds = self._random.uniform(*self._timing.server_s)
        query = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        if self.resource.labels:
            query["labelSelector"] = self.resource.labels
        accept = session.METADATA if self.resource.metadata_only else session.JSON
        self._statistics.watches += 1
        begun, events = _now(), self._statistics.events
        stream = self._kube.stream(
            self.resource.path,
            query,
            accept=accept,
            silence_s=self._timing.silence_s,
            on_open=self._goes_well,
        )
        async with aclosing(stream), aclosing(lines(stream)) as found:
            async for line in found:
                self._apply(line)
        if self._statistics.events == events and _now() - begun < self._timing.short_s:
            raise errors.ServerFailure(
                f"watch of {self.resource.path}: ended by the server at once"
            )

    def statistics(self) -> ReflectorStatistics:
        """Give what this reflector has done so far, and how fresh its table is."""
        now, since = _now(), self._failing_since
        return replace(
            self._statistics,
            age_s=None if self._heard_at is None else now - self._heard_at,
            failing_s=None if since is None else now - since,
            failure="" if since is None else self._failure,
        )

    def _apply(self, line: bytes) -> None:
        """Take one event of a watch; an ERROR event is raised."""
        what = f"watch of {self.resource.path}"
        try:
            event = json.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise errors.status_error(what, obj)
            version, uid = _version(obj), "" if kind == "BOOKMARK" else _uid(obj)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.Nonsense(f"{what}: {line[:100]!r} is no event") from error
        if _is_older(version, self._version):
            raise errors.Gone(f"{what}: versions went back, from {self._version} to {version}")
        self._heard()
        self._statistics.events += 1
        audit = self._audit
        if audit is not None and version.isdecimal() and int(version) <= audit.version:
            audit.suspects.discard(uid)  # the list has brought this change already
        else:
            self._hand_over(kind, obj, uid, version)
        # Only now, when it is applied; a BOOKMARK brings nothing else
        self._version = version
        self._settle_audit()

    def _hand_over(self, kind: str, obj: JsonObject, uid: str, version: str) -> None:
        if kind in ("ADDED", "MODIFIED"):
            if self._known.get(uid) != version:  # else told twice
                self._sink.upsert(obj)
                self._known[uid] = version
        elif kind == "DELETED":
            self._sink.drop(obj)
            self._known.pop(uid, None)

    def _settle_audit(self) -> None:
        """Count what the watch, which has come as far as the list, did not tell of."""
        audit = self._audit
        if audit is None or int(self._version) < audit.version:
            return
        self._audit = None
        self._statistics.drift += len(audit.suspects)
        if audit.suspects:
            _log.error(
                "a watch did not tell of changes that a list found",
                extra={"path": self.resource.path, "uids": sorted(audit.suspects)[:10]},
            )

    def _heard(self) -> None:
        self._heard_at = _now()
        self._goes_well()

    def _goes_well(self) -> None:
        self._failing_since = None


def _uid(obj: JsonObject) -> str:
    return str(obj["metadata"]["uid"])


def _version(obj: JsonObject) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _is_older(version: str, than: str) -> bool:
    """Whether a version of one kind of object comes before another; versions that are no numbers can't be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _now() -> float:
    return asyncio.get_running_loop().time()
