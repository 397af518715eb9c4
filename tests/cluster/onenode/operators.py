"""Argo's workflow controller and Kueue, as processes beside the control plane, and the objects that
runs need.

Neither runs in a pod, so no taint on the node can evict them. Their object definitions come from
their own modules, kept beside the programs.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onenode import keys, layout, programs
from onenode.daemons import alive, start
from onenode.shell import apply, kubectl, wait_for, write

_WEBHOOK = ("127.0.0.1", 9443)
# Kueue reads its metrics certificate here and nowhere else, even with metrics off
_KUEUE_METRICS = Path("/etc/kueue/metrics/certs")
_KUEUE_GROUPS = {"", "batch", "kueue.x-k8s.io"}
_KUEUE_SETTINGS = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": "kueue-system",
    "health": {"healthProbeBindAddress": "127.0.0.1:9440"},
    "metrics": {"bindAddress": "0"},
    "webhook": {"host": _WEBHOOK[0], "port": _WEBHOOK[1], "certDir": str(keys.path("kueue"))},
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
    "manageJobsWithoutQueueName": False,
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


def define_objects() -> None:
    """Make the namespaces and the kinds of both operators known."""
    crds = [
        path
        for source in (programs.ARGO, programs.KUEUE)
        for path in sorted(source.manifests().glob("*_*.yaml"))
    ]
    files = (word for path in crds for word in ("-f", path))
    kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        *files,
        "-f",
        layout.MANIFESTS / "namespaces.yaml",
    )
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")


def start_argo(environment: Mapping[str, str] | None = None) -> None:
    """Start the workflow controller, with more variables in its environment if wanted."""
    start(
        "workflow-controller",
        layout.program("argo", "workflow-controller"),
        *("--kubeconfig", layout.KUBECONFIG, "--namespace", "argo"),
        *(
            "--executor-image",
            "registry.test/argoexec:1",
            "--executor-image-pull-policy",
            "IfNotPresent",
        ),
        # The requeue time is the pause between a pod's end and the next one's start; ten seconds is
        # the default
        env={
            "LEADER_ELECTION_DISABLE": "true",
            "DEFAULT_REQUEUE_TIME": "1s",
            **(environment or {}),
        },
    )


def start_kueue() -> None:
    """Start Kueue; its webhooks are called by URL, since no service of the cluster could lead
    outside it.
    """
    _KUEUE_METRICS.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(_KUEUE_METRICS):
        _KUEUE_METRICS.symlink_to(keys.path("kueue"))
    write(layout.RUN / "kueue.json", json.dumps(_KUEUE_SETTINGS, indent=1))
    start(
        "kueue",
        layout.program("kueue", "kueue"),
        *("--config", layout.RUN / "kueue.json"),
        # Its visibility server would want an identity inside the cluster
        *("--feature-gates", "VisibilityOnDemand=false"),
        env={"KUBECONFIG": str(layout.KUBECONFIG)},
    )


def forget_kueue_certificates() -> None:
    """Take away the link that `start_kueue` made, and the folders when nothing else is in them."""
    if _KUEUE_METRICS.is_symlink() and Path(os.readlink(_KUEUE_METRICS)) == keys.path("kueue"):
        _KUEUE_METRICS.unlink()
        for folder in _KUEUE_METRICS.parents[:2]:
            if not any(folder.iterdir()):
                folder.rmdir()


def _webhook_answers() -> bool:
    try:
        socket.create_connection(_WEBHOOK, timeout=1).close()
    except OSError:
        return False
    return True


def wait_for_kueue() -> None:
    """Wait until Kueue takes webhook calls."""
    wait_for(
        "Kueue", lambda: alive("kueue") and alive("workflow-controller") and _webhook_answers()
    )


def apply_objects() -> None:
    """Apply Kueue's webhooks, the run store's volumes and what runs need; also on a cluster that
    runs already.
    """
    apply(*_webhooks(), *_volumes())
    kubectl("apply", "-f", layout.MANIFESTS / "sims.yaml", "-f", layout.MANIFESTS / "queues.yaml")
    kubectl(
        "-n",
        layout.NAMESPACE,
        "wait",
        "--for=jsonpath={.status.phase}=Bound",
        "--timeout=30s",
        "pvc",
        "--all",
    )


# --- webhooks


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Read the JSON documents that kubectl prints one after the other, and what lists hold."""
    decoder = json.JSONDecoder()
    text = text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        yield from document["items"] if document.get("kind") == "List" else [document]
        text = text[end:].strip()


def _webhooks() -> list[dict[str, Any]]:
    """Return Kueue's webhook configurations for the kinds this cluster has, calling the process by
    its URL.
    """
    manifest = programs.KUEUE.manifests() / "manifests.yaml"
    # kubectl reads YAML, the standard library does not
    text = kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", manifest)
    configurations = list(_documents(text))
    for configuration in configurations:
        configuration["metadata"]["name"] = f"kueue-{configuration['metadata']['name']}"
        configuration["webhooks"] = [
            _by_url(hook)
            for hook in configuration["webhooks"]
            if hook["rules"][0]["apiGroups"][0] in _KUEUE_GROUPS
        ]
    return configurations


def _by_url(hook: dict[str, Any]) -> dict[str, Any]:
    url = f"https://{_WEBHOOK[0]}:{_WEBHOOK[1]}{hook['clientConfig']['service']['path']}"
    hook = {**hook, "clientConfig": {"url": url, "caBundle": keys.encoded("ca.crt")}}
    if hook["rules"][0]["resources"] == ["pods"]:
        hook["namespaceSelector"] = {
            "matchLabels": {"kubernetes.io/metadata.name": layout.NAMESPACE}
        }
    return hook


# --- the run store


def prepare_store() -> None:
    """Make the run store's folder: owned by the pods' user, and writable for its group in every
    folder made below.

    The tests' service runs as root and the pods do not. Both write: the folder hands its group on,
    and its default ACL takes the place of anybody's umask.
    """
    for folder in (layout.STORE, layout.STORE / "snapshots"):
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, layout.POD_UID, layout.POD_UID)
        folder.chmod(0o2775)
        os.setxattr(folder, "system.posix_acl_default", _default_acl())


def _default_acl() -> bytes:
    """Encode the ACL user::rwx, group::rwx, other::r-x: version 2, then tag, permissions and an
    unused id of each.
    """
    entries = ((0x01, 7), (0x04, 7), (0x20, 5))
    little = [n.to_bytes(2, "little") for entry in entries for n in entry]
    pairs = zip(little[::2], little[1::2], strict=True)
    return (2).to_bytes(4, "little") + b"".join(
        tag + mode + b"\xff\xff\xff\xff" for tag, mode in pairs
    )


def _volumes() -> list[dict[str, Any]]:
    """Return the volumes of the run store and its snapshots: folders of the node, bound to claims
    of their own.
    """
    return [
        *_volume("simrun-store", layout.STORE, "ReadWriteMany"),
        *_volume("simrun-snapshots", layout.STORE / "snapshots", "ReadOnlyMany"),
    ]


def _volume(name: str, path: Path, access: str) -> list[dict[str, Any]]:
    size = {"storage": "10Gi"}
    claim = {"namespace": layout.NAMESPACE, "name": name}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": size,
                "accessModes": [access],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                "claimRef": claim,
                "hostPath": {"path": str(path), "type": "Directory"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": claim,
            "spec": {
                "accessModes": [access],
                "resources": {"requests": size},
                "storageClassName": "",
                "volumeName": name,
            },
        },
    ]
