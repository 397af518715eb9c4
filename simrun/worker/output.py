"""Puts a finished output in its place, whole or not at all, and checks that it has what the task type promises."""

from __future__ import annotations

import errno
import os
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from simrun.worker import files, trees
from simrun.worker.endings import SimulationError
from simrun.worker.job import Job
from simrun.worker.protocol import MERGE_MARKER, TaskDir

TEMPORARY: Final = "out.tmp."
"""How the directories begin that are on their way to out/ or from there; they lie beside it."""


def is_merged(task_dir: TaskDir) -> bool:
    """Whether the output of a task has its marker; asked by listings, since a lookup may be answered from a cache."""
    return files.listed(task_dir.root, task_dir.out.name, MERGE_MARKER)


def check_outputs(job: Job, out: Path) -> None:
    """Raise SimulationError when an output port of the task has nothing under its path."""
    for port, path in job.settings.outputs.items():
        if not os.path.lexists(out / path):
            raise SimulationError(
                f"ended well, but output {port!r} is missing: nothing wrote {path}"
            )


def make_durable(out: Path) -> None:
    """Flush a finished output; SimulationError for a file that the program made unreadable: nobody could use it."""
    try:
        trees.sync(out)
    except PermissionError as error:
        raise SimulationError(f"the output cannot be kept: {error}") from error


def put_in_place(job: Job, built: Path, out: Path, *, unless: str | None = None) -> None:
    """Move a directory that is durable already to `out`, replacing what stands there.

    A directory can't be replaced in one step while it holds something, so what stands there is moved aside first. What is
    moved aside is put back when it turns out to hold the file `unless`: another holder was quicker.
    """
    try:
        os.rename(built, out)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        aside = out.parent / f"{TEMPORARY}{job.env.holder}.old"
        trees.remove(aside)
        os.rename(out, aside)
        if unless is not None and unless in files.listing(aside):
            os.rename(aside, out)
            trees.remove(built)
            return
        os.rename(built, out)
        files.sync_directory(out.parent)
        _discard(job, aside)
    files.sync_directory(out.parent)


def sweep(job: Job, *, keep_work: AbstractSet[str], keep: str = "") -> None:
    """Remove what killed attempts left: directories in work/ that nothing names, and outputs on their way.

    Whoever still writes there has lost what it computes.
    """
    task_dir = job.env.task_dir
    for name in files.listing(task_dir.work) - keep_work:
        _discard(job, task_dir.work / name)
    for name in files.listing(task_dir.root) - {keep}:
        if name.startswith(TEMPORARY):
            _discard(job, task_dir.root / name)


def _discard(job: Job, path: Path) -> None:
    """Remove what nobody needs; failing costs space, nothing else."""
    try:
        trees.remove(path)
    except OSError as error:
        job.runner.log.say(f"{path} could not be removed: {error}")
