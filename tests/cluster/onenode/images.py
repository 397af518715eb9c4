"""The images of the test cluster, and their way into containerd.

registry.test/pause, busybox and argoexec serve the node and Argo; registry.test/simrun-worker is
what the pods of runs use: Debian's python3 with three layers: the system, the locked scientific
packages, and simrun from the working tree; registry.test/simrun is the service, with the packages
that it needs instead. Only the layer with simrun changes while one works on it, and only changed
layers are copied into containerd.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from onenode import archive, layout, pythons
from onenode.archive import Image, Layer
from onenode.daemons import ctr, find
from onenode.layers import file_digest, key, layer
from onenode.shell import ClusterError, exclusive, require_root, script, step

APPLETS = ("sh", "sleep", "echo", "cat", "ls", "true", "false", "dd", "env")


# --- the small images


def _busybox() -> Layer:
    def fill(tree: Path) -> None:
        for folder in ("bin", "dev", "etc", "proc", "sys"):
            (tree / folder).mkdir()
        (tree / "tmp").mkdir()
        (tree / "tmp").chmod(0o1777)
        shutil.copy("/bin/busybox", tree / "bin/busybox")
        for applet in APPLETS:
            (tree / "bin" / applet).symlink_to("busybox")

    return layer("busybox", key(file_digest(Path("/bin/busybox")), *APPLETS), fill)


def _argoexec() -> Layer:
    program = layout.program("argo", "argoexec")

    def fill(tree: Path) -> None:
        (tree / "bin").mkdir()
        shutil.copy(program, tree / "bin/argoexec")

    return layer("argoexec", key(file_digest(program)), fill)


# --- all of them

IMAGES: dict[str, Callable[[], Image]] = {
    "pause": lambda: archive.image(
        "registry.test/pause:1", [_busybox()], ["/bin/busybox", "sleep", "2147483647"]
    ),
    "busybox": lambda: archive.image("registry.test/busybox:1", [_busybox()], ["/bin/sh"]),
    "argoexec": lambda: archive.image(
        "registry.test/argoexec:1", [_busybox(), _argoexec()], ["/bin/argoexec"]
    ),
    "worker": lambda: archive.image(
        layout.WORKER_IMAGE,
        [pythons.system(), pythons.packages(), pythons.simrun()],
        ["/usr/bin/python3"],
        # The pods' user has no home; what keeps a cache there must find a place it may write to
        ["HOME=/tmp", "LANG=C.UTF-8"],
    ),
    "simrun": lambda: archive.image(
        layout.SERVICE_IMAGE,
        [pythons.system(), pythons.requirements(), pythons.simrun(), pythons.command()],
        ["/usr/local/bin/simrun"],
        ["HOME=/tmp", "LANG=C.UTF-8"],
        user=layout.POD_UID,
    ),
}


def make(names: Sequence[str] = ()) -> list[Image]:
    """Make the named images, or all, from cached layers where there are any."""
    unknown = set(names) - IMAGES.keys()
    if unknown:
        raise ClusterError(
            f"no such image: {', '.join(sorted(unknown))} (there are {', '.join(IMAGES)})"
        )
    return [IMAGES[name]() for name in names or IMAGES]


def deliver(images: Sequence[Image]) -> None:
    """Import into the running containerd the images it does not have in this very form."""
    lines = (line.split() for line in ctr("images", "ls").splitlines()[1:])
    there = {words[0]: words[2] for words in lines}
    for image in images:
        if there.get(image.name) == image.digest:
            continue
        with step(f"importing {image.name}"):
            _import(image)


def _import(image: Image) -> None:
    """Import with the layers that are missing; with all of them when containerd collected one in
    between.
    """
    stored = set(ctr("content", "ls", "-q").split())
    with tempfile.TemporaryDirectory(dir=layout.IMAGES) as folder:
        path = Path(folder) / "image.tar"
        try:
            archive.export(image, path, without=stored)
            ctr("images", "import", str(path))
        except ClusterError:
            archive.export(image, path)
            ctr("images", "import", str(path))


def main(argv: Sequence[str]) -> int:
    """Make the named images and import them when the cluster runs; print their names."""
    require_root()
    os.umask(0o022)
    with exclusive():
        images = make(argv)
        if find("containerd"):
            deliver(images)
    for image in images:
        print(image.name)
    return 0


if __name__ == "__main__":
    script(main)
