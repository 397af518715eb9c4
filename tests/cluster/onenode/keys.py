"""The certificates of the cluster: one authority, and a key pair for each server and client."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from pathlib import Path

from onenode import layout
from onenode.shell import run, write

_ADDRESSES = f"IP:127.0.0.1,IP:{layout.NODE_ADDRESS},IP:{layout.SERVICE_ADDRESS}"
# Subject and alternative names of each key pair
_PAIRS = {
    "apiserver": ("/CN=kube-apiserver", f"DNS:localhost,DNS:kubernetes.default.svc,{_ADDRESSES}"),
    "apiserver-client": ("/O=system:masters/CN=apiserver-kubelet", "DNS:apiserver"),
    "admin": ("/O=system:masters/CN=admin", "DNS:admin"),
    "kubelet": (f"/O=system:nodes/CN=system:node:{layout.NODE}", f"DNS:{layout.NODE},{_ADDRESSES}"),
    "kueue": ("/CN=localhost", "DNS:localhost,IP:127.0.0.1"),
}
_DAYS = "3650"


def make() -> None:
    """Make all keys unless they are there. They appear together: the folder is renamed when it is
    complete.
    """
    if layout.PKI.exists():
        return
    layout.ROOT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=layout.ROOT, prefix="pki.") as scratch:
        folder = Path(scratch) / "pki"
        folder.mkdir(mode=0o700)
        _authority(folder)
        for name, (subject, alternatives) in _PAIRS.items():
            _pair(folder, name, subject, alternatives)
        run("openssl", "genrsa", "-out", folder / "service-accounts.key", "2048")
        run(
            "openssl",
            "rsa",
            "-in",
            folder / "service-accounts.key",
            "-pubout",
            "-out",
            folder / "service-accounts.pub",
        )
        # Kueue reads a pair under fixed names
        for kind in ("crt", "key"):
            (folder / "kueue").mkdir(exist_ok=True)
            shutil.copyfile(folder / f"kueue.{kind}", folder / f"kueue/tls.{kind}")
        folder.rename(layout.PKI)


def _authority(folder: Path) -> None:
    files = ("-keyout", folder / "ca.key", "-out", folder / "ca.crt")
    run(
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        _DAYS,
        "-subj",
        "/CN=simrun-test",
        *files,
    )


def _pair(folder: Path, name: str, subject: str, alternatives: str) -> None:
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(
        f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    files = ("-keyout", folder / f"{name}.key", "-out", request)
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject, *files)
    signed = (
        "-in",
        request,
        "-out",
        folder / f"{name}.crt",
        "-extfile",
        extensions,
        "-days",
        _DAYS,
    )
    run(
        "openssl",
        "x509",
        "-req",
        "-CA",
        folder / "ca.crt",
        "-CAkey",
        folder / "ca.key",
        "-CAcreateserial",
        *signed,
    )


def path(name: str) -> Path:
    """Return the path of a key or certificate by its file's name."""
    return layout.PKI / name


def encoded(name: str) -> str:
    """Return a certificate or key in the form that objects and kubeconfigs carry."""
    return base64.b64encode(path(name).read_bytes()).decode()


def kubeconfig(pair: str) -> str:
    """Return a kubeconfig for the holder of `pair`, with everything in it, so that it may be copied
    anywhere.
    """
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": encoded("ca.crt")}
    user = {
        "client-certificate-data": encoded(f"{pair}.crt"),
        "client-key-data": encoded(f"{pair}.key"),
    }
    context = {"cluster": "simrun-test", "user": pair, "namespace": layout.NAMESPACE}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "simrun-test",
        "contexts": [{"name": "simrun-test", "context": context}],
        "clusters": [{"name": "simrun-test", "cluster": cluster}],
        "users": [{"name": pair, "user": user}],
    }
    return json.dumps(document, indent=1)


def write_kubeconfigs() -> None:
    """Write the kubeconfigs of the administrator and of the kubelet."""
    write(layout.KUBECONFIG, kubeconfig("admin"), mode=0o600)
    write(layout.RUN / "kubelet.kubeconfig", kubeconfig("kubelet"), mode=0o600)
