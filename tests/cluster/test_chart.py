"""simrun as the chart installs it: in a pod, as an account with its Roles alone, reached through its Service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from onenode.shell import ClusterError

from simrun.backends.kubernetes.lease import lease_name
from simrun.model.access import new_token, token_hash
from tests.chart import CHART, done, helm
from tests.cluster.scenarios import GATE, SMALL, Scene, scene
from tests.scenario.campaign import FLOWS, wait_until

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TOKEN = new_token()
ROWS = 6
MADE = "deployment,service,serviceaccount,configmap,role,rolebinding,clusterrole,clusterrolebinding,pod,secret"


@dataclass
class Release:
    """What was installed."""

    name: str
    kubectl: Kubectl
    kubeconfig: Path
    mine: str
    """Selector of its objects."""

    def ready_pod(self, besides: str = "") -> str:
        """Give the name of the pod that is ready, as the leader alone is, once there is one `besides` that."""
        found: list[str] = []

        def ready() -> bool:
            pods = self.kubectl.get("pods", "--selector", self.mine)["items"]
            found[:] = [pod["metadata"]["name"] for pod in pods if is_ready(pod)]
            return len(found) == 1 and found != [besides]

        wait_until("a pod of the service to be ready", ready)
        return found[0]

    def url(self) -> str:
        """Give the address of the Service, which kube-proxy answers at on the node too."""
        spec = self.kubectl.get(f"service/{self.name}")["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def helm(self, verb: str, *argv: str | Path) -> str:
        """Run helm on the release."""
        where = ("--kubeconfig", self.kubeconfig, "--namespace", self.kubectl.namespace)
        return done(helm(verb, self.name, *argv, *where, "--wait", "--timeout", "100s"))

    def left(self) -> list[str]:
        """Name what there still is of it."""
        found = self.kubectl("get", MADE, "--selector", self.mine, "--output=name")
        kept = self.kubectl(
            "get", "secret", "--selector", f"owner=helm,name={self.name}", "--output=name"
        )
        return found.split() + kept.split()

    def tell(self) -> None:
        """Write what a failure may be explained by."""
        for argv in (
            ("describe", "pods", "--selector", self.mine),
            ("logs", "--selector", self.mine, "--tail=50"),
        ):
            sys.stderr.write(self.kubectl(*argv))


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready and shall stay."""
    conditions = pod["status"].get("conditions", [])
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


@pytest.fixture(scope="module")
def place(
    kubectl: Kubectl, kubeconfig: Path, store_dir: Path, worker_image: str, pod_uid: int
) -> Iterator[Scene]:
    """A queue and a store for all tests here."""
    with scene(kubectl, kubeconfig, store_dir, worker_image, pod_uid, 3) as made:
        yield made


@pytest.fixture(scope="module")
def release(
    place: Scene, service_image: str, kubectl: Kubectl, kubeconfig: Path
) -> Iterator[Release]:
    """A release over the store and queue of the place."""
    name = f"chart-{uuid.uuid4().hex[:8]}"
    made = Release(name, kubectl, kubeconfig, f"app.kubernetes.io/instance={name}")
    values = place.store / "values.yaml"
    values.write_text(yaml.safe_dump(values_of(place, name, service_image)))
    entry = {"name": "tests", "sha256": token_hash(TOKEN), "scope": "run", "groups": ["default"]}
    kubectl.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "stringData": {"tokens.yaml": json.dumps([entry])},
        }
    )
    try:
        made.helm("install", CHART, "--values", values)
        yield made
    finally:
        with suppress(ClusterError):
            made.tell()
        made.helm("uninstall", "--ignore-not-found")
        kubectl("delete", "secret", name)
        kubectl("delete", "lease", lease_name(place.config), "--ignore-not-found")


