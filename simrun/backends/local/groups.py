"""Memory cgroups for attempts: where they may be made, made, limited, removed. Version 1 and 2, standard library only."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

from simrun.worker import cgroup

PREFIX = "simrun-"
_PROBE = f"{PREFIX}probe-"
SERVICE_LEAF = "simrun-service"
_REMOVE_TRIES, _REMOVE_WAIT_S = 50, 0.01


def group_of(parent: Path, uid: str) -> Path:
    """Give the cgroup of an attempt."""
    return parent / f"{PREFIX}{uid}"


@cache
def home() -> Path:
    """Give the memory cgroup that this process was started in. Raises FileNotFoundError when there is none."""
    own = cgroup.find()
    if own is None:
        raise FileNotFoundError("no memory cgroup is mounted")
    return own.memory


def find_parent(own: cgroup.Cgroup | None) -> Path | None:
    """Give the cgroup below which attempts may have their own, None when there is none; tries by making one.

    Version 2 allows no cgroup with both processes and controlled children, so this process moves itself into a leaf first;
    only where it is alone, as in a scope of its own or a container. Others are not moved about.
    """
    if own is None:
        return None
    parent = own.memory
    if own.version == 2 and parent.name == SERVICE_LEAF:
        parent = parent.parent
    try:
        if own.version == 2:
            _delegate(parent)
        _sweep_probes(parent)
        probe = parent / f"{_PROBE}{os.getpid()}"
        os.mkdir(probe)
        try:
            set_limit(probe, 2**30)
        finally:
            os.rmdir(probe)
    except OSError:
        return None
    return parent


def _sweep_probes(parent: Path) -> None:
    """Remove probes of processes that were killed while they tried."""
    for probe in parent.glob(f"{_PROBE}*"):
        if not os.path.exists(f"/proc/{probe.name.removeprefix(_PROBE)}"):
            try:
                os.rmdir(probe)
            except OSError:
                pass  # another was quicker


def _delegate(parent: Path) -> None:
    """Have the memory controller in the children of a version 2 cgroup. Raises OSError where that is not to be had."""
    control = parent / "cgroup.subtree_control"
    if "memory" in control.read_text(encoding="ascii").split():
        return
    inside = {int(pid) for pid in (parent / "cgroup.procs").read_text(encoding="ascii").split()}
    if inside == {os.getpid()}:
        leaf = parent / SERVICE_LEAF
        leaf.mkdir(exist_ok=True)
        write(leaf / "cgroup.procs", "0")
    write(control, "+memory")


def set_limit(directory: Path, memory: int, *, whole: bool = False) -> None:
    """Set the memory limit of a cgroup in bytes, swap included."""
    if (directory / "memory.limit_in_bytes").exists():
        write(directory / "memory.limit_in_bytes", str(memory))
        write_if_there(directory / "memory.memsw.limit_in_bytes", str(memory))
        return
    write(directory / "memory.max", str(memory))
    write_if_there(directory / "memory.swap.max", "0")
    if whole:
        write_if_there(directory / "memory.oom.group", "1")


def members(directory: Path) -> list[int]:
    """Give the processes in a cgroup; none when it does not exist."""
    try:
        return [
            int(pid) for pid in (directory / "cgroup.procs").read_text(encoding="ascii").split()
        ]
    except OSError:
        return []


def remove(directory: Path) -> None:
    """Remove a cgroup whose processes have ended; the kernel may need a moment. One that stays is empty and does no harm."""
    for _ in range(_REMOVE_TRIES):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_REMOVE_WAIT_S)
        else:
            return


def write(path: Path, text: str) -> None:
    """Write to a control file of the kernel. Raises OSError as the kernel answers."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_if_there(path: Path, text: str) -> None:
    """Swap accounting may be off, old kernels know no group kill."""
    try:
        write(path, text)
    except FileNotFoundError:
        pass
