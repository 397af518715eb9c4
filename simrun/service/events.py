"""The stream of all runs: a snapshot, then every change, for any number of readers.

    record written ─> tell ─> row, encoded once ─> ring of the last changes ─┬─> reader: a place in the ring, no queue of its own
                                               └─> table of the present      └─> …

A reader holds a place. Who comes back with one that the ring still has is told what he missed; with any other, of another process say, he
gets a snapshot. So nobody is ever told less than the present, and a reader that stands still holds nothing but its place.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from simrun.aio.bell import Bell
from simrun.base.clock import Clock, SystemClock
from simrun.model.record import RunRecord
from simrun.service.runrow import RunRow, row_of

RING = 10_000
"""Changes that can be told later."""
KEPT_S = 300.0
"""How long an ended run stays in the snapshot."""
AT_ONCE = 256
"""Changes that a reader is given in one piece; more would be memory for each one that lags."""
EVERY_S = 0.05
"""Changes that come quicker are told together."""
BEAT_S = 7.0
"""After so long, or half as long again, without a word a reader is told that the connection lives."""
SNAPSHOT_S = 1.0
"""How long readers are given the same snapshot while nothing changes."""
CACHED = 64
"""Pieces and snapshots that are kept for the readers that want the same."""
PING = b": ping\n\n"

Groups = frozenset[str] | None
"""Whose runs a reader sees; None: everybody's."""


def frame(kind: str, data: bytes, ident: str) -> bytes:
    """Give an event as it is sent; `data` has no line break."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), ident.encode(), data)


@dataclass(frozen=True, slots=True)
class Change:
    """One change, as all readers get it who see the group."""

    group: str
    data: bytes


@dataclass(frozen=True, slots=True)
class _Present:
    """A run as it is now."""

    group: str
    revision: int
    live: bool
    ended: float
    text: bytes


class Events:
    """What the service says of all its runs. Belongs to one event loop; `load` gives the rows of a snapshot, once."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Iterable[RunRow]]],
        clock: Clock | None = None,
        *,
        size: int = RING,
        boot: str | None = None,
    ) -> None:
        self._load, self._clock = load, clock or SystemClock()
        self.boot = boot or os.urandom(4).hex()
        """Of this process: places in the ring of another mean nothing here."""
        self.bell = Bell(every_s=EVERY_S, beat_s=BEAT_S)
        """Rung at each change."""
        self.seq = 0
        """The number of the last change."""
        self._ring: list[Change | None] = [None] * size
        self._runs: dict[str, _Present] = {}
        self._ended: deque[tuple[float, str]] = deque()
        self._loading = asyncio.Lock()
        self._loaded = False
        self._gone: set[str] = set()
        """Deleted before the table was loaded."""
        self._pieces: dict[tuple[int, int, Groups], bytes] = {}
        self._snapshots: dict[Groups, tuple[int, float, bytes]] = {}

    # --- what happened ---------------------------------------------------------------------------------------------------

    def tell(self, record: RunRecord) -> None:
        """Tell the present record of a run; one that is older than what was told is passed over."""
        known = self._runs.get(record.id)
        if known is not None and known.revision >= record.revision:
            return
        present = self._keep(row_of(record))
        self._add("run", record.group, present.text)
        self._forget_old()

    def gone(self, record: RunRecord) -> None:
        """Tell that a run was deleted."""
        if not self._loaded:
            self._gone.add(record.id)
        self._runs.pop(record.id, None)
        body = json.dumps({"id": record.id, "group": record.group}, separators=(",", ":"))
        self._add("deleted", record.group, body.encode())

    def _add(self, kind: str, group: str, data: bytes) -> None:
        self.seq += 1
        self._ring[self.seq % len(self._ring)] = Change(
            group, frame(kind, data, self._id(self.seq))
        )
        self.bell.ring()

    def _keep(self, row: RunRow) -> _Present:
        ended = row.ended if row.ended is not None else self._clock.wall()
        present = _Present(row.group, row.revision, row.live, ended, row.text().encode())
        self._runs[row.id] = present
        if not row.live:
            self._ended.append((ended, row.id))
        return present

    def _forget_old(self) -> None:
        """Drop what has ended too long ago, so that the table stays as small as what is live."""
        since = self._clock.wall() - KEPT_S
        while self._ended and self._ended[0][0] < since:
            _, run_id = self._ended.popleft()
            present = self._runs.get(run_id)
            if present is not None and not present.live and present.ended < since:
                del self._runs[run_id]

    # --- what a reader is given ------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Load what was live before this process told of it; at the first reader, since most processes have none."""
        async with self._loading:
            if self._loaded:
                return
            rows = sorted(await self._load(), key=lambda row: row.ended or 0.0)
            for row in rows:
                known = self._runs.get(row.id)
                if row.id not in self._gone and (known is None or known.revision < row.revision):
                    self._keep(row)
            self._loaded = True
            self._gone.clear()
            self._snapshots.clear()

    def place(self, last_id: str | None) -> int | None:
        """Give the place that the id of an event stands for; None when a snapshot is due: no id, another process, too long ago."""
        boot, _, number = (last_id or "").partition(".")
        if boot != self.boot or not (number.isascii() and number.isdigit()) or len(number) > 18:
            return None
        place = int(number)
        return place if self.has(place) else None

    def has(self, place: int) -> bool:
        """Whether every change behind a place is still known."""
        return self.seq - len(self._ring) <= place <= self.seq

    def after(self, place: int, groups: Groups) -> tuple[int, bytes]:
        """Give the next changes behind a place, in one piece, and the place after them. The place must be one that `has` allows."""
        end = min(self.seq, place + AT_ONCE)
        key = (place, end, groups)
        piece = self._pieces.get(key)
        if piece is None:
            size = len(self._ring)
            changes = (self._ring[number % size] for number in range(place + 1, end + 1))
            piece = b"".join(
                change.data
                for change in changes
                if change is not None and (groups is None or change.group in groups)
            )
            if len(self._pieces) >= CACHED:
                self._pieces.clear()
            self._pieces[key] = piece
        return end, piece

    def snapshot(self, groups: Groups) -> tuple[int, bytes]:
        """Give the runs that are live or ended a short while ago as an event, and the place behind it."""
        self._forget_old()
        now = self._clock.monotonic()
        seq, made, data = self._snapshots.get(groups, (-1, 0.0, b""))
        if seq == self.seq and now - made < SNAPSHOT_S:
            return seq, data
        since = self._clock.wall() - KEPT_S
        runs = b",".join(
            run.text
            for run in self._runs.values()
            if (groups is None or run.group in groups) and (run.live or run.ended >= since)
        )
        body = b'{"at":%.3f,"runs":[%s]}' % (self._clock.wall(), runs)
        data = frame("snapshot", body, self._id(self.seq))
        if len(self._snapshots) >= CACHED:
            self._snapshots.clear()
        self._snapshots[groups] = self.seq, now, data
        return self.seq, data

    def _id(self, seq: int) -> str:
        return f"{self.boot}.{seq}"
