"""ResourceStore: what attempts used against what they were given. Planning reads it.

The name of a file is its key, so an observation that is recorded twice (a crash before the mark in the run) is one.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from simrun.base.errors import DamagedRecord
from simrun.model.report import Observation
from simrun.store import codec
from simrun.store.layout import StoreLayout
from simrun.worker import files

HISTORY = 200
"""Observations of a type that planning looks at; more would change a highest peak hardly ever."""


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
        path.parent.mkdir(parents=True, exist_ok=True)
        return files.create(path, codec.encode(observation))

    def of_type(self, name: str, limit: int = HISTORY) -> list[Observation]:
        """Give the newest observations of a type, oldest first; damaged ones are left out."""
        directory = self._layout.resources / _directory(name)
        # Run ids sort by time, and a file's name starts with one
        newest = heapq.nlargest(limit, files.listing(directory))
        found = []
        for file_name in newest:
            try:
                item = codec.read(Observation, directory / file_name)
            except DamagedRecord:
                continue
            if item is not None:
                found.append(item)
        return sorted(found, key=lambda item: item.at)


def _directory(type_name: str) -> str:
    """Type names are free text; a directory name is not."""
    safe = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):x}" for c in type_name)
    return safe[:200] or "%"
