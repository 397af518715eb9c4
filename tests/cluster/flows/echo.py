"""Writes down the texts that came to a pod, by every way they may come."""

from __future__ import annotations

import json
import os


def echo(unit) -> dict[str, int]:  # type: ignore[no-untyped-def]
    """Write parameters and environment."""
    seen = {"param": unit.params["text"], "unit": unit.params["word"], "env": os.environ["HOSTILE"]}
    (unit.out / "seen.json").write_text(json.dumps(seen))
    return {"length": len(seen["param"])}