def values_of(place: Scene, name: str, image: str) -> dict[str, Any]:
    """Give the values of a release."""
    repository, _, tag = image.rpartition(":")
    config = place.config
    return {
        "fullnameOverride": name,
        "image": {"repository": repository, "tag": tag},
        "user": config.run_as_user,
        "group": config.run_as_group,
        "store": {"path": config.store_path},
        "auth": {"existingSecret": name},
        "cluster": {"local_queue": config.local_queue, "image": config.image, "topology": ""},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """A campaign over two workers, and a task after it that waits at its gate."""
    shutil.copy(FLOWS / "tiles.py", tmp_path)
    tile = {
        "plugin": "tiles.py:compute",
        "params": {"rows": ROWS, "seconds": 0.5},
        "outputs": {"map": "map.bin"},
        "split": {"workers": 2, "units": {"plugin": "tiles.py:tiles"}, "seed": {"base": 7}},
        "merge": {"plugin": "tiles.py:merge"},
        **SMALL,
    }
    content = {
        "types": {"tile": tile, "hold": {"command": f"{GATE}; echo through", **SMALL}},
        "tasks": {"tile": {"type": "tile"}, "hold": {"type": "hold", "after": ["tile"]}},
    }
    path = tmp_path / "flow.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def simrun(url: str, *argv: str | Path) -> str:
    """Run a command against a server."""
    command = [sys.executable, "-m", "simrun", *map(str, argv), "--server", url]
    environment = {**os.environ, "SIMRUN_TOKEN": TOKEN}
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    return done(result)


def test_a_campaign_goes_through_the_service_and_ends_right_though_the_pod_is_deleted_in_mid_run(
    release: Release, place: Scene, flow: Path
) -> None:
    run = place.new_run()
    first = release.ready_pod()
    simrun(release.url(), "submit", flow, "--id", run)
    wait_until("the first unit", lambda: any(place.task(run, "tile").done.glob("*")))
    before = place.record(run)

    release.kubectl("delete", "pod", first)
    second = release.ready_pod(besides=first)
    between = place.record(run)
    place.open_gate(run, "hold")
    shown = json.loads(simrun(release.url(), "wait", run, "--timeout", "100", "-o", "json"))

    assert second != first
    assert (before.state, between.state) == ("running", "running")
    assert shown["state"] == "succeeded"
    after = place.record(run)
    assert after.epoch > before.epoch
    merged = place.task(run, "tile").root / "out" / "map.bin"
    assert merged.stat().st_size == ROWS * 64 * 8
    assert (place.task(run, "hold").logs / "hold-0.log").read_text() == "through\n"


def test_the_account_may_do_what_the_service_does_and_nothing_else(release: Release) -> None:
    """As the cluster sees it; that these are all is a matter of tests/programs/test_chart_roles.py."""
    namespace = release.kubectl.namespace
    spec = {
        "user": f"system:serviceaccount:{namespace}:{release.name}",
        "groups": ["system:serviceaccounts", "system:authenticated"],
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    reviews = [
        {**kind, "spec": {**spec, "resourceAttributes": {"namespace": namespace, **attributes}}}
        for attributes in (
            {"verb": "create", "group": "argoproj.io", "resource": "workflows"},
            {"verb": "create", "resource": "pods"},
            {"verb": "get", "resource": "secrets"},
            {"verb": "patch", "resource": "nodes", "name": "node0"},
            {"verb": "patch", "group": "coordination.k8s.io", "resource": "leases", "name": "x"},
            {"verb": "create", "group": "argoproj.io", "resource": "workflowtaskresults"},
        )
    ]
    review = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})

    answer = release.kubectl("create", "--filename=-", "--output=json", text=review)

    decoder, found = json.JSONDecoder(), []
    while answer := answer.strip():
        one, end = decoder.raw_decode(answer)
        found += one["items"] if one["kind"] == "List" else [one]
        answer = answer[end:]
    assert [one["status"]["allowed"] for one in found] == [True] + 5 * [False]


def test_uninstalling_leaves_nothing(release: Release) -> None:
    release.helm("uninstall", "--ignore-not-found")

    wait_until("everything to be gone", lambda: not release.left())
