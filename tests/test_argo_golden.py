"""Manifests of whole runs against the files in tests/golden; its README says how to write them anew."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hera.workflows.models import Workflow as HeraWorkflow

from simrun.argo import to_argo
from simrun.model.cluster import ClusterConfig
from simrun.model.record import RunRecord, RunTimes, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run

GOLDEN = Path(__file__).parent / "golden"
IMAGE = "registry.test/simrun-worker:1"
CLUSTER = {
    "namespace": "sims",
    "local_queue": "sims",
    "snapshots": {"persistentVolumeClaim": {"claimName": "simrun-snapshots", "readOnly": True}},
    "snapshots_path": "",
    "run_as_user": 64000,
    "run_as_group": 64000,
}
COMMAND = {
    "image": IMAGE,
    "command": ["python3", "-c", "print({params.n})"],
    "params": {"n": 1},
    "resources": {"cpu": 0.25, "memory": "128Mi"},
}
SWEEP = {
    "image": IMAGE,
    "plugin": "sweep.py:compute",
    "inputs": ["mesh"],
    "outputs": {"table": "table.csv"},
    "split": {"workers": 4, "units": {"grid": {"speed": [1, 2, 3], "angle": [0, 5]}}},
    "unit_timeout": "10m",
    "resources": {"cpu": 0.5, "memory": "256Mi", "retry_memory": "768Mi", "scratch": "2Gi"},
}
PLOT = {
    **COMMAND,
    "command": ["python3", "plot.py", "{inputs.table}", "{out}/plot.png"],
    "inputs": ["table"],
}
CASES: dict[str, dict[str, Any]] = {
    "command": {"types": {"hello": COMMAND}, "tasks": {"hello": {"type": "hello"}}},
    "split": {
        "types": {"sweep": SWEEP, "plot": PLOT},
        "tasks": {
            "sweep": {"type": "sweep", "inputs": {"mesh": "snapshot:meshes/fine.vtk"}},
            "plot": {"type": "plot", "inputs": {"table": "sweep.table"}},
        },
    },
    "merge-of-its-own": {
        "types": {"sweep": SWEEP, "plot": PLOT},
        "tasks": {
            "sweep": {"type": "sweep", "inputs": {"mesh": "./mesh.vtk"}},
            "plot": {"type": "plot", "inputs": {"table": "sweep.table"}},
        },
        "plan": {"coordinator_merges": False},
    },
    "second-round-on-a-reserved-node": {
        "types": {"sweep": SWEEP, "plot": {**PLOT, "timeout": "1h", "grace": "2m"}},
        "tasks": {
            "sweep": {"type": "sweep", "inputs": {"mesh": "snapshot:meshes/fine.vtk"}},
            "plot": {"type": "plot", "inputs": {"table": "sweep.table"}},
            "again": {"type": "sweep", "inputs": {"mesh": "sweep.table"}, "after": ["plot"]},
        },
        "record": {
            "round": 1,
            "attempt_base": {"plot": 2, "again": 0},
            "tasks": {"sweep": TaskState.DONE, "plot": TaskState.WAITING},
            "node": "node0",
            "reserve_node": True,
        },
    },
    "text-of-users": {
        "types": {
            "text": {
                **COMMAND,
                "command": ["sh", "-c", 'echo "$HOME" $$ $(date) $$(date) } {params.n}'],
                "env": {"TEMPLATE": "{{=1+1}}", "REFERENCE": "$(HOME)", "LINES": "a\nb"},
                "secret_env": {"TOKEN": {"secret": "store-token", "key": "token"}},
            },
            "template": {**COMMAND, "command": ["echo", "{{workflow.name}}"]},
        },
        "tasks": {"text": {"type": "text"}, "template": {"type": "template"}},
        "record": {"group": "{{=1+1}} $(HOME) Ünïcode\n"},
    },
    "shared-scratch-argo-4.1": {
        "types": {
            "sweep": {**SWEEP, "resources": {"cpu": 2, "memory": "2Gi", "nvidia.com/gpu": 1}}
        },
        "tasks": {"sweep": {"type": "sweep", "inputs": {"mesh": "snapshot:meshes"}}},
        "config": {
            "store": {"nfs": {"server": "files.test", "path": "/export"}},
            "store_path": "simrun",
            "scratch": {"persistentVolumeClaim": {"claimName": "scratch"}},
            "executor_containers": {"init": [], "containers": ["supervisor"]},
            "image_pull_secrets": ["registry"],
            "image_pull_policy": "Always",
            "topology": None,
            "node_selector": {"pool": "sims"},
            "tolerations": [{"key": "sims", "operator": "Exists", "effect": "NoSchedule"}],
        },
    },
}


class Plain(yaml.SafeDumper):
    """YAML without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def rendered(case: dict[str, Any]) -> dict[str, Any]:
    types = {name: TaskType(**content) for name, content in case["types"].items()}
    workflow = Workflow(tasks={name: Task(**task) for name, task in case["tasks"].items()})
    plans = plan_run(workflow, types, {}, {})
    plans = {name: plan.model_copy(update=case.get("plan", {})) for name, plan in plans.items()}
    values = {"id": "golden", "group": "team-a", "times": RunTimes(created=0)}
    record = RunRecord(**{**values, **case.get("record", {})}).with_workflow(workflow)
    return to_argo(record, plans, types, ClusterConfig(**{**CLUSTER, **case.get("config", {})}))


@pytest.mark.parametrize("name", CASES)
def test_the_manifest_of_a_run_is_the_one_in_its_file(name: str) -> None:
    text = yaml.dump(
        rendered(CASES[name]), Dumper=Plain, sort_keys=False, width=120, allow_unicode=True
    )
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_every_file_is_the_manifest_of_a_run() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_heras_models_take_every_manifest_and_give_it_back(name: str) -> None:
    manifest = rendered(CASES[name])
    model = HeraWorkflow.model_validate(manifest)
    assert model.model_dump(by_alias=True, exclude_none=True, mode="json") == manifest
