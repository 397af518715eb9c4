"""A task whose extra worker never gets to its first unit: it draws the table of units until it is stopped."""

from __future__ import annotations

import os
import time
from pathlib import Path


def units(params, inputs):  # type: ignore[no-untyped-def]
    """Give three units, to the coordinator; once the extra worker is here."""
    arrived = Path(os.environ["SIMRUN_TASK_DIR"]) / "arrived"
    if os.environ["SIMRUN_ROLE"] == "extra":
        arrived.touch()
        time.sleep(600)
    while not arrived.exists():
        time.sleep(0.1)
    return [{"row": row} for row in range(3)]


def compute(unit) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Compute next to nothing."""
    return {"row": unit.params["row"]}
