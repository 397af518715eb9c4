"""What processes left that died while they made or deleted something large under a temporary name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from simrun.store import flocks
from simrun.worker import files, trees

log = logging.getLogger(__name__)

LEFT_S = 3600.0
"""Age from which a half-made directory without a lock is nobody's any more."""
_TRIES = 5


def left(top: Path, lock_in: Callable[[Path], Path], before: float) -> list[Path]:
    """Give the directories of temporary names that nobody works in and that are older than `before`.

    `lock_in` gives the file that who works in one holds locked.
    """
    places = [
        place
        for place in top.glob(f"{files.TEMPORARY_PREFIX}*")
        if place.is_dir() and not place.is_symlink()
    ]
    return [place for place in places if _is_left(place, lock_in(place), before)]


def sweep(top: Path, lock_in: Callable[[Path], Path], before: float) -> int:
    """Remove them; how many there were."""
    found = left(top, lock_in, before)
    for place in found:
        remove(place)
    if found:
        log.info("removed %d half-made directories that were left in %s", len(found), top)
    return len(found)


def remove(place: Path) -> None:
    """Remove what has no name any more; what is another user's is left to that one's next sweep."""
    for _ in range(_TRIES):
        try:
            trees.remove(place)
        except FileNotFoundError:
            continue  # a sweeper was quicker, somewhere in it
        except PermissionError as error:
            log.warning("%s was not removed: %s; its owner may", place, error.strerror)
        return


def _is_left(place: Path, lock: Path, before: float) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        fd = None  # hardly begun, or half-deleted
    try:
        if fd is not None and not flocks.try_lock(fd, flocks.ALONE):
            return False
        return os.lstat(place).st_mtime <= before
    except FileNotFoundError:
        return False  # somebody else removes it
    finally:
        if fd is not None:
            os.close(fd)
