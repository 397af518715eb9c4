"""ResourceStore: what attempts used against what they were given. Planning reads it.

The name of a file is its key, so an observation that is recorded twice (a crash before the mark in the run) is one.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from simrun.base.errors import DamagedRecord
from simrun.model.report import Observation
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files

HISTORY = 200
"""Observations of a type that planning looks at; more would change a highest peak hardly ever."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]")


class ResourceStore:
    """The observations in a run store. Blocking, like RunStore."""

    def __init__(self, root: Path) -> None:
        self._layout = StoreLayout(root)

    def record(self, observation: Observation) -> bool:
        """Store an observation; whether it was new."""
        path = self._layout.observation(
            _directory(observation.type),
            observation.run,
            observation.task,
            observation.worker,
            observation.attempt,
        )
        files.make_directory(path.parent)
        return files.create(path, codec.encode(observation))

    def types(self) -> list[str]:
        """Give the names of the types of which something was observed, in order."""
        found = []
        for directory in sorted(files.listing(self._layout.resources)):
            for name in sorted(files.listing(self._layout.resources / directory)):
                try:
                    item = codec.read(Observation, self._layout.resources / directory / name)
                except (DamagedRecord, OSError):
                    continue
                if item is not None:  # the name of a directory need not be that of its type
                    found.append(item.type)
                    break
        return found

    def of_type(self, name: str, limit: int = HISTORY) -> list[Observation]:
        """Give the newest observations of a type, oldest first; damaged ones are left out."""
        directory = self._layout.resources / _directory(name)
        found = []
        for file_name in _newest(directory, limit):
            try:
                item = codec.read(Observation, directory / file_name)
            except DamagedRecord:
                continue
            if item is not None:
                found.append(item)
        return sorted(found, key=lambda item: item.at)


def _newest(directory: Path, limit: int) -> list[str]:
    """Give the names of the files that were written last.

    By their times where there are too many: run ids made from a key or by a schedule don't sort by time.
    """
    names = sorted(files.listing(directory))
    if len(names) <= limit:
        return names
    return sorted(names, key=lambda name: _written(directory / name))[-limit:]


def _written(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _directory(type_name: str) -> str:
    """Give the directory of a type. Its name is free text: what is no plain word is told apart by a hash."""
    if _PLAIN.fullmatch(type_name):
        return type_name
    word = _NOT_PLAIN.sub("-", type_name)[:40]
    return f"{word}.{hashlib.sha256(type_name.encode()).hexdigest()[:16]}"
