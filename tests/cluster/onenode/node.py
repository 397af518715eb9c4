"""The one node: containerd, the kubelet and kube-proxy, and everything of theirs that `down` has to
clear away.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

from onenode import daemons, keys, layout
from onenode.daemons import alive, ctr, find, start
from onenode.shell import (
    ClusterError,
    attempt,
    kubectl,
    mounts_below,
    remove,
    run,
    say,
    wait_for,
    write,
)

_STATE = layout.CONTAINERD / "state"
_CONTENT = layout.CONTAINERD / "root"
_TASKS = _STATE / "io.containerd.runtime.v2.task/k8s.io"
_ADDRESSES = layout.CONTAINERD / "addresses"
_CNI = layout.CONTAINERD / "cni"
# The CNI library notes there what it did, in files that begin with the network's name
_CNI_NOTES = Path("/var/lib/cni/results")
_KUBELET = layout.RUN / "kubelet"

_CONTAINERD_TOML = f"""\
version = 2
root = "{_CONTENT}"
state = "{_STATE}"
[grpc]
  address = "{layout.CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.test/pause:1"
  # Without CAP_SYS_RESOURCE runc may not lower a score, and every pod would fail: "can't get final
  # child's PID from pipe"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{_CNI}"
"""

_NETWORK = {
    "cniVersion": "0.4.0",
    "name": layout.CNI_NETWORK,
    "plugins": [
        {
            "type": "bridge",
            "bridge": layout.BRIDGE,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(_ADDRESSES),
                "ranges": [[{"subnet": layout.POD_RANGE}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def _kubelet_configuration() -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys.path("ca.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "address": layout.NODE_ADDRESS,
        "tlsCertFile": str(keys.path("kubelet.crt")),
        "tlsPrivateKeyFile": str(keys.path("kubelet.key")),
        "containerRuntimeEndpoint": f"unix://{layout.CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        # Machines with control groups version 1 are welcome, and with swap
        "failCgroupV1": False,
        "failSwapOn": False,
        "resolvConf": "",
        "podLogsDir": str(layout.RUN / "pod-logs"),
        "volumePluginDir": str(layout.RUN / "volume-plugins"),
        # A full disk or scarce memory of a developer's machine is no reason to evict a test's pods,
        # and images cannot be pulled again: nothing is collected, nothing is evicted until the very
        # end
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "1000h",
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    }


# --- starting


def start_containerd() -> None:
    """Start containerd and wait until it answers."""
    write(layout.CONTAINERD_CONFIG, _CONTAINERD_TOML)
    write(_CNI / "10-simrun.conflist", json.dumps(_NETWORK))
    program = shutil.which("containerd")
    if program is None:
        raise ClusterError("containerd is not on PATH, though its package is installed")
    start("containerd", program, "--config", layout.CONTAINERD_CONFIG)
    wait_for("containerd", lambda: alive("containerd") and _containerd_answers())


def _containerd_answers() -> bool:
    with contextlib.suppress(ClusterError):
        ctr("version")
        return True
    return False


def start_kubelet() -> None:
    """Give the node its address and start the kubelet."""
    if f"{layout.NODE_ADDRESS}/" not in run("ip", "-oneline", "address", "show", "dev", "lo"):
        run("ip", "address", "add", f"{layout.NODE_ADDRESS}/32", "dev", "lo")
    write(layout.RUN / "kubelet.json", json.dumps(_kubelet_configuration(), indent=1))
    start(
        "kubelet",
        layout.program("kubernetes", "kubelet"),
        f"--config={layout.RUN / 'kubelet.json'}",
        f"--kubeconfig={layout.RUN / 'kubelet.kubeconfig'}",
        *(f"--hostname-override={layout.NODE}", f"--node-ip={layout.NODE_ADDRESS}"),
        *(f"--root-dir={_KUBELET}", f"--cert-dir={layout.RUN / 'kubelet-pki'}"),
    )


def start_proxy() -> None:
    """Start kube-proxy."""
    start(
        "kube-proxy",
        layout.program("kubernetes", "kube-proxy"),
        *(f"--kubeconfig={layout.KUBECONFIG}", f"--hostname-override={layout.NODE}"),
        *("--proxy-mode=nftables", f"--cluster-cidr={layout.POD_RANGE}"),
        "--healthz-bind-address=127.0.0.1:10256",
        # The machine's own limits stay
        "--conntrack-max-per-core=0",
    )


def ready() -> bool:
    """Tell whether the API server has the node as Ready."""
    path = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    with contextlib.suppress(ClusterError):
        return kubectl("get", "node", layout.NODE, "-o", path) == "True"
    return False


def wait_until_ready() -> None:
    """Wait until the node is Ready."""
    wait_for("the node", lambda: alive("kubelet") and alive("containerd") and ready())


# --- stopping


def end_pods() -> None:
    """Delete all pods and give the kubelet a few seconds to take them down in order, network and
    mounts included.
    """
    if not (find("kubelet") and find("containerd")):
        return
    attempt(
        *(layout.kubectl(), "--kubeconfig", layout.KUBECONFIG, "--request-timeout=5s"),
        *(
            "delete",
            "pods",
            "--all-namespaces",
            "--all",
            "--force",
            "--grace-period=0",
            "--wait=false",
        ),
    )
    deadline = time.monotonic() + 10
    with contextlib.suppress(ClusterError):
        while ctr("tasks", "ls", "-q").strip() and time.monotonic() < deadline:
            time.sleep(0.1)


def clear() -> None:
    """End containerd with whatever runs in it, and undo everything the node did to this machine.

    The images stay in containerd when it could be asked to forget its containers; otherwise its
    content goes too, since what a crash left in it is not worth repairing: importing the images
    again takes seconds.
    """
    orderly = _forget_containers()
    ids = {path.name for path in _TASKS.iterdir()} if _TASKS.is_dir() else set()
    leavings = _leavings(ids)
    namespaces = _network_namespaces()
    daemons.stop("containerd")
    daemons.kill("containerd-shim-runc-v2")
    daemons.kill_containers(ids)
    mounts = [m for folder in (_KUBELET, _STATE, _CONTENT) for m in mounts_below(folder)]
    for point in [*mounts, *namespaces]:
        attempt("umount", "--lazy", point)
    for path in [*namespaces, *leavings]:
        path.unlink(missing_ok=True)
    _clear_network()
    if not orderly and _CONTENT.exists():
        say(
            "containerd was not there to be asked: its content is dropped and imported again at the next start"
        )
        remove(_CONTENT)
    remove(_KUBELET, _STATE, _ADDRESSES)


def _forget_containers() -> bool:
    """Kill and forget all containers; return whether containerd was there and did."""
    if not find("containerd"):
        return not _STATE.exists()
    try:
        for task in ctr("tasks", "ls", "-q").split():
            with contextlib.suppress(ClusterError):
                ctr("tasks", "delete", "--force", task)
        for container in ctr("containers", "ls", "-q").split():
            ctr("containers", "delete", container)
    except ClusterError:
        return False
    return True


def _network_namespaces() -> list[Path]:
    """Return the network namespaces that containerd made for this cluster's pods and did not take
    away.
    """
    found = []
    for point in mounts_below(Path("/run/netns")):
        if not point.name.startswith("cni-"):
            continue
        with contextlib.suppress(ClusterError):
            links = run("nsenter", f"--net={point}", "ip", "-oneline", "address", "show")
            network = layout.POD_RANGE.rsplit(".", 2)[0]
            if f" {network}." in links:
                found.append(point)
    return found


def _leavings(ids: set[str]) -> list[Path]:
    """Return the files outside the cluster's folder that containers of these ids left when
    containerd was killed.
    """
    sockets = [_TASKS / name / "address" for name in ids]
    notes = [note for name in ids for note in _CNI_NOTES.glob(f"*-{name}-*")]
    return [Path(s.read_text().removeprefix("unix://")) for s in sockets if s.exists()] + notes


def _clear_network() -> None:
    for family in ("ip", "ip6"):
        attempt("nft", "delete", "table", family, "kube-proxy")
    attempt("ip", "link", "delete", layout.BRIDGE)
    attempt("ip", "address", "delete", f"{layout.NODE_ADDRESS}/32", "dev", "lo")
    for note in _CNI_NOTES.glob(f"{layout.CNI_NETWORK}-*"):
        note.unlink()
