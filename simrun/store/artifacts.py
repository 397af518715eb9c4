"""Artifacts: the files that a task left in its out/, listed and opened without ever following what a pod put in their place.

A pod may write links, FIFOs and devices into its own directory; these are no artifacts. Everything goes by descriptors of directories that
were opened without following links, so a directory that is swapped for a link meanwhile leads nowhere. All of it blocks.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simrun.base.errors import NotFound
from simrun.store.files import open_beneath
from simrun.store.runs import RunStore
from simrun.worker.files import TEMPORARY_PREFIX

DEPTH_MAX = 64
"""Directories in directories; what lies deeper is no artifact."""
_OURS = (".simrun-", TEMPORARY_PREFIX)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a task made. path: `<task>/<path in out/>`. size in bytes, modified in wall seconds since 1970."""

    path: str
    size: int
    modified: float
    etag: str
    """Changes when the file does."""


def etag_of(seen: os.stat_result) -> str:
    """Give the entity tag of a file."""
    return f'"{seen.st_ino:x}-{seen.st_mtime_ns:x}-{seen.st_size:x}"'


def artifacts(
    store: RunStore, run_id: str, task: str, *, prefix: str = "", after: str = ""
) -> Iterator[Artifact]:
    """Yield the artifacts of a task in the order of their paths, directory by directory.

    prefix: only those whose path in out/ begins so. after: only those behind this path in out/, for who goes on with a list.
    """
    try:
        root = open_beneath(store.layout.run(run_id).root, "tasks", task, "out")
    except (NotFound, FileNotFoundError):
        return
    last = tuple(after.split("/")) if after else ()
    try:
        for parts, seen in _walk(root, (), prefix, last):
            path = "/".join((task, *parts))
            yield Artifact(path, seen.st_size, seen.st_mtime, etag_of(seen))
    finally:
        os.close(root)


def _walk(
    directory: int, above: tuple[str, ...], prefix: str, after: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    for name in sorted(os.listdir(directory)):
        here = (*above, name)
        text = "/".join(here)
        if here < after[: len(here)] or name.startswith(_OURS):
            continue
        if not text.startswith(prefix) and not prefix.startswith(f"{text}/"):
            continue
        try:
            seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue  # gone meanwhile
        if stat.S_ISREG(seen.st_mode) and text.startswith(prefix):
            if here > after and text.isprintable():
                yield here, seen
        elif stat.S_ISDIR(seen.st_mode) and len(here) < DEPTH_MAX:
            with _beneath(directory, name) as inner:
                if inner is not None:
                    yield from _walk(inner, here, prefix, after)


@contextmanager
def _beneath(directory: int, name: str) -> Iterator[int | None]:
    try:
        inner = os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError:
        yield None  # gone meanwhile, a link now, or not to be read
        return
    try:
        yield inner
    finally:
        os.close(inner)


def open_artifact(store: RunStore, run_id: str, path: str) -> int:
    """Open an artifact by `<task>/<path in out/>`; the descriptor. Raises NotFound for whatever is none."""
    task, _, inside = path.partition("/")
    parts = inside.split("/")
    if not task or not inside or any(part.startswith(_OURS) for part in parts):
        raise NotFound(f"no artifact {path!r}")
    try:
        fd = open_beneath(store.layout.run(run_id).root, "tasks", task, "out", *parts)
    except (NotFound, FileNotFoundError, ValueError):
        raise NotFound(f"no artifact {path!r}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFound(f"no artifact {path!r}")
    return fd
