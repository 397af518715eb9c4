"""Designs: how a few lines in a workflow file become the rows of parameters of a task's units.

Drawn designs use the base seed alone, so that two tasks with the same design and seed meet at the same points; every parameter
has a stream of its own, so adding one leaves the others as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Params = dict[str, Any]
MAX_UNITS = 1_000_000


def size(design: Mapping[str, Any], *, replicates: int = 1) -> int:
    """Give the number of units of a design without expanding it; ValueError beyond MAX_UNITS."""
    raise NotImplementedError


def expand(design: Mapping[str, Any], *, seed_base: int = 0) -> Iterator[Params]:
    """Give the rows of a design that has exactly one of grid, zip, list, table, lhs, random.

    grid {name: values}: all combinations, the last name changes fastest. zip {name: values}: side by side. list: rows, or values that
    stand under `item`. table: rows (of `read_table`). lhs, random: {n, ranges {name: {low, high, integer, log}}}; an
    integer range has both ends, another is low ≤ x < high. Replicates are made by `units.make_units`. Raises ValueError.
    """
    raise NotImplementedError


def read_table(path: Path) -> list[Params]:
    """Read rows from a `.csv` file with a header, or from `.jsonl` with an object a line.

    A csv column is int when all its cells are, else float, else text; an empty cell of a number column is None; `007` is
    text, since a number would lose its zeros. Raises ValueError that names file and line.
    """
    raise NotImplementedError
