"""LocalConfig: what of this machine runs may use, and where the engine keeps its own state."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from simrun.base.errors import InvalidInput
from simrun.model.base import Model
from simrun.model.mounts import Mounts
from simrun.model.quantities import Cpus, Memory
from simrun.store.layout import StoreLayout
from simrun.store.mounts import network_file_system
from simrun.worker import cgroup

ORPHAN_VARIABLE = "SIMRUN_ORPHAN_S"
DEFAULT_ORPHAN_S = 600.0


def _cores() -> float:
    return float(len(os.sched_getaffinity(0)))


def _memory() -> int:
    """Physical memory, or what the cgroup of this process leaves of it."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    own = cgroup.find()
    limit = own.limit() if own is not None else None
    return physical if limit is None else min(physical, limit)


def _orphan_s() -> float:
    text = os.environ.get(ORPHAN_VARIABLE, "")
    try:
        seconds = float(text) if text else DEFAULT_ORPHAN_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidInput.one(
            ORPHAN_VARIABLE,
            "must be a number of seconds above zero",
            value=text,
            remedy=f"leave it unset for {DEFAULT_ORPHAN_S:g}",
        )
    return seconds


class LocalConfig(Model):
    """How runs are run on this machine.

    The store may be on any file system; state_dir must be on a local disk: records of processes of this machine mean
    nothing elsewhere, and the engine writes two for each attempt.
    """

    store: Path
    """The run store."""
    state_dir: Path
    """The engine's own state; a later engine finds here what an earlier one started."""
    scratch: Path
    """Root of the scratch directories. They are emptied before and removed after each attempt."""
    cpus: Cpus = Field(default_factory=_cores)
    """Processors that running attempts may have together. A pod that asks for more than that runs alone."""
    memory: Memory = Field(default_factory=_memory)
    """Bytes of memory that running attempts may have together; here too a pod that asks for more runs alone."""
    enforce: Literal["auto", "polled"] = "auto"
    """auto: a memory limit is a cgroup of its own where one may be made. polled: never, for who wants no cgroups."""
    orphan_s: float = Field(default_factory=_orphan_s, gt=0)
    """Seconds after which an attempt ends itself when no engine is there; SIMRUN_ORPHAN_S sets the default."""
    image: None = None
    """Processes of this machine need no image; types may name one for the cluster."""

    @classmethod
    def for_store(cls, store: Path, **settings: Any) -> Self:
        """Give the configuration of a store. State and scratch are in the store when that is on a local disk."""
        store = store.absolute()
        state = settings.pop("state_dir", None)
        state = Path(state).absolute() if state is not None else default_state_dir(store)
        scratch = settings.pop("scratch", None)
        scratch = Path(scratch).absolute() if scratch is not None else state / "scratch"
        return cls(store=store, state_dir=state, scratch=scratch, **settings)

    @property
    def layout(self) -> StoreLayout:
        """Where things are in the run store."""
        return StoreLayout(self.store)

    def mounts(self, run: str) -> Mounts:
        """Give the directories of a run's pods: the real ones."""
        return Mounts(
            run=str(self.layout.run(run).root),
            snapshots=str(self.layout.snapshots),
            scratch=str(self.scratch),
        )


def harness_command(role: str) -> list[str]:
    """Give the command of the harness in the interpreter that runs simrun; -P keeps the user's files out of its imports."""
    return [sys.executable, "-P", "-m", "simrun.worker", role]


def default_state_dir(store: Path) -> Path:
    """Give where the engine keeps its state for a store: inside, or on a disk of this machine if the store is not on one."""
    if network_file_system(store) is None:
        return store / "engine"
    name = hashlib.sha256(os.fsencode(store)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"simrun-{os.getuid()}" / name
