"""A campaign small enough for a test: tiles of a function, slow enough to be killed in the middle, merged to one array."""

from __future__ import annotations

import json
import struct
import time


def tiles(params, inputs):  # type: ignore[no-untyped-def]
    """Give one row of params per tile."""
    return [{"row": row} for row in range(params["rows"])]


def compute(unit) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Compute one row, from its seed; takes `seconds`."""
    time.sleep(unit.params["seconds"])
    state, values = unit.seed, []
    for _ in range(64):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append(state / 2**64)
    (unit.out / "tile.bin").write_bytes(struct.pack("64d", *values))
    return {"mean": sum(values) / 64}


def merge(merge) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Put the tiles together in the order of their rows; each must be there once."""
    rows = sorted(merge.units, key=lambda unit: unit.params["row"])
    assert [unit.params["row"] for unit in rows] == list(range(merge.params["rows"]))
    data = b"".join((unit.out / "tile.bin").read_bytes() for unit in rows)
    (merge.out / "map.bin").write_bytes(data)
    return {"tiles": len(rows)}


def check(unit) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Read the merged array."""
    size = unit.inputs["map"].stat().st_size
    (unit.out / "size.json").write_text(json.dumps({"bytes": size}))
    return {"bytes": size}
