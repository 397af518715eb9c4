"""Where the cgroup of a process is mounted: /proc/self/cgroup read together with /proc/self/mountinfo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

UNIFIED = ""
"""Stands for version 2 where a controller is asked for: its lines name none."""


class Place(NamedTuple):
    """Where a process stands in one hierarchy."""

    directory: Path
    mount: Path
    path: str
    """What /proc/self/cgroup says; the parts of one container have the same path under all controllers."""


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str
    point: Path
    controllers: frozenset[str]


def find_places(proc: Path, *controllers: str) -> dict[str, Place]:
    """Give where the process stands under each of these controllers (of version 1, or UNIFIED) that is mounted."""
    memberships = _memberships(proc / "cgroup")
    mounts = _mounts(proc / "mountinfo")
    places = ((controller, _place(controller, memberships, mounts)) for controller in controllers)
    return {controller: place for controller, place in places if place is not None}


def _memberships(path: Path) -> dict[str, str]:
    """Give the path of this process in the hierarchy of each controller; version 2 stands under the empty name."""
    memberships = {}
    for line in _lines(path):
        _, controllers, place = line.split(":", 2)
        memberships.update(dict.fromkeys(controllers.split(","), place))
    return memberships


def _mounts(path: Path) -> list[_Mount]:
    mounts = []
    for line in _lines(path):
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(" "), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = (_unescaped(field) for field in fields[3:5])
            controllers = (
                frozenset(options.split(",")) if kind == "cgroup" else frozenset({UNIFIED})
            )
            mounts.append(_Mount(root, Path(point), controllers))
    return mounts


def _place(controller: str, memberships: dict[str, str], mounts: list[_Mount]) -> Place | None:
    path = memberships.get(controller)
    for mount in mounts:
        if path is None or controller not in mount.controllers:
            continue
        inside = _below(path, mount.root)
        # A path outside what is mounted can't be seen; the mount point is then the nearest that can
        directory = mount.point / inside if inside is not None else mount.point
        return Place(directory if directory.is_dir() else mount.point, mount.point, path)
    return None


def _below(path: str, root: str) -> str | None:
    """Give a path relative to the root of a mount; None when it isn't below it (a cgroup namespace shows `/..`)."""
    if root == "/":
        return None if path.startswith("/..") else path.lstrip("/")
    if path == root:
        return ""
    return path[len(root) + 1 :] if path.startswith(root + "/") else None


def _unescaped(field: str) -> str:
    for escape, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(escape, character)
    return field


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []  # no cgroups in this kernel
