"""Fixtures of the tests that run on a real cluster. They start nothing: `make cluster-up` does.

Without a cluster a test that was asked for fails with the remedy; it is never skipped.
SIMRUN_TEST_KUBECONFIG names another cluster than the one in tests/cluster; README.md says what that
one must have.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# The scripts beside this file find the package in their own folder; the tests need to be told
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from onenode import cluster, layout  # noqa: E402 - the line above makes it importable
from onenode.shell import ClusterError, run  # noqa: E402 - the same

from tests.cluster import scenarios  # noqa: E402 - it may import this module's Kubectl

REMEDY = "run `make cluster-up`, or name another cluster in SIMRUN_TEST_KUBECONFIG"


@dataclass(frozen=True)
class Kubectl:
    """kubectl against the tests' cluster and namespace; raises ClusterError with its standard
    error.
    """

    program: Path
    kubeconfig: Path
    namespace: str

    def __call__(self, *argv: str, text: str | None = None) -> str:
        """Run kubectl and return its standard output; `text` is its standard input."""
        where = ("--kubeconfig", self.kubeconfig, "--namespace", self.namespace)
        return run(self.program, *where, *argv, text=text)

    def get(self, *argv: str) -> dict[str, Any]:
        """Return an object, or a list of them under `items`."""
        found: dict[str, Any] = json.loads(self("get", *argv, "--output=json"))
        return found

    def create(self, manifest: dict[str, Any]) -> None:
        """Create an object from its manifest."""
        self("create", "--filename=-", text=json.dumps(manifest))

    def wait(self, what: str, condition: str, seconds: int) -> None:
        """Wait for a condition of an object, by watching it."""
        self("wait", what, f"--for={condition}", f"--timeout={seconds}s")


def _foreign() -> Path | None:
    named = os.environ.get("SIMRUN_TEST_KUBECONFIG")
    return Path(named).absolute() if named else None


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """The kubeconfig of the tests' cluster, which answers."""
    foreign = _foreign()
    if foreign is None:
        problem = cluster.trouble()
        if problem is not None:
            pytest.fail(f"no test cluster, {problem}: {REMEDY}", pytrace=False)
        return layout.KUBECONFIG
    try:
        run(_program(), "--kubeconfig", foreign, "--request-timeout=10s", "get", "--raw", "/readyz")
    except ClusterError as error:
        pytest.fail(f"SIMRUN_TEST_KUBECONFIG {foreign} leads to no cluster: {error}", pytrace=False)
    return foreign


def _program() -> Path:
    own = layout.kubectl()
    found = str(own) if own.exists() else shutil.which("kubectl")
    if found is None:
        pytest.fail(
            "there is no kubectl on PATH, and none built: run `tests/cluster/build kubernetes`",
            pytrace=False,
        )
    return Path(found)


@pytest.fixture(scope="session")
def namespace() -> str:
    """The namespace of the runs; it has the LocalQueue and the service account."""
    return os.environ.get("SIMRUN_TEST_NAMESPACE", layout.NAMESPACE)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, namespace: str) -> Kubectl:
    """kubectl on the tests' cluster."""
    return Kubectl(_program(), kubeconfig, namespace)


@pytest.fixture(scope="session")
def store_dir(kubeconfig: Path) -> Path:
    """The run store as this machine sees it: what the claim `simrun-store` is on the cluster."""
    if _foreign() is None:
        return layout.STORE
    named = os.environ.get("SIMRUN_TEST_STORE")
    if not named or not Path(named).is_dir():
        pytest.fail(
            "set SIMRUN_TEST_STORE to the folder on this machine that simrun-store mounts",
            pytrace=False,
        )
    return Path(named).absolute()


@pytest.fixture(scope="session")
def worker_image(kubeconfig: Path) -> str:
    """The image with this working tree's harness in it, renewed in the cluster first if simrun
    changed.
    """
    if _foreign() is None:
        run(HERE / "images", "worker")
        return layout.WORKER_IMAGE
    named = os.environ.get("SIMRUN_TEST_IMAGE")
    if not named:
        pytest.fail(
            "set SIMRUN_TEST_IMAGE to an image that holds this working tree's simrun", pytrace=False
        )
    return named


@pytest.fixture(scope="session")
def service_image(kubeconfig: Path) -> str:
    """The image of the service with this working tree's simrun, renewed in the cluster first if simrun
    changed.
    """
    if _foreign() is None:
        run(HERE / "images", "simrun")
        return layout.SERVICE_IMAGE
    named = os.environ.get("SIMRUN_TEST_SERVICE_IMAGE")
    if not named:
        pytest.fail(
            "set SIMRUN_TEST_SERVICE_IMAGE to an image of simrun that is built from this working tree",
            pytrace=False,
        )
    return named


@pytest.fixture(scope="session")
def pod_uid() -> int:
    """The user and group the pods run as, who may write to the run store."""
    return int(os.environ.get("SIMRUN_TEST_UID", layout.POD_UID))


@pytest.fixture
def scene(
    kubectl: Kubectl, kubeconfig: Path, store_dir: Path, worker_image: str, pod_uid: int
) -> Iterator[scenarios.Scene]:
    """A queue with quota for three small pods and a store, both of this test alone."""
    with scenarios.scene(kubectl, kubeconfig, store_dir, worker_image, pod_uid, 3) as made:
        yield made
