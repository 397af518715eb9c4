"""SnapshotStore: read-only data sets that runs use, made whole or not at all and never changed (layout in simrun.model.snapshot).

A snapshot is made under a temporary name and renamed once its files, their list and, last of all, its header are on disk. So what has
a name is whole; what has a temporary one belongs to a process that holds a lock in it, or to none and is swept. All methods block.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simrun.base.errors import Conflict, DamagedRecord, InvalidInput, NotFound
from simrun.model.snapshot import (
    OWN_DIRECTORY,
    Entry,
    Snapshot,
    check_name,
    digest_of,
    name_for,
)
from simrun.store import codec, flocks, halfmade, tars
from simrun.store.intake import CHUNK, Intake, SnapshotLimits, is_own
from simrun.store.layout import StoreLayout
from simrun.store.snapshotreader import FILES, HEADER, SnapshotReader
from simrun.store.sources import Step, content, hashed, look_through, no_step
from simrun.store.sweep import time_of_server
from simrun.worker import files, trees

_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
PATIENCE_S = 10.0
"""How long a deletion waits for submissions that name snapshots, and these for it."""
_BUSY = "snapshots are being made, used or deleted all the time; try again"


@dataclass(frozen=True, slots=True)
class Making:
    """Whom a new snapshot belongs to, and what it is to be called. `digest`: what its content must have, where that is known."""

    group: str
    created: float
    owner: str = ""
    name: str | None = None
    digest: str | None = None


class SnapshotStore(SnapshotReader):
    """The snapshots of a run store."""

    def __init__(self, layout: StoreLayout, limits: SnapshotLimits | None = None) -> None:
        super().__init__(layout)
        self.limits = limits or SnapshotLimits()

    # --- making ------------------------------------------------------------------------------------------------------

    def create(self, source: Path, making: Making, step: Step = no_step) -> tuple[Snapshot, bool]:
        """Make a snapshot of a directory or a file; it, and whether it is new.

        The same content in the same group is the same snapshot, whatever name is asked for. Raises NotFound, InvalidInput with
        everything that can't go in, Conflict for a name that is taken.
        """
        self.check(making)
        found = look_through(source, self.limits, leave_out=self.layout.root)
        size = len(found.files), found.bytes
        if any((item.files, item.bytes) == size for item in self.all({making.group})):
            # Probably the same again: reading it is cheaper than writing it
            there = self.find(making.group, digest_of(hashed(found, step)))
            if there is not None:
                return there, False
        with self._making() as (intake, put_in_place):
            for path in found.empty:
                intake.add_directory(path)
            for file in found.files:
                intake.add_file(file.path, content(file, step), executable=file.executable)
            return put_in_place(making, found.title)

    def check(self, making: Making) -> None:
        """Refuse at once what would be refused at the end: a bad name (InvalidInput), one of somebody else (Conflict)."""
        name = making.name
        if name is None or check_name(name) not in files.listing(self._top):
            return
        if self.by_hand(name) or self.get(name).group != making.group:
            raise _somebodys(name)

    def create_from_tar(
        self, archive: Path, making: Making, title: str, step: Step = no_step
    ) -> tuple[Snapshot, bool]:
        """Make a snapshot of what is in a tar archive; else as `create`."""
        self.check(making)
        with open(archive, "rb") as file, self._making() as (intake, put_in_place):
            for member, read in tars.members(file):
                if member.path in ("", ".") and member.is_directory:
                    continue  # the directory itself
                if is_own(member.path):
                    continue
                if member.is_directory:
                    intake.add_directory(member.path)
                elif member.same_as is not None:
                    intake.add_link(member.path, member.same_as)
                else:
                    chunks = _told(iter(partial(read, CHUNK), b""), step)
                    intake.add_file(member.path, chunks, executable=member.executable)
            return put_in_place(making, title)

    @contextmanager
    def _making(self) -> Iterator[tuple[Intake, Callable[[Making, str], tuple[Snapshot, bool]]]]:
        """Give a place to fill, and what makes a snapshot of it; whatever is not a snapshot in the end goes."""
        files.make_directory(self._top)
        place = files.temporary_name(self._top)
        os.mkdir(place, 0o700)
        try:
            own = place / OWN_DIRECTORY
            os.mkdir(own, 0o700)
            fd = os.open(own / FILES, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            with open(fd, "wb") as listing:
                flocks.try_lock(fd, flocks.ALONE)
                intake = Intake(place, self.limits)

                def put_in_place(making: Making, title: str) -> tuple[Snapshot, bool]:
                    entries = intake.entries()
                    listing.writelines(entry.line() for entry in entries)
                    listing.flush()
                    return self._put_in_place(place, entries, making, title)

                yield intake, put_in_place
        finally:
            halfmade.remove(place)  # under its own name it is not here any more

    def _put_in_place(
        self, place: Path, entries: list[Entry], making: Making, title: str
    ) -> tuple[Snapshot, bool]:
        digest = digest_of(entries)
        if making.digest not in (None, digest):
            text = f"is not what arrived: that is {digest}"
            raise InvalidInput.one("digest", text, value=making.digest, remedy="send it again")
        plain = [entry for entry in entries if not entry.is_directory]
        if not plain:
            raise InvalidInput.one("", "there is no file in it", remedy="give it something to hold")
        trees.sync(place)
        with self._held(self.layout.snapshots_made, flocks.ALONE):
            if (there := self.find(making.group, digest)) is not None:
                return there, False
            made = Snapshot(
                name=making.name or name_for(title, making.group, digest),
                group=making.group,
                owner=making.owner,
                digest=digest,
                files=len(plain),
                bytes=sum(entry.size for entry in plain),
                created=making.created,
            )
            # A rename would take the place of an empty directory
            if made.name in files.listing(self._top):
                raise self._taken(made)
            files.create(place / OWN_DIRECTORY / HEADER, codec.encode(made))
            _make_read_only(place)
            try:
                os.rename(place, self._top / made.name)
            except OSError as error:
                if error.errno in _TAKEN:
                    raise self._taken(made) from error
                if os.path.lexists(place):
                    raise
                # The reply was lost, and the file server did it
            files.sync_directory(self._top)
        return made, True

    def _taken(self, wanted: Snapshot) -> Conflict:
        try:
            there = self.get(wanted.name, {wanted.group})
        except (NotFound, DamagedRecord):
            return _somebodys(wanted.name)
        return Conflict(
            f"snapshot {wanted.name!r} has other content ({there.digest[:19]}…, not {wanted.digest[:19]}…); "
            "choose another name, or delete it first"
        )

    # --- using and deleting ------------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep snapshots from being deleted, while a run that may name them comes into being."""
        with self._held(self.layout.snapshots_used, flocks.SHARED):
            yield

    def delete(self, name: str, users: Callable[[], list[str]]) -> Snapshot:
        """Delete a snapshot; what it was. `users` gives the ids of live runs that use it.

        Raises NotFound; Conflict while a run uses it, or while runs are submitted all the time.
        """
        self._refuse_used(
            name, users
        )  # it takes its time where many runs live, and the next look is short
        with self._held(self.layout.snapshots_used, flocks.ALONE):
            header = self._refuse_used(name, users)
            place = files.temporary_name(self._top)
            os.rename(self.path(name), place)
            files.sync_directory(self._top)
        halfmade.remove(place)
        return header

    def _refuse_used(self, name: str, users: Callable[[], list[str]]) -> Snapshot:
        header = self.get(name)
        if runs := users():
            shown = ", ".join(runs[:5]) + (f" and {len(runs) - 5} more" if runs[5:] else "")
            raise Conflict(
                f"snapshot {name!r} is used by {shown}; wait for the end of what uses it, or cancel it"
            )
        return header

    def left(self, *, left_s: float = halfmade.LEFT_S) -> list[Path]:
        """Give what was left half-made or half-deleted by processes that have ended."""
        before = time_of_server(self.layout.root) - left_s
        return halfmade.left(self._top, self._lock_in, before)

    def sweep(self, *, left_s: float = halfmade.LEFT_S) -> int:
        """Remove what was left half-made or half-deleted by processes that have ended; how many."""
        if not self._top.is_dir():
            return 0
        before = time_of_server(self.layout.root) - left_s
        return halfmade.sweep(self._top, self._lock_in, before)

    @staticmethod
    def _lock_in(place: Path) -> Path:
        """Give the file that whoever makes a snapshot holds locked."""
        return place / OWN_DIRECTORY / FILES

    def _held(self, lock: Path, how: int) -> AbstractContextManager[None]:
        return flocks.held(lock, how, patience_s=PATIENCE_S, busy=_BUSY)


def _told(chunks: Iterator[bytes], step: Step) -> Iterator[bytes]:
    for data in chunks:
        step(len(data))
        yield data


def _somebodys(name: str) -> Conflict:
    return Conflict(f"the name {name!r} is taken; choose another")


def _make_read_only(place: Path) -> None:
    """Take away everybody's right to write; the files have none already."""
    own = place / OWN_DIRECTORY
    for name in (HEADER, FILES):
        os.chmod(own / name, 0o444)
    for directory, _, _ in os.walk(place, topdown=False):
        os.chmod(directory, 0o555)
    files.sync_directory(place)
