"""scheduler/snapshot.json: up to where every schedule is dealt with, so that a start looks only at what came since.

It is no truth, only a saving of work. Lost, cut, or older than what happened, it makes the next start look at more instants, and those
have their runs already. So whatever can't be read counts as none, after a copy of it was put aside.

    {"schema": 1, "at": …, "schedules": {"<group>.<plan>": {version, activated, considered, last, counts, failures, losses}}}

`at` is the last tick; a schedule without `considered` of its own had nothing left to do then. A record counts only for the activation it
names: the marks of another version say nothing. scheduler/catchup/<schedule> is such a record too, written while a catch-up goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, Field

from simrun.aio.threads import Pool
from simrun.base.errors import DamagedRecord, UnknownSchema
from simrun.model.base import StoredModel
from simrun.model.launchplan import instant_text
from simrun.scheduler.history import Counts, Failure, History, LastFire, Loss
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files

log = logging.getLogger(__name__)

SNAPSHOT_SCHEMA: Final = 1
NO_VERSION: Final = "?"
"""Stands in the record of a plan that was not active when it was written; no version is called so."""
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class LaneRecord(StoredModel):
    """What is kept of one schedule."""

    version: str = ""
    """"" in a record that an older simrun wrote: it counts for every version."""
    activated: AwareDatetime = NEVER
    considered: AwareDatetime | None = None
    counts: Counts = Counts()
    last: LastFire | None = None
    failures: list[Failure] = []
    losses: list[Loss] = []

    @property
    def history(self) -> History:
        """What became of its instants."""
        return History.of(self.counts, self.last, self.failures, self.losses)

    def mark_for(self, version: str, activated: datetime, at: datetime) -> datetime | None:
        """Give the instant up to which an activation is dealt with, `at` being the time of the snapshot; None if this says nothing of it."""
        if self.version and (self.version, self.activated) != (version, activated):
            return None
        return at if self.considered is None else self.considered


class Snapshot(StoredModel):
    """The snapshot as a whole."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    at: AwareDatetime = NEVER
    schedules: dict[str, LaneRecord] = {}


def record_of(history: History) -> str:
    """Give what is kept of a plan that is not active, as JSON."""
    record = LaneRecord(
        version=NO_VERSION,
        counts=history.totals,
        last=history.last,
        failures=list(history.failures),
        losses=list(history.losses),
    )
    return record.model_dump_json(exclude_defaults=True, by_alias=True)


class Snapshotter:
    """Reads and writes the files, in threads."""

    def __init__(self, root: Path, pool: Pool) -> None:
        self._layout = StoreLayout(root)
        self._pool = pool

    @property
    def _path(self) -> Path:
        return self._layout.scheduler / "snapshot.json"

    @property
    def _progress(self) -> Path:
        return self._layout.scheduler / "catchup"

    async def load(self) -> Snapshot:
        """Give the last snapshot; an empty one when there is none that can be read. Raises OSError."""
        return await self._pool.run(self._load)

    async def save(self, at: datetime, records: Mapping[str, str]) -> None:
        """Replace the snapshot."""
        await self._pool.run(self._save, at, records)

    async def load_progress(self) -> Mapping[str, LaneRecord]:
        """Give the records of catch-ups that were not finished. Raises OSError."""
        return await self._pool.run(self._load_progress)

    async def save_progress(self, key: str, record: str) -> None:
        """Write the record of a catch-up that goes on. A hint, so it is not fsynced."""
        await self._pool.run(self._save_progress, key, record)

    async def clear_progress(self) -> None:
        """Take the records of catch-ups away."""
        await self._pool.run(self._clear_progress)

    # --- in threads ----------------------------------------------------------------------------------------------------

    def _load(self) -> Snapshot:
        listed = files.listed(self._layout.root, self._layout.scheduler.name, self._path.name)
        data = files.read(self._path, listed=listed)
        if data is None:
            return Snapshot()
        try:
            return codec.decode(Snapshot, _upgraded(data), self._path)
        except DamagedRecord as error:
            kept = self._aside(data, newer=isinstance(error, UnknownSchema))
            log.warning("%s; it is kept as %s, and the start goes on without it", error, kept)
            return Snapshot()

    def _aside(self, data: bytes, *, newer: bool) -> Path:
        """Keep what can't be read under a name of its content."""
        files.make_directory(self._layout.damaged)
        kind = "newer" if newer else "damaged"
        digest = hashlib.sha256(data).hexdigest()[:16]
        kept = self._layout.damaged / f"scheduler-snapshot-{kind}-{digest}.json"
        files.create(kept, data)
        return kept

    def _save(self, at: datetime, records: Mapping[str, str]) -> None:
        files.make_directory(self._layout.scheduler)
        body = ",\n".join(f"{json.dumps(key)}:{record}" for key, record in records.items())
        head = f'{{"schema":{SNAPSHOT_SCHEMA},"at":"{instant_text(at)}","schedules":{{\n'
        files.replace(self._path, f"{head}{body}\n}}}}\n".encode())

    def _load_progress(self) -> dict[str, LaneRecord]:
        found = {}
        for key in files.listing(self._progress):
            try:
                record = codec.read(LaneRecord, self._progress / key, listed=True)
            except DamagedRecord:
                continue  # not fsynced, so a crash may have cut it
            if record is not None:
                found[key] = record
        return found

    def _save_progress(self, key: str, record: str) -> None:
        files.make_directory(self._progress)
        data = f'{{"schema":{SNAPSHOT_SCHEMA},{record.removeprefix("{")}\n'
        files.replace(self._progress / key, data.encode(), durable=False)

    def _clear_progress(self) -> None:
        for key in files.listing(self._progress):
            (self._progress / key).unlink(missing_ok=True)


def _upgraded(data: bytes) -> bytes:
    """Give a snapshot in the present form; schema 0 was {schedule: its last instant}, whatever the version."""
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(value, dict) or value.get("schema", 0) != 0:
        return data
    marks = value.get("schedules", {})
    if not isinstance(marks, dict):
        return data
    schedules = {key: {"considered": mark} for key, mark in marks.items()}
    return files.encode({"schema": SNAPSHOT_SCHEMA, "schedules": schedules})
