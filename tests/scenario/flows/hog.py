"""Units that need memory: some little, one much."""

from __future__ import annotations

import os


def hog(unit) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Hold `mib` MiB for a moment, every page touched."""
    held = bytearray(os.urandom(1)) * (unit.params["mib"] * 2**20)
    return {"mib": len(held) // 2**20, "attempt_mib": round((unit.memory_gb or 0) * 1024)}
