"""SnapshotReader: which snapshots there are, and what they hold. All methods block."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from simrun.base.errors import DamagedRecord, NotFound
from simrun.model.snapshot import OWN_DIRECTORY, Entry, Snapshot, entry_of, name_problem
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files

HEADER, FILES = "snapshot.json", "files.jsonl"


class SnapshotReader:
    """Reads the snapshots of a run store."""

    def __init__(self, layout: StoreLayout) -> None:
        self.layout = layout
        self._top = layout.snapshots

    def all(self, groups: Collection[str] | None = None) -> list[Snapshot]:
        """Give the snapshots, of these groups or of all, by name. One whose header can't be read is left out."""
        found = []
        for name in sorted(files.listing(self._top)):
            with suppress(NotFound, DamagedRecord):
                found.append(self.get(name, groups))
        return found

    def get(self, name: str, groups: Collection[str] | None = None) -> Snapshot:
        """Give a snapshot. Raises NotFound, also for one of a group that is not asked for; DamagedRecord."""
        remedy = "`simrun snapshot list` shows what there is"
        if name_problem(name):
            raise NotFound(f"no snapshot {name!r}; {remedy}")
        path = self._own(name) / HEADER
        header = codec.read(Snapshot, path)
        if header is None and files.listed(self._top, name, OWN_DIRECTORY, HEADER):
            header = codec.read(Snapshot, path, listed=True)  # "no" came from a cache
        if header is None and self.by_hand(name):
            raise NotFound(
                f"{name!r} was put into the store by hand, and is no snapshot that simrun made"
            )
        if header is None or (groups is not None and header.group not in groups):
            raise NotFound(f"no snapshot {name!r}; {remedy}")
        if header.name != name:
            raise DamagedRecord(f"{path}: is the header of snapshot {header.name!r}")
        return header

    def by_hand(self, name: str) -> bool:
        """Whether a directory of this name was put into the store by hand: it has no group, so everybody may read it."""
        if name_problem(name) or name not in files.listing(self._top):
            return False
        place = self._top / name
        described = files.listed(self._top, name, OWN_DIRECTORY)
        return not described and os.path.isdir(place) and not os.path.islink(place)

    def find(self, group: str, digest: str) -> Snapshot | None:
        """Give the snapshot of a group that has a content; None when there is none."""
        return next((item for item in self.all({group}) if item.digest == digest), None)

    def entries(self, name: str) -> Iterator[Entry]:
        """Yield what a snapshot holds, in order. Raises DamagedRecord for a list that can't be read."""
        path = self._own(name) / FILES
        try:
            with open(path, "rb") as lines:
                for line in lines:
                    yield entry_of(line)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedRecord(f"{path}: can't be read: {error}") from error

    def path(self, name: str) -> Path:
        """Give the directory of a snapshot."""
        return self._top / name

    def _own(self, name: str) -> Path:
        return self._top / name / OWN_DIRECTORY
