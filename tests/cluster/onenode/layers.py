"""Layers of images in the cache, by what they are made from."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from onenode import archive, layout
from onenode.archive import Layer
from onenode.shell import step


def key(*parts: str) -> str:
    """Give a short name for what a layer is made from."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def layer(name: str, stamp: str, fill: Callable[[Path], None]) -> Layer:
    """Return the cached layer of that stamp, or `fill` a folder and pack it; older layers of that
    name go.
    """
    path = layout.IMAGES / f"{name}-{stamp}.tar"
    found = archive.cached(path)
    if found:
        return found
    layout.IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        step(f"packing the layer {name}"),
        tempfile.TemporaryDirectory(dir=layout.IMAGES, prefix=f"{name}.") as tree,
    ):
        Path(tree).chmod(0o755)
        fill(Path(tree))
        packed = archive.pack(Path(tree), path)
    for old in layout.IMAGES.glob(f"{name}-*.tar*"):
        if not old.name.startswith(path.name):
            old.unlink()
    return packed


def file_digest(path: Path) -> str:
    """Give the digest of the content of a file."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
