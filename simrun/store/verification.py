"""Whether a snapshot still is what its list of files says: all of it is read again."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from simrun.base.errors import InvalidInput
from simrun.model.snapshot import OWN_DIRECTORY, Entry, digest_of
from simrun.store.snapshotreader import FILES
from simrun.store.snapshots import SnapshotStore
from simrun.store.sources import SourceFile, Step, content, no_step

_EXECUTE = 0o111


def verify(store: SnapshotStore, name: str, step: Step = no_step) -> list[str]:
    """Read all of a snapshot and say by path what is not as it was; nothing when all is. Raises NotFound, DamagedRecord."""
    header = store.get(name)
    top = store.path(name)
    entries = list(store.entries(name))
    wrong = []
    if digest_of(entries) != header.digest:
        wrong.append(f"{OWN_DIRECTORY}/{FILES}: is not the list of {header.digest}")
    there = _everything(top)
    above: set[str] = set()
    for entry in entries:
        path = entry.path.rstrip("/")
        while (path := path.rpartition("/")[0]) and path not in above:
            above.add(path)
        problem = _difference(top, entry, there.pop(entry.path.rstrip("/"), None), step)
        if problem:
            wrong.append(f"{entry.path}: {problem}")
    wrong += [f"{path}: is not of the snapshot" for path in sorted(there.keys() - above)]
    return wrong


def _everything(top: Path) -> dict[str, os.stat_result]:
    """Give all that lies in a snapshot beside what is simrun's own: path -> status, of a link its own."""
    found = {}
    for directory, directories, names in os.walk(top):
        place = os.path.relpath(directory, top)
        if place == "." and OWN_DIRECTORY in directories:
            directories.remove(OWN_DIRECTORY)
        for name in (*directories, *names):
            path = name if place == "." else f"{place}/{name}"
            found[path] = os.lstat(os.path.join(directory, name))
    return found


def _difference(top: Path, entry: Entry, status: os.stat_result | None, step: Step) -> str | None:
    if status is None:
        return "is missing"
    if entry.is_directory:
        return None if stat.S_ISDIR(status.st_mode) else "is no directory any more"
    if not stat.S_ISREG(status.st_mode):
        return "is no file any more"
    if status.st_size != entry.size:
        return f"has {status.st_size} bytes, not {entry.size}"
    if bool(status.st_mode & _EXECUTE) != entry.executable:
        return "may not be executed any more" if entry.executable else "may be executed now"
    digest = hashlib.sha256()
    file = SourceFile(entry.path, str(top / entry.path), entry.size, entry.executable)
    try:
        for data in content(file, step):
            digest.update(data)
    except InvalidInput as error:
        return error.problems[0].message
    found = digest.hexdigest()
    return None if found == entry.sha256 else f"has sha256 {found}, not {entry.sha256}"
