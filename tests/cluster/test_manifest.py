"""Manifests of simrun on a real cluster: Argo, Kueue and the kubelet read them as they are meant."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from simrun.argo import to_argo
from simrun.model.cluster import ClusterConfig
from simrun.model.quantities import MIB
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GROUP = "{{=1+1}} $(HOME) {{workflow.name}} Ünïcode"
GROUP_OF_PODS = "{ {=1+1}} $(HOME) { {workflow.name}} Ünïcode"
RESOURCES = {"cpu": 0.1, "memory": "64Mi"}

WITNESS = """
import json, os, pathlib, sys
scratch = pathlib.Path(os.environ["SIMRUN_SCRATCH"])
(scratch / "file").write_text("x")
try:
    pathlib.Path(os.environ["SIMRUN_SNAPSHOTS"], "x").touch()
    snapshots = "writable"
except OSError as error:
    snapshots = os.strerror(error.errno)
token = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
seen = {
    "argv": sys.argv[1:],
    "env": {k: v for k, v in os.environ.items() if k.startswith(("SIMRUN_", "USERS_"))},
    "cwd": os.getcwd(),
    "uid": os.getuid(),
    "snapshots": snapshots,
    "token": sorted(os.listdir(token)),
}
name = f"{os.environ['SIMRUN_WORKER']}-{os.environ['SIMRUN_ATTEMPT']}.json"
pathlib.Path(os.environ["SIMRUN_TASK_DIR"], name).write_text(json.dumps(seen))
"""
GREEDY = WITNESS + "\nx = bytearray(96 * 2**20)\n"
SELFISH = WITNESS + "\nsys.exit(3 if os.environ['SIMRUN_ROLE'] == 'extra' else 0)\n"

ARGUMENTS = ["$(SIMRUN_RUN)", "$$(SIMRUN_RUN)", "$$", "$HOME", "a b", "}}", "{ {", 'q"\\', "é\n"]
USERS = {
    "USERS_TEMPLATE": "{{=1+1}} {{workflow.name}} {{{",
    "USERS_REFERENCE": "$(SIMRUN_RUN) $$(SIMRUN_BRACE) $$",
    "USERS_LINES": 'a\nb "c" \\',
}


@pytest.fixture
def config(namespace: str, pod_uid: int, worker_image: str) -> ClusterConfig:
    """The tests' cluster; store and snapshots lie in one volume here."""
    return ClusterConfig(
        namespace=namespace,
        local_queue="sims",
        image=worker_image,
        run_as_user=pod_uid,
        run_as_group=pod_uid,
    )


@pytest.fixture
def record(kubectl: Kubectl, store_dir: Path) -> Iterator[RunRecord]:
    """A run of three tasks: one that looks around, one that is killed for memory once, and a split one."""
    types = ("text", "greedy", "split")
    workflow = Workflow(tasks={name: Task(type=name) for name in types})
    workflow.tasks["split"].after.extend(["text", "greedy"])
    run = f"manifest-{uuid.uuid4().hex[:10]}"
    record = RunRecord(id=run, group=GROUP, times=RunTimes(created=0), max_evictions=0)
    for task in types:
        (store_dir / "runs" / run / "tasks" / task / "out").mkdir(parents=True)
    yield record.with_workflow(workflow)
    kubectl("delete", "workflow,pod", "--selector", f"simrun/run={run}", "--wait=false")


def manifest_of(record: RunRecord, config: ClusterConfig) -> dict[str, Any]:
    python = ["python3", "-c"]
    split = {"workers": 3, "units": {"list": [1, 2, 3]}}
    types = {
        "text": TaskType(command=[*python, WITNESS, *ARGUMENTS], env=USERS, resources=RESOURCES),
        "greedy": TaskType(
            command=[*python, GREEDY], resources={**RESOURCES, "retry_memory": "256Mi"}
        ),
        "split": TaskType(command=["true"], split=split, resources=RESOURCES, timeout=60),
    }
    assert record.workflow is not None
    manifest = to_argo(record, plan_run(record.workflow, types, {}, {}), types, config)
    for template in manifest["spec"]["templates"]:
        if template["name"] == "split":
            # What the harness does is not the question here, but how Argo scatters it
            template["container"]["command"] = [*python, SELFISH]
    return manifest


