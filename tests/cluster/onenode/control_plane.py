"""etcd and the Kubernetes control plane, as processes on loopback."""

from __future__ import annotations

from onenode import keys, layout
from onenode.daemons import alive, start
from onenode.shell import attempt, wait_for

_ETCD = "http://127.0.0.1:2379"


def answers() -> bool:
    """Tell whether the API server says that it is ready."""
    return attempt(
        layout.kubectl(),
        "--kubeconfig",
        layout.KUBECONFIG,
        "--request-timeout=5s",
        "get",
        "--raw",
        "/readyz",
    )


def _kubernetes(name: str, *argv: str) -> None:
    start(name, layout.program("kubernetes", name), *argv)


def start_etcd() -> None:
    """Start etcd; return before it answers."""
    peer = "http://127.0.0.1:2380"
    start(
        "etcd",
        layout.program("etcd", "etcd"),
        *(f"--data-dir={layout.RUN / 'etcd'}", "--log-level=warn"),
        # Its state is thrown away with the cluster; syncing it would only slow down the machine's
        # other work
        "--unsafe-no-fsync",
        *(
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
            f"--listen-peer-urls={peer}",
        ),
    )


def start_api() -> None:
    """Start the API server; return before it answers."""
    _kubernetes(
        "kube-apiserver",
        f"--etcd-servers={_ETCD}",
        *(
            "--secure-port=6443",
            "--bind-address=0.0.0.0",
            f"--advertise-address={layout.NODE_ADDRESS}",
        ),
        f"--service-cluster-ip-range={layout.SERVICE_RANGE}",
        *("--authorization-mode=Node,RBAC", "--anonymous-auth=false", "--allow-privileged"),
        f"--tls-cert-file={keys.path('apiserver.crt')}",
        f"--tls-private-key-file={keys.path('apiserver.key')}",
        f"--client-ca-file={keys.path('ca.crt')}",
        f"--kubelet-client-certificate={keys.path('apiserver-client.crt')}",
        f"--kubelet-client-key={keys.path('apiserver-client.key')}",
        f"--kubelet-certificate-authority={keys.path('ca.crt')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={keys.path('service-accounts.pub')}",
        f"--service-account-signing-key-file={keys.path('service-accounts.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
    )


def wait_for_api() -> None:
    """Wait until the API server is ready."""
    wait_for("the API server", lambda: alive("etcd") and alive("kube-apiserver") and answers())


def start_controllers() -> None:
    """Start the controller manager and the scheduler. One of each, so neither waits for a lease."""
    _kubernetes(
        "kube-controller-manager",
        f"--kubeconfig={layout.KUBECONFIG}",
        f"--service-account-private-key-file={keys.path('service-accounts.key')}",
        f"--root-ca-file={keys.path('ca.crt')}",
        *("--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1"),
        f"--cluster-cidr={layout.POD_RANGE}",
        # Claims are bound by a resync; its 15 s would be half of the cluster's start
        "--pvclaimbinder-sync-period=1s",
        # The bridge hands out the pods' addresses
        "--controllers=*,-node-ipam-controller",
    )
    _kubernetes(
        "kube-scheduler",
        f"--kubeconfig={layout.KUBECONFIG}",
        *("--leader-elect=false", "--bind-address=127.0.0.1"),
    )
