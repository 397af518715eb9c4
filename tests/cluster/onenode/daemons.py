"""The processes of the cluster: started in sessions of their own, found again by what they are.

There are no pid files, so none can be stale after a crash or a reboot: a process belongs to this
cluster when its command line begins with the path of a program in this cluster's own folder (for
containerd, which is the machine's: when it names this cluster's configuration file). Nothing else
is ever sent a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from onenode import layout
from onenode.shell import ClusterError, run

# All that a healthy cluster runs outside pods; shims come and go with the pods
NAMES = (
    "kueue",
    "workflow-controller",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kube-apiserver",
    "etcd",
    "containerd",
)

# Argo's controller waits for its queues without end when asked to stop; nothing here has state
# worth waiting for longer
_PATIENCE_S = 3.0


def _command_line(pid: int) -> list[str]:
    """Return the arguments of a process; none when it is gone or a zombie."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return data.decode(errors="replace").split("\0")[:-1]


def _is(name: str, argv: list[str]) -> bool:
    if not argv or Path(argv[0]).name != name:
        return False
    if name == "containerd":
        return str(layout.CONTAINERD_CONFIG) in argv
    if name == "containerd-shim-runc-v2":
        return str(layout.CONTAINERD_SOCKET) in argv
    return Path(argv[0]).is_relative_to(layout.BIN)


def find(name: str) -> list[int]:
    """Return the pids of this cluster's processes of that name, of whatever version."""
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in pids if _is(name, _command_line(pid))]


def start(name: str, *argv: str | Path, env: dict[str, str] | None = None) -> None:
    """Start a process that outlives this script, its output in the cluster's log folder.

    Proxy settings of the shell are kept from it: everything it talks to is on this machine.
    """
    inherited = {
        key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")
    }
    layout.LOGS.mkdir(parents=True, exist_ok=True)
    with (layout.LOGS / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [str(a) for a in argv],
            env={**inherited, **(env or {})},
            cwd=layout.RUN,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # exec closes our pipe to the child shortly before its new command line can be read
    while process.poll() is None and not _command_line(process.pid):
        time.sleep(0.001)


def alive(name: str) -> bool:
    """Tell whether a process runs; raise ClusterError with the end of its log when it does not."""
    if find(name):
        return True
    log = layout.LOGS / f"{name}.log"
    tail = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
    raise ClusterError("\n".join([f"{name} ended early; its log {log} ends with:", *tail]))


def stop(name: str) -> None:
    """End the processes of that name: asked first, killed after a few seconds."""
    for pid in find(name):
        _signal(pid, signal.SIGTERM)
    begun = time.monotonic()
    while find(name):
        waited = time.monotonic() - begun
        if waited > 10 * _PATIENCE_S:
            raise ClusterError(f"{name} (pid {find(name)}) does not end even when killed")
        if waited > _PATIENCE_S:
            kill(name)
        time.sleep(0.05)


def kill(name: str) -> None:
    """Kill the processes of that name at once."""
    for pid in find(name):
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it ended by itself in between


def in_control_group(names: set[str]) -> list[int]:
    """Return the pids of processes whose control group's last part is one of `names` (container
    ids).
    """
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            lines = Path(f"/proc/{entry}/cgroup").read_text().splitlines()
        except OSError:
            continue
        if any(line.rpartition("/")[2] in names for line in lines):
            found.append(int(entry))
    return found


def kill_containers(ids: set[str]) -> None:
    """Kill what still runs in the containers of these ids, when no containerd is there to be asked."""
    for pid in in_control_group(ids) if ids else ():
        _signal(pid, signal.SIGKILL)


def ctr(*argv: str) -> str:
    """Run containerd's own client on this cluster's containerd, in the kubelet's namespace."""
    return run("ctr", "--address", layout.CONTAINERD_SOCKET, "--namespace", "k8s.io", *argv)
