"""`simrun doctor` on a run store: does the file system carry it, whose is it, are the clocks together, can its records be read.

Looking changes nothing but a probe file that goes again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from simrun.base.errors import DamagedRecord, NotFound, SimrunError, UnsupportedStore
from simrun.store import files as store_files
from simrun.store.lock import StoreLock
from simrun.store.mounts import network_file_system
from simrun.store.runs import RunStore
from simrun.store.sweep import time_of_server
from simrun.worker import files

NOTE_SKEW_S, BAD_SKEW_S = 2.0, 30.0
"""Clocks that differ by more are worth a word, and make times of runs senseless. Nothing of simrun compares clocks to decide."""
LOW_FREE, LOW_BYTES = 0.05, 2**30
_NOBODY = 65534

Level = Literal["ok", "note", "problem"]
Repair = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one look found. repair: removes exactly this; raises SimrunError or OSError where it can't."""

    check: str
    level: Level
    text: str
    remedy: str = ""
    repair: Repair | None = field(default=None, repr=False, compare=False)


def examine(root: Path, *, index: Path | None, owner: tuple[int, int] | None) -> list[Finding]:
    """Look at a store (blocking). index: the file of its index. owner: whom runs belong to, as of the cluster file.

    Raises NotFound.
    """
    if not root.is_dir():
        raise NotFound(f"no run store in {root}; --store or $SIMRUN_STORE names another directory")
    found = [_carries(root), _free(root)]
    if all(item.level != "problem" for item in found[:1]):
        found += [*_whose(root, owner), _clock(root)]
    store = RunStore(root)
    found.append(_followed(store))
    if index is not None:
        found.append(_index(index, store))
    return [*found, *_records(store)]


# --- the file system -----------------------------------------------------------------------------------------------------


def _carries(root: Path) -> Finding:
    kind = network_file_system(root)
    place = f"{root} ({kind})" if kind else str(root)
    try:
        store_files.probe(root)
    except (UnsupportedStore, OSError) as error:
        return Finding(
            check="store",
            level="problem",
            text=str(error),
            remedy="give it to this user, or name another directory with --store",
        )
    text = f"{place} takes files, hard links, renames and fsync"
    return Finding(check="store", level="ok", text=text)


def _free(root: Path) -> Finding:
    seen = os.statvfs(root)
    free, total = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
    text = f"{free / 2**30:.1f} GiB of {total / 2**30:.1f} GiB free"
    inodes = seen.f_favail if seen.f_files else None
    low = free < LOW_BYTES or (total and free / total < LOW_FREE)
    if inodes is not None and inodes < 10_000:
        text, low = f"{text}, {inodes} inodes", True
    remedy = "delete runs (`simrun delete`), or move the store" if low else ""
    return Finding(check="space", level="problem" if low else "ok", text=text, remedy=remedy)


def _whose(root: Path, owner: tuple[int, int] | None) -> Iterator[Finding]:
    """Who writes, whether the file server makes somebody else of them, and whether files can be given to whom pods run as."""
    me = os.geteuid()
    probe = files.temporary_name(root)
    files.write_synced(probe, b"", durable=False)
    try:
        uid = probe.stat().st_uid
        if uid != me:
            squashed = "root is squashed" if me == 0 else "the file server maps users"
            yield Finding(
                check="user",
                level="problem" if uid == _NOBODY else "note",
                text=f"{squashed}: files of uid {me} become those of uid {uid}",
                remedy=f"run simrun as the uid that owns the store ({root.stat().st_uid}), or export it with no_root_squash",
            )
        else:
            yield Finding(check="user", level="ok", text=f"files are written as uid {me}")
        if owner is not None and owner[0] != me:
            yield _give(probe, owner, me)
    finally:
        probe.unlink(missing_ok=True)


def _give(probe: Path, owner: tuple[int, int], me: int) -> Finding:
    to = f"uid {owner[0]}, gid {owner[1]}, which pods run as"
    try:
        os.chown(probe, *owner)
    except OSError as error:
        return Finding(
            check="user",
            level="problem",
            text=f"files can't be given to {to}: {error.strerror}",
            remedy=f"run simrun as uid {owner[0]}, or set run_as_user: {me} in the cluster file",
        )
    return Finding(check="user", level="ok", text=f"files can be given to {to}")


def _clock(root: Path) -> Finding:
    before = time.time()
    there = time_of_server(root)
    after = time.time()
    # The file was stamped in between; kernels stamp with the time of their last tick
    skew = max(before - 0.05 - there, there - after, 0.0)
    text = f"this machine and the file server differ by {skew:.1f} s"
    if skew <= NOTE_SKEW_S:
        return Finding(check="clock", level="ok", text=text)
    level: Level = "problem" if skew > BAD_SKEW_S else "note"
    return Finding(check="clock", level=level, text=text, remedy="set both by NTP")


def _index(path: Path, store: RunStore) -> Finding:
    """Whether the index of a server can be read, and has the runs of the store."""
    if kind := network_file_system(path.parent):
        return Finding(
            check="index",
            level="problem",
            text=f"{path} is on a network file system ({kind})",
            remedy="name a file on a local disk with `simrun serve --index FILE`",
        )
    if not path.exists():
        return Finding(check="index", level="ok", text=f"{path} is made by the next `simrun serve`")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        ) as db:
            (state,) = db.execute("PRAGMA quick_check(1)").fetchone()
            (count,) = db.execute("SELECT count(*) FROM runs").fetchone()
    except sqlite3.Error as error:
        state, count = str(error), 0
    if state != "ok":
        return Finding(
            check="index",
            level="problem",
            text=f"{path} can't be read: {state}",
            remedy="remove it while nobody serves; the next `simrun serve` makes it anew",
        )
    runs = len(store.run_ids())
    text = f"{path} has {count} runs, the store {runs} directories"
    return Finding(check="index", level="ok", text=text)


# --- records -------------------------------------------------------------------------------------------------------------


def _followed(store: RunStore) -> Finding:
    lock = StoreLock(store.layout.root)
    if lock.taken():
        return Finding(check="lock", level="ok", text=f"held by {lock.holder()}")
    text = "nobody follows its runs now"
    left = [run_id for run_id in store.live_ids() if _goes_on(store, run_id)]
    if not left:
        return Finding(check="lock", level="ok", text=text)
    which = f"run {left[0]} has" if len(left) == 1 else f"{len(left)} runs have"
    return Finding(
        check="lock",
        level="note",
        text=f"{text}, and {which} not ended",
        remedy="`simrun serve` goes on with what was left",
    )


def _goes_on(store: RunStore, run_id: str) -> bool:
    try:
        return not store.read(run_id).state.terminal
    except (NotFound, DamagedRecord):
        return False


def _records(store: RunStore) -> Iterator[Finding]:
    """Live runs whose record can't be read; those of old runs are told by `simrun list`."""
    for run_id in store.live_ids():
        try:
            store.read(run_id)
        except NotFound:
            continue
        except DamagedRecord as error:
            yield Finding(
                check="records",
                level="problem",
                text=f"run {run_id}: {error}",
                remedy="a newer simrun may read it; else put a copy of run.json in its place",
            )


async def repair(findings: list[Finding]) -> list[tuple[Finding, str | None]]:
    """Remove what was listed; each with what kept it from being removed, None where nothing did."""
    done: list[tuple[Finding, str | None]] = []
    for item in findings:
        if item.repair is None:
            continue
        try:
            done_later = item.repair()
            if done_later is not None:
                await done_later
        except (SimrunError, OSError) as error:
            done.append((item, str(error)))
        else:
            done.append((item, None))
    return done
