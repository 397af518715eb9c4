"""Where the pods of a run find their directories."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mounts:
    """Where a pod of a run finds things: directories as the process in the pod sees them."""

    run: str
    """The directory of the run, read-write."""
    snapshots: str
    """All snapshots, read-only."""
    scratch: str
    """Root of scratch; each worker has a directory below it."""
