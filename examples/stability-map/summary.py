"""What the map says in a few numbers: the task after the map."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any


def summarise(unit: Any) -> dict[str, str | int | float | None]:
    """Count the cells of map.npy and look up the planet's real orbit; write summary.json.

    Shares are of all cells. `stable_up_to_e` is the eccentricity below the first cell that is not stable, at the real
    semi-major axis. What the map does not show is None.
    """
    import numpy as np

    grid = json.loads(unit.inputs["grid"].read_text(encoding="utf-8"))
    values = np.load(unit.inputs["map"], allow_pickle=False)
    stable, lost = values < grid["stable_below"], np.isinf(values)
    row, column = nearest(grid["e"], grid["real_e"]), nearest(grid["a_au"], grid["real_a_au"])
    real = None if row is None or column is None else float(values[row, column])
    summary: dict[str, str | int | float | None] = {
        "planet": grid["planet"],
        "orbits": int(values.size),
        "stable_share": float(stable.mean()),
        "chaotic_share": float((~stable & ~lost).mean()),
        "lost_share": float(lost.mean()),
        "real_orbit": None if real is None else state(real, grid["stable_below"]),
        "real_orbit_megno": None if real is None or math.isinf(real) else real,
        "stable_up_to_e": None if column is None else stable_up_to(grid["e"], stable[:, column]),
    }
    text = json.dumps(summary, indent=2) + "\n"
    (unit.out / "summary.json").write_text(text, encoding="utf-8")
    print(text, end="")
    return summary


def nearest(axis: Sequence[float], value: float) -> int | None:
    """Give the index of the cell that a value falls in, None when it is off the map."""
    half = (axis[1] - axis[0]) / 2
    if not axis[0] - half <= value <= axis[-1] + half:
        return None
    return min(range(len(axis)), key=lambda k: abs(axis[k] - value))


def state(megno: float, stable_below: float) -> str:
    """Name what a cell holds: stable, chaotic or lost."""
    if math.isinf(megno):
        return "lost"
    return "stable" if megno < stable_below else "chaotic"


def stable_up_to(e: Sequence[float], stable: Sequence[bool]) -> float | None:
    """Give the eccentricity below the first unstable cell of a column; None if the lowest is unstable already."""
    count = next((k for k, good in enumerate(stable) if not good), len(e))
    return e[count - 1] if count else None
