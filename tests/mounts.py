"""Real mounts for tests of what file systems do: bindfs, a FUSE file system that shows a directory under other rules."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NOBODY = 65534

STALE = ("-o", "negative_timeout=60,entry_timeout=60,attr_timeout=60")
"""What an NFS client does by default: the kernel answers lookups from its cache for a minute, also with "no such file"."""


@contextmanager
def mounted(source: Path, *options: str) -> Iterator[Path]:
    """Mount `source` at a new place by bindfs, with its options, and give the place."""
    if shutil.which("bindfs") is None:
        raise RuntimeError("these tests mount file systems: install bindfs (Debian: bindfs)")
    place = Path(tempfile.mkdtemp(prefix="simrun-mount-"))
    try:
        subprocess.run(["bindfs", *options, str(source), str(place)], check=True, timeout=20)
        try:
            yield place
        finally:
            subprocess.run(["fusermount", "-u", "-z", str(place)], check=True, timeout=20)
    finally:
        place.rmdir()


@contextmanager
def two_views() -> Iterator[tuple[Path, Path]]:
    """Mount one directory twice, each mount with a cache of its own: two hosts on one file server."""
    with ExitStack() as stack:
        source = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="simrun-source-")))
        one, two = (stack.enter_context(mounted(source, *STALE)) for _ in range(2))
        yield one, two


@contextmanager
def without_hard_links() -> Iterator[Path]:
    """Give a directory in which this user may do everything but make hard links.

    Every file belongs to somebody else whoever writes it, as on an NFS export that squashes users; then the kernel
    refuses links (fs.protected_hardlinks). The superuser is exempt, so root tries it as nobody.
    """
    with tempfile.TemporaryDirectory(prefix="simrun-source-") as source:
        os.chmod(source, 0o777)
        owner = "root" if os.geteuid() == 0 else str(NOBODY)
        with mounted(Path(source), f"--force-user={owner}", f"--force-group={owner}") as place:
            if os.geteuid() == 0:
                with _as_nobody():
                    yield place
            else:
                yield place


@contextmanager
def _as_nobody() -> Iterator[None]:
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
