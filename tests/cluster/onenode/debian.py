"""The Debian packages the cluster stands on, installed when they are missing."""

from __future__ import annotations

import shutil
from pathlib import Path

from onenode.shell import ClusterError, attempt, require_root, run, say

# Package and the program or file that shows it is there; where none is named, dpkg is asked. A
# machine with a container engine may have containerd and runc from elsewhere, and Debian's packages
# would push those out.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "nftables": "nft",
    "conntrack": "conntrack",
    "busybox-static": None,
    "mmdebstrap": "mmdebstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "iproute2": "ip",
    "openssl": "openssl",
}


def _present(package: str, shows: str | None) -> bool:
    if shows is not None:
        return Path(shows).exists() if shows.startswith("/") else shutil.which(shows) is not None
    return attempt("dpkg-query", "--show", package) and "install ok installed" in run(
        "dpkg-query", "--show", "--showformat", "${Status}", package
    )


def install_missing() -> None:
    """Install what is missing of PACKAGES; needs root and apt only then."""
    missing = [package for package, shows in PACKAGES.items() if not _present(package, shows)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"install these first (names as in Debian 12): {' '.join(missing)}")
    require_root()
    say(f"installing Debian packages: {' '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-q", env=quiet)
    run("apt-get", "install", "-qy", "--no-install-recommends", *missing, env=quiet)
