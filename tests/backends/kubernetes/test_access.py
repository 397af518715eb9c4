"""Kubeconfigs and service accounts, read by the library and asked for in kubectl's order."""

from __future__ import annotations

import base64
import ssl
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from simrun.backends.kubernetes import access
from simrun.backends.kubernetes.access import load_access
from simrun.base.errors import BackendError


def kubeconfig(path: Path, server: str = "http://127.0.0.1:8001", **user: Any) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server}},
            {"name": "d", "cluster": {"server": "http://127.0.0.2:8001/"}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any configuration of clusters and proxies."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")


def test_a_named_file_is_read(tmp_path: Path) -> None:
    found = load_access(kubeconfig(tmp_path / "named", token="secret"))

    assert found.server == "http://127.0.0.1:8001"
    assert found.authorization == "Bearer secret"
    assert found.tls is None


def test_another_context_is_chosen_by_its_name(tmp_path: Path) -> None:
    assert (
        load_access(kubeconfig(tmp_path / "named"), context="other").server
        == "http://127.0.0.2:8001"
    )


def test_password_and_plugin_are_ways_to_say_who_one_is(tmp_path: Path) -> None:
    found = load_access(kubeconfig(tmp_path / "a", username="me", password="pw"))
    assert found.authorization == "Basic " + base64.b64encode(b"me:pw").decode()

    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    script = f"import json; print(json.dumps({credential!r}))"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }
    found = load_access(kubeconfig(tmp_path / "b", exec=plugin))
    assert found.authorization == "Bearer from-plugin"


def test_the_environment_goes_before_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube/config", "http://home:1")
    assert load_access().server == "http://home:1"

    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "env", "http://env:1")))
    assert load_access().server == "http://env:1"


def test_a_pod_uses_its_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("of-the-pod\n")
    (folder / "ca.crt").write_text(ssl.DER_cert_to_PEM_cert(_some_certificate()))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    found = load_access()

    assert found.server == "https://10.96.0.1:443"
    assert found.authorization == "Bearer of-the-pod"
    assert found.tls is not None
    assert found.tls.verify_mode == ssl.CERT_REQUIRED
    assert found.tls.check_hostname


def _some_certificate() -> bytes:
    """Any root certificate will do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context.get_ca_certs(binary_form=True)[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[", "can't be used"),
        ("{}", "can't be used"),
        ("contexts: 5\nclusters: []\ncurrent-context: x", "can't be used"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "broken").write_text(content)

    with pytest.raises(BackendError, match=text) as raised:
        load_access(tmp_path / "broken")

    assert str(tmp_path / "broken") in str(raised.value)


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="does not exist"):
        load_access(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(BackendError, match="KUBECONFIG names"):
        load_access()


def test_without_any_configuration_the_remedy_is_said() -> None:
    with pytest.raises(BackendError, match="name a file with --kubeconfig"):
        load_access()


def test_the_environments_proxy_is_used_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")

    def proxy(server: str) -> str | None:
        return load_access(kubeconfig(tmp_path / "named", server)).proxy

    assert proxy("http://far.example:6443") == "http://proxy:3128"
    assert proxy("http://inside.example:6443") is None
    assert proxy("http://127.0.0.1:6443") is None
    assert proxy("http://localhost:6443") is None
