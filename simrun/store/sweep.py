"""Removes what processes left that died while they wrote: temporary names, which nobody sees and nobody else would take away.

Only where something may have been written lately: at the top of the store and in runs that have not ended. A process that still writes is
known by the age of its file, on the clock of the file server, since that of this machine may differ by hours.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from simrun.store.layout import RunDir, StoreLayout
from simrun.worker import files
from simrun.worker.files import TEMPORARY_PREFIX
from simrun.worker.protocol import TaskDir

log = logging.getLogger(__name__)

LEFT_S = 3600.0
"""Age from which a temporary file is nobody's any more; a write takes seconds."""


def sweep(
    layout: StoreLayout, runs: Iterable[str], *, left_s: float = LEFT_S, top: bool = True
) -> int:
    """Remove temporary files at the top of a store and in `runs` that are older than `left_s`; how many. Blocking.

    `top`: False where the top has been looked through. Raises OSError when the store cannot be written.
    """
    now = time_of_server(layout.root)
    places = _top(layout) if top else ()
    count = sum(_sweep(directory, now - left_s) for directory in places)
    for run in runs:
        count += sum(_sweep(directory, now - left_s) for directory in _of_run(layout.run(run)))
    if count:
        log.info("removed %d temporary files that were left", count)
    return count


def uploads_left(layout: StoreLayout) -> list[Path]:
    """Give the directories of requests whose server has ended: all of them, for who is about to serve alone."""
    try:
        return [layout.uploads / name for name in os.listdir(layout.uploads)]
    except FileNotFoundError:
        return []


def time_of_server(root: Path) -> float:
    """Give the time of the clock that the ages of files in a store are told by."""
    probe = files.temporary_name(root)
    files.write_synced(probe, b"", durable=False)
    try:
        return os.stat(probe).st_mtime
    finally:
        os.unlink(probe)


def _top(layout: StoreLayout) -> Iterator[Path]:
    yield from (layout.root, layout.live, layout.deleted, layout.damaged, layout.snapshots)
    yield from (layout.resources / name for name in files.listing(layout.resources))
    yield from (layout.scheduler, layout.scheduler / "catchup", layout.scheduler / "pauses")
    yield layout.launch_plans
    for group in files.listing(layout.launch_plans):
        plans = layout.launch_plans / group
        yield from (plans, *(plans / name for name in files.listing(plans)))


def _of_run(run: RunDir) -> Iterator[Path]:
    """Give the directories of a run that service and harness write records into; `work`, `in` and `out` are the user's."""
    yield run.root
    for name in files.listing(run.tasks):
        task = run.task(name)
        yield task.root
        yield from _records(task)


def _records(task: TaskDir) -> Iterator[Path]:
    yield from (task.units, task.claims, task.heartbeats, task.dead, task.done, task.faults)
    yield from (task.failed, task.attempts, task.reports, task.recorded, task.memory, task.logs)


def _sweep(directory: Path, before: float) -> int:
    """Remove the temporary files of one directory that were last written before a time; how many."""
    count = 0
    try:
        with os.scandir(directory) as entries:
            left = [entry for entry in entries if entry.name.startswith(TEMPORARY_PREFIX)]
            for entry in left:
                if entry.is_file(follow_symlinks=False) and (
                    entry.stat(follow_symlinks=False).st_mtime <= before
                ):
                    os.unlink(entry.path)
                    count += 1
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing there, or it went meanwhile
    return count
