"""Where the cluster lives on disk, what it is made of, and the names the tests and the scripts
share.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CHECKOUT = HERE.parent.parent
MANIFESTS = HERE / "manifests"


def _root() -> Path:
    named = os.environ.get("SIMRUN_CLUSTER_DIR")
    if named:
        return Path(named).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache).absolute() / "simrun-cluster"


def _versions() -> dict[str, str]:
    lines = (HERE / "versions.env").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


ROOT = _root()
VERSIONS = _versions()

# Kept for good: what costs time to make
BIN = ROOT / "bin"
IMAGES = ROOT / "images"
PKI = ROOT / "pki"
# Kept while the images in it are good: containerd's content store
CONTAINERD = ROOT / "containerd"
CONTAINERD_CONFIG = CONTAINERD / "config.toml"
CONTAINERD_SOCKET = CONTAINERD / "containerd.sock"
# Forgotten by `down`
RUN = ROOT / "run"
LOGS = RUN / "logs"
STORE = RUN / "store"
KUBECONFIG = RUN / "admin.kubeconfig"

NODE = "node0"
# On lo, and outside the service range: kube-proxy's rules would refuse the kubelet's port otherwise
NODE_ADDRESS = "10.89.0.1"
POD_RANGE = "10.88.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
BRIDGE = "simrun0"
CNI_NETWORK = "simrun-test"

NAMESPACE = "sims"
WORKER_IMAGE = "registry.test/simrun-worker:1"
SERVICE_IMAGE = "registry.test/simrun:1"
# Pods run as this user and group, which also owns the run store
POD_UID = 64000

# The socket's path must fit into sockaddr_un
_LONGEST_ROOT = 80


def program(source: str, name: str) -> Path:
    """Return the path of the program `name` of `source`, a key of versions.env in lower case."""
    return BIN / f"{source}-{VERSIONS[source.upper()]}" / name


def kubectl() -> Path:
    """Return the kubectl of this cluster's own version."""
    return program("kubernetes", "kubectl")


def helm() -> Path:
    """Return the helm that installs the chart in the tests."""
    return program("helm", "helm")


def architecture() -> str:
    """Return the machine's architecture as container images name it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def check_root() -> None:
    """Raise ValueError when the cluster's folder is too deep for the sockets in it."""
    if len(str(ROOT)) > _LONGEST_ROOT:
        raise ValueError(
            f"SIMRUN_CLUSTER_DIR {ROOT} is longer than {_LONGEST_ROOT} characters, too long for a socket: name a shorter one"
        )
