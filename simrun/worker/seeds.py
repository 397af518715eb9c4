"""Random seeds of units: a keyed permutation of the index, so that no two units of a task can ever share a seed.

A hash of the index would give equal seeds by chance once a task has many units (at 31 bits: one pair among 60,000),
and base + i gives neighbouring seeds, which some generators turn into correlated streams and which overlap between tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal


def seeds(
    base: int,
    task: str,
    n: int,
    *,
    across: Literal["units", "replicates"] = "units",
    replicates: int = 1,
) -> Iterator[tuple[int, int]]:
    """Give (seed, seed31) of n units in order; of unit i they depend on base, task and i only (never on n).

    seed is in 1 … 2^63 - 2, seed31 in 1 … 2^31 - 2, the range that every usual generator takes.
    `across="replicates"`: on i modulo `replicates` instead of i.
    """
    raise NotImplementedError
