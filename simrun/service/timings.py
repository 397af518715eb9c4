"""How long calls of the store take, by what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simrun.base.histogram import Histogram

READ, WRITE, LIST, OTHER = "read", "write", "list", "other"
_KINDS = {
    READ: ("read", "load", "submission", "_unchanged", "_files", "_attempts", "get", "check"),
    WRITE: ("_write", "write", "write_if_unchanged", "create_run", "mark_live", "_prepare", "tidy"),
    LIST: ("live_ids", "listing", "sweep", "_listed", "recent"),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}


class StoreTimings:
    """Seconds of calls, by kind. What a call does is known by the name of its function; a new one counts as `other`."""

    def __init__(self) -> None:
        self.by_kind = {kind: Histogram() for kind in (READ, WRITE, LIST, OTHER)}

    def measure(self, function: Callable[..., Any], seconds: float) -> None:
        """Count a call; for aio.threads.Pool."""
        kind = _KIND_OF.get(getattr(function, "__name__", ""), OTHER)
        self.by_kind[kind].observe(seconds)
