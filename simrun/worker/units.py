"""The unit table of a task: which pieces it has, with which parameters and seeds.

The table is written once and is the truth from then on: it is never drawn again, so a new version of a design's code
cannot change a run that stands. Chunks are named by their content; index.json, linked last, alone says that the
table exists, so a writer that is killed leaves nothing that anybody would read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Self

from simrun.worker.designs import Params, expand, read_table, size
from simrun.worker.protocol import TaskDir

__all__ = [
    "Params",
    "TableConflictError",
    "Unit",
    "UnitTable",
    "expand",
    "make_units",
    "read_table",
    "size",
    "write_table",
]

CHUNK_UNITS = 10_000
CHUNK_BYTES = 4 * 2**20


class TableConflictError(Exception):
    """Raised when a task has a unit table already, with other content: the published one holds."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of a split task."""

    i: int
    key: str
    params: Params
    seed: int
    seed31: int


def make_units(
    rows: Iterable[Params],
    *,
    seed_base: int,
    task: str,
    seed_across: Literal["units", "replicates"] = "units",
    replicates: int = 1,
) -> Iterator[Unit]:
    """Number rows of parameters, repeat each `replicates` times in a row, and give keys and seeds.

    With more than one replicate each unit has the parameter `replicate`, from 0. `seed_across="replicates"` gives replicate
    r of every row the same seeds (common random numbers); else all seeds differ. Raises ValueError that names the row
    when it can't be a row of parameters: no mapping, a name that is no text, a value JSON can't say, NaN.
    """
    raise NotImplementedError


def write_table(task_dir: TaskDir, units: Iterable[Unit]) -> int:
    """Publish the unit table of a task, durably; gives the number of units.

    A second writer of the same table is fine; one of another table gets TableConflictError and should load the published one.
    """
    raise NotImplementedError


class UnitTable:
    """A published unit table; reads one line per unit, so memory stays small however long the table is."""

    @classmethod
    def load(cls, task_dir: TaskDir) -> Self | None:
        """Open the table of a task; None when none is published yet. ValueError that names the file when it is damaged."""
        raise NotImplementedError

    @property
    def count(self) -> int:
        """Number of units; may be 0."""
        raise NotImplementedError

    def unit(self, i: int) -> Unit:
        """Give unit `i` (0 ≤ i < count, else IndexError); ValueError that names the file when its chunk is damaged."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Unit]:
        """Give all units in order, chunk by chunk."""
        raise NotImplementedError
