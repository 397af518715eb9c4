"""What dead processes left in a run store: looked for by `simrun doctor`, each with what removes it.

A repair looks once more before it removes anything, since whatever made it may have come back meanwhile. All looks are listings: a lookup that a
cache answers could deny a run that another host has just made.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from simrun.base.errors import NotFound
from simrun.service.doctor import Finding
from simrun.store import files as store_files
from simrun.store.layout import StoreLayout
from simrun.store.runs import RunStore
from simrun.store.snapshots import SnapshotStore
from simrun.store.sweep import LEFT_S, time_of_server
from simrun.worker import files, trees

UPLOAD_LEFT_S = 86_400.0
"""Age from which what an upload left is nobody's, while a server runs; an upload takes minutes."""


def leftovers(store: RunStore, *, serving: bool) -> Iterator[Finding]:
    """Yield what dead processes left in a store, each with what removes it (blocking: one look at each run)."""
    layout = store.layout
    now = time_of_server(layout.root)
    yield from _half_runs(store, now)
    yield from _marks(store)
    yield from _uploads(layout, now, serving=serving)
    yield from _temporary(layout, now)
    yield from _snapshots(SnapshotStore(layout))


def _half_runs(store: RunStore, now: float) -> Iterator[Finding]:
    layout = store.layout
    gone = files.listing(layout.deleted)
    for run_id in store.run_ids():
        directory = layout.run(run_id)
        if run_id in gone:
            yield _left(
                f"run {run_id} was deleted, and not all of it went", directory.root, store, run_id
            )
        elif not store.exists(run_id):
            age = _age(directory.root, now)
            if age is not None and age > LEFT_S:
                text = f"run {run_id} was begun to be made {age / 3600:.0f} h ago, and never was"
                yield _left(text, directory.root, store, run_id)


def _left(text: str, path: Path, store: RunStore, run_id: str) -> Finding:
    def remove() -> None:
        deleted = run_id in files.listing(store.layout.deleted)
        if not deleted and store.exists(run_id):
            raise NotFound(f"run {run_id} has come to be meanwhile; it is left alone")
        # Out of the way in one step, so that whoever makes a run of this id now has a directory of their own
        aside = files.temporary_name(store.layout.root)
        os.rename(path, aside)
        store_files.remove_tree(aside)
        if deleted or not path.exists():
            store.unmark_live(run_id)

    return Finding(check="leftovers", level="problem", text=f"{text}: {path}", repair=remove)


def _marks(store: RunStore) -> Iterator[Finding]:
    """Marks of runs that are gone; those of runs that have ended are a hint that costs one look."""
    marked = store.live_ids()  # first: a mark comes after the directory
    known = files.listing(store.layout.runs) | files.listing(store.layout.deleted)
    for run_id in marked:
        if run_id in known:
            continue

        def remove(run_id: str = run_id) -> None:
            if run_id in files.listing(store.layout.runs):
                raise NotFound(f"run {run_id} has come to be meanwhile; its mark is left alone")
            store.unmark_live(run_id)

        text = (
            f"run {run_id} is marked as live, and does not exist: {store.layout.live_mark(run_id)}"
        )
        yield Finding(check="leftovers", level="problem", text=text, repair=remove)


def _uploads(layout: StoreLayout, now: float, *, serving: bool) -> Iterator[Finding]:
    """What requests brought to a server that has ended; of a server that runs only what is older than any upload."""
    for name in _names(layout.uploads):
        path = layout.uploads / name
        age = _age(path, now)
        if age is not None and (not serving or age > UPLOAD_LEFT_S):
            yield _removable(f"the rest of an upload: {path}", path)


def _temporary(layout: StoreLayout, now: float) -> Iterator[Finding]:
    for directory in (layout.root, layout.runs, layout.live, layout.deleted):
        for name in _names(directory):
            path = directory / name
            if name.startswith(files.TEMPORARY_PREFIX):
                age = _age(path, now)
                if age is not None and age > LEFT_S:
                    yield _removable(f"half-written by a process that died: {path}", path)


def _snapshots(snapshots: SnapshotStore) -> Iterator[Finding]:
    """Snapshots that were half-made or half-deleted: by whoever holds a lock in one for hours they still are."""
    for place in snapshots.left():

        def remove(place: Path = place) -> None:
            if place in snapshots.left():
                trees.remove(place)

        text = f"a snapshot half-made or half-deleted by a process that died: {place}"
        yield Finding(check="leftovers", level="problem", text=text, repair=remove)


def _removable(text: str, path: Path) -> Finding:
    def remove() -> None:
        store_files.remove_tree(path)

    return Finding(check="leftovers", level="problem", text=text, repair=remove)


def _age(path: Path, now: float) -> float | None:
    """Give how long ago anything at the top of a directory was written; None when it is gone."""
    try:
        newest = os.lstat(path)
        times = [newest.st_mtime]
        if stat.S_ISDIR(newest.st_mode):
            with os.scandir(path) as entries:
                times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    except OSError:
        return None
    return now - max(times)


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
