"""The test cluster itself: what simrun's workflows rely on, seen to work without simrun."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from onenode import layout
from onenode.shell import ClusterError

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TAINT = "simrun/test-of-eviction"


@pytest.fixture
def run_id(kubectl: Kubectl, store_dir: Path) -> Iterator[str]:
    """A run folder in the store and its workflow's name; the workflow goes with the test."""
    run = f"probe-{uuid.uuid4().hex[:10]}"
    (store_dir / "runs" / run).mkdir(parents=True)
    yield run
    kubectl("delete", "workflow,pod", "--selector", f"simrun/run={run}", "--wait=false")


def probe(run: str, image: str, pod_uid: int) -> dict[str, Any]:
    text = (Path(__file__).parent / "probe.yaml").read_text()
    workflow: dict[str, Any] = yaml.safe_load(text.replace("64000", str(pod_uid)))
    workflow["metadata"] = {"name": run, "labels": {"simrun/run": run}}
    worker = workflow["spec"]["templates"][1]
    worker["metadata"]["labels"]["simrun/run"] = run
    worker["container"]["image"] = image
    worker["container"]["volumeMounts"][0]["subPath"] = f"runs/{run}"
    return workflow


def bare_pod(run: str, image: str, pod_uid: int, script: str) -> dict[str, Any]:
    """A pod that Pod Security "restricted" admits, outside Argo and Kueue, with the run's folder
    and the snapshots.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": run, "labels": {"simrun/run": run}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": pod_uid,
                "runAsGroup": pod_uid,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                {"name": name, "persistentVolumeClaim": {"claimName": f"simrun-{name}"}}
                for name in ("store", "snapshots")
            ],
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", "-c", script],
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "store", "mountPath": "/run-dir", "subPath": f"runs/{run}"},
                        {"name": "snapshots", "mountPath": "/snapshots", "readOnly": True},
                    ],
                }
            ],
        },
    }


def test_the_node_is_ready_and_known_by_its_host_name(kubectl: Kubectl) -> None:
    nodes = kubectl.get("nodes")["items"]

    for node in nodes:
        conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert conditions["DiskPressure"] == conditions["MemoryPressure"] == "False"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node["metadata"]["name"]


def test_a_coordinator_killed_for_memory_is_retried_with_more(
    kubectl: Kubectl, store_dir: Path, worker_image: str, pod_uid: int, run_id: str
) -> None:
    folder = store_dir / "runs" / run_id
    (folder / "input").write_text("from the host")

    kubectl.create(probe(run_id, worker_image, pod_uid))
    kubectl.wait(
        f"workflow/{run_id}",
        r"jsonpath={.metadata.labels.workflows\.argoproj\.io/completed}=true",
        240,
    )
    status = kubectl.get("workflow", run_id)["status"]
    pods = kubectl.get("pods", "--selector", f"simrun/run={run_id}")["items"]

    assert status["phase"] == "Succeeded", json.dumps(status, indent=1)
    attempts = {node["displayName"]: node for node in status["nodes"].values()}
    assert attempts["sim-w0(0)"]["phase"] == "Failed"
    assert attempts["sim-w0(0)"]["outputs"]["exitCode"] == "137"
    assert "OOMKilled" in attempts["sim-w0(0)"]["message"]
    assert attempts["sim-w0(1)"]["phase"] == "Succeeded"
    seen = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    first = {"MEMORY": "64Mi", "LAST": "0", "uid": pod_uid, "input": "from the host"}
    assert seen == {
        "sim-w0-0": first,
        "sim-w0-1": {**first, "MEMORY": "256Mi", "LAST": "137"},
        "sim-w1-0": first,
        "sim-w2-0": first,
        "post-0": first,
    }
    assert {path.stat().st_uid for path in folder.glob("*.json")} == {pod_uid}
    assert len(pods) == 5
    for pod in pods:
        # Kueue admitted it, and gave it the one node its topology request asks for
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
        assert pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == pod["spec"]["nodeName"]


def test_pod_security_refuses_a_pod_that_may_run_as_root(kubectl: Kubectl) -> None:
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        kubectl("run", "root", "--image=registry.test/busybox:1", "--dry-run=server")


def test_service_and_pod_write_below_each_others_folders(
    kubectl: Kubectl, store_dir: Path, worker_image: str, pod_uid: int, run_id: str
) -> None:
    folder = store_dir / "runs" / run_id
    (folder / "tasks").mkdir()
    script = """