def test_argo_kueue_and_kubelet_read_a_manifest_as_it_is_meant(
    kubectl: Kubectl, store_dir: Path, record: RunRecord, config: ClusterConfig, pod_uid: int
) -> None:
    manifest = manifest_of(record, config)
    kubectl.create(manifest)
    name = manifest["metadata"]["name"]
    completed = r"jsonpath={.metadata.labels.workflows\.argoproj\.io/completed}=true"
    kubectl.wait(f"workflow/{name}", completed, 240)
    status = kubectl.get("workflow", name)["status"]
    pods = kubectl.get("pods", "--selector", f"simrun/run={record.id}")["items"]
    seen = {
        path.stem: json.loads(path.read_text())
        for path in (store_dir / "runs" / record.id).glob("tasks/*/*.json")
    }

    assert kubectl.get("workflow", name)["metadata"]["annotations"]["simrun/group"] == GROUP
    # Extra workers failed; the DAG lets that pass
    assert status["phase"] == "Succeeded", json.dumps(status, indent=1)
    assert set(seen) == {"text-0", "greedy-0", "greedy-1", "split-w0-0", "split-w1-0", "split-w2-0"}
    check_text(seen["text-0"], record.id, pod_uid)
    check_memory(seen)
    check_scatter(seen, record.id)
    assert len(pods) == len(seen)
    for pod in pods:
        check_pod(pod)


def check_text(seen: dict[str, Any], run: str, pod_uid: int) -> None:
    assert seen["argv"] == ARGUMENTS
    assert {name: seen["env"][name] for name in USERS} == USERS
    assert seen["cwd"] == "/simrun/run/tasks/text/out"
    assert seen["uid"] == pod_uid
    assert seen["snapshots"] == "Read-only file system"
    assert seen["token"] == []
    env = seen["env"]
    assert (env["SIMRUN_RUN"], env["SIMRUN_ROLE"], env["SIMRUN_ATTEMPT"]) == (run, "exec", "0")
    assert env["SIMRUN_SCRATCH"] == f"/simrun/scratch/{run}/text"
    assert len(env["SIMRUN_POD_UID"]) == 36
    assert env["SIMRUN_NODE"]


def check_memory(seen: dict[str, Any]) -> None:
    given = {name: seen[name]["env"]["SIMRUN_MEMORY_PER_WORKER_GB"] for name in seen}
    assert given["greedy-0"] == str(64 * MIB / 2**30)
    assert given["greedy-1"] == str(256 * MIB / 2**30)


def check_scatter(seen: dict[str, Any], run: str) -> None:
    workers = [seen[f"split-w{i}-0"]["env"] for i in range(3)]
    assert [env["SIMRUN_ROLE"] for env in workers] == ["base", "extra", "extra"]
    assert [env["SIMRUN_SCRATCH"] for env in workers] == [
        f"/simrun/scratch/{run}/split/split-w{i}" for i in range(3)
    ]


def check_pod(pod: dict[str, Any]) -> None:
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    role = labels["simrun/role"]
    priority = "simrun-extra" if role == "extra" else "simrun-base"
    assert annotations["simrun/group"] == GROUP_OF_PODS
    assert labels["simrun/task"] in {"text", "greedy", "split"}
    assert labels["kueue.x-k8s.io/managed"] == "true"
    assert labels["kueue.x-k8s.io/priority-class"] == pod["spec"]["priorityClassName"] == priority
    (main,) = (c for c in pod["spec"]["containers"] if c["name"] == "main")
    assert main["resources"]["requests"] == main["resources"]["limits"]
    deadline = pod["spec"].get("activeDeadlineSeconds")
    assert deadline == (150 if labels["simrun/task"] == "split" else None)
