"""A campaign to run the harness on, and memory cgroups with a limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.worker.campaign import Campaign

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    yield (made := Campaign(tmp_path / "store"))
    made.close()


@pytest.fixture
def limited_memory() -> Iterator[Callable[[int], Path]]:
    """Make a memory cgroup with a limit in bytes; needs the right to make one."""
    made: list[Path] = []

    def make(limit: int) -> Path:
        first = (CGROUPS / "memory" / "memory.limit_in_bytes").exists()
        top = CGROUPS / "memory" if first else CGROUPS
        if not first:
            (top / "cgroup.subtree_control").write_text("+memory")
        path = top / f"simrun-test-{os.getpid()}-{len(made)}"
        path.mkdir()
        made.append(path)
        (path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
        return path

    yield make
    for path in made:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a cgroup whose processes have ended; the kernel may need a moment to notice."""
    deadline = time.monotonic() + 20
    while True:
        try:
            path.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