import errno, os, pathlib
pathlib.Path("/run-dir/tasks/out").mkdir()
pathlib.Path("/run-dir/tasks/token").write_text("pod")
os.link("/run-dir/tasks/token", "/run-dir/tasks/claim")
try:
    pathlib.Path("/snapshots/x").touch()
except OSError as error:
    assert error.errno == errno.EROFS, error
else:
    raise SystemExit("the snapshots can be written to")
"""

    kubectl.create(bare_pod(run_id, worker_image, pod_uid, script))
    kubectl.wait(f"pod/{run_id}", "jsonpath={.status.phase}=Succeeded", 60)
    (folder / "tasks/out/.simrun-merged").write_text("service")

    assert (folder / "tasks/claim").samefile(folder / "tasks/token")


def test_the_worker_image_holds_the_locked_packages_and_the_harness(
    kubectl: Kubectl, store_dir: Path, worker_image: str, pod_uid: int, run_id: str
) -> None:
    script = """
import json, os, pathlib, shutil, sys
import matplotlib, numpy, rebound, simrun.worker
versions = {"matplotlib": matplotlib.__version__, "numpy": numpy.__version__, "rebound": rebound.__version__}
commands = [os.path.basename(shutil.which(f"simrun-{name}")) for name in ("worker", "merge", "exec")]
compiled = os.path.exists(numpy.__cached__) and os.path.exists(simrun.worker.__cached__)
found = {"versions": versions, "commands": commands, "compiled": compiled, "python": sys.version_info[:2]}
pathlib.Path("/run-dir/found.json").write_text(json.dumps(found))
"""

    kubectl.create(bare_pod(run_id, worker_image, pod_uid, script))
    kubectl.wait(f"pod/{run_id}", "jsonpath={.status.phase}=Succeeded", 60)
    found = json.loads((store_dir / "runs" / run_id / "found.json").read_text())

    locked = (layout.CHECKOUT / "requirements/dev.txt").read_text()
    for name, version in found["versions"].items():
        assert f"\n{name}=={version} " in f"\n{locked}"
    assert found["commands"] == ["simrun-worker", "simrun-merge", "simrun-exec"]
    assert found["compiled"]
    assert found["python"] == [3, 11]


@pytest.fixture
def tainted(kubectl: Kubectl) -> Iterator[str]:
    """The key of a taint that the test may set on all nodes; it is taken off again."""
    yield TAINT
    for node in kubectl.get("nodes")["items"]:
        if any(taint["key"] == TAINT for taint in node["spec"].get("taints", ())):
            kubectl("taint", "node", node["metadata"]["name"], f"{TAINT}-")


def test_a_taint_evicts_pods_of_runs_and_no_controller(
    kubectl: Kubectl, worker_image: str, pod_uid: int, run_id: str, tainted: str
) -> None:
    kubectl.create(bare_pod(run_id, worker_image, pod_uid, "import time; time.sleep(600)"))
    kubectl.wait(f"pod/{run_id}", "condition=Ready", 60)
    node = kubectl.get("pod", run_id)["spec"]["nodeName"]
    before = others(kubectl)

    kubectl("taint", "node", node, f"{tainted}=x:NoExecute")
    kubectl.wait(f"pod/{run_id}", "delete", 60)

    assert others(kubectl) == before
    ready = {c["type"]: c["status"] for c in kubectl.get("node", node)["status"]["conditions"]}[
        "Ready"
    ]
    assert ready == "True"


def others(kubectl: Kubectl) -> set[str]:
    """The uids of the pods of other namespaces: what a cluster's controllers run in, if they run in
    pods at all.
    """
    pods = kubectl.get("pods", "--all-namespaces")["items"]
    return {
        pod["metadata"]["uid"] for pod in pods if pod["metadata"]["namespace"] != kubectl.namespace
    }
