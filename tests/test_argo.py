"""The manifest of a run: every rule of it, and that no text of a user can reach the languages that read it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hera.workflows.models import Workflow as HeraWorkflow
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simrun.argo import text, to_argo
from simrun.base.errors import InvalidInput
from simrun.model.cluster import ClusterConfig, ExecutorContainers
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunTimes, TaskState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow

MIB = 2**20
SPLIT = {"workers": 3, "units": {"list": [1, 2, 3]}}
BARE = {"command": ["sim"], "image": "sim:1"}
WIDE = {"plugin": "p:f", "image": "sim:1", "split": SPLIT, "outputs": {"x": "x"}}
TAGS = {
    "{{item}}",
    "{{retries}}",
    *(f"{{{{inputs.parameters.{name}}}}}" for name in ("worker", "priority", "task", "role")),
}


def manifest(
    types: dict[str, dict[str, Any]],
    tasks: dict[str, dict[str, Any]] | None = None,
    /,
    *,
    config: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **update: Any,
) -> dict[str, Any]:
    """The manifest of a run; without `tasks` one task of each type, of the same name."""
    known = {name: TaskType(**content) for name, content in types.items()}
    tasks = tasks or {name: {"type": name} for name in types}
    plans = {}
    for name, task in tasks.items():
        split = known[task["type"]].split
        values = {"memory": 256 * MIB, "retry_memory": 512 * MIB, "split": split is not None}
        values |= {"pods": split.workers if split else 1, "coordinator_merges": split is not None}
        plans[name] = TaskPlan(**{**values, **(plan or {})})
    workflow = Workflow(tasks={name: Task(**task) for name, task in tasks.items()})
    record = RunRecord(**{"id": "r1", "times": RunTimes(created=0), **update})
    return to_argo(record.with_workflow(workflow), plans, known, ClusterConfig(**(config or {})))


def template(found: dict[str, Any], name: str = "t") -> dict[str, Any]:
    (one,) = (item for item in found["spec"]["templates"] if item["name"] == name)
    return one


def container(found: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return template(found, name)["container"]


def env(found: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return {
        item["name"]: item.get("value", item.get("valueFrom"))
        for item in container(found, name)["env"]
    }


def patch(found: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return json.loads(template(found, name)["podSpecPatch"])


def dag(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {task["name"]: task for task in found["spec"]["templates"][0]["dag"]["tasks"]}


def arguments(task: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in task["arguments"]["parameters"]}


def mount(found: dict[str, Any], volume: str, name: str = "t") -> dict[str, Any]:
    (one,) = (item for item in container(found, name)["volumeMounts"] if item["name"] == volume)
    return one


# --- the DAG


def test_a_split_task_is_a_coordinator_and_a_sequence_of_extra_workers_over_one_template() -> None:
    found = manifest({"t": WIDE})
    tasks = dag(found)
    assert list(tasks) == ["t-w0", "t-extra"]
    assert arguments(tasks["t-w0"]) == {
        "worker": "t-w0",
        "priority": "simrun-base",
        "task": "t",
        "role": "base",
    }
    assert arguments(tasks["t-extra"]) == {
        "worker": "t-w{{item}}",
        "priority": "simrun-extra",
        "task": "t",
        "role": "extra",
    }
    assert tasks["t-extra"]["withSequence"] == {"start": "1", "count": "2"}
    assert tasks["t-extra"]["continueOn"] == {"failed": True, "error": True}
    assert not {"withSequence", "continueOn"} & set(tasks["t-w0"])
    assert {task["template"] for task in tasks.values()} == {"t"}
    assert container(found)["command"] == ["simrun-worker"]
    assert template(found)["inputs"] == {
        "parameters": [{"name": name} for name in ("worker", "priority", "task", "role")]
    }


def test_a_split_task_of_one_pod_has_no_extra_workers() -> None:
    assert list(dag(manifest({"t": WIDE}, plan={"pods": 1}))) == ["t-w0"]


def test_the_merge_of_an_old_plan_waits_for_the_coordinator_only() -> None:
    found = manifest({"t": WIDE}, plan={"coordinator_merges": False})
    tasks = dag(found)
    assert list(tasks) == ["t-w0", "t-extra", "t-merge"]
    assert tasks["t-merge"]["dependencies"] == ["t-w0"]
    assert arguments(tasks["t-merge"]) == {
        "worker": "t-merge",
        "priority": "simrun-base",
        "task": "t",
        "role": "merge",
    }
    assert container(found, "t-merge")["command"] == ["simrun-merge"]
    assert "SIMRUN_MERGE" not in env(found)


def test_the_coordinator_is_told_to_merge() -> None:
    assert env(manifest({"t": WIDE}))["SIMRUN_MERGE"] == "1"
    assert "SIMRUN_MERGE" not in env(manifest({"t": BARE}))


def test_a_task_waits_for_the_end_of_the_tasks_it_reads_from() -> None:
    reader = {**BARE, "inputs": ["a"]}
    types = {"wide": WIDE, "t": reader, "other": {**WIDE, "inputs": ["a"]}}
    tasks = {
        "wide": {"type": "wide"},
        "t": {"type": "t", "inputs": {"a": "wide.x"}},
        "other": {"type": "other", "inputs": {"a": "wide.x"}, "after": ["t"]},
    }
    found = dag(manifest(types, tasks))
    assert found["t"]["dependencies"] == ["wide-w0"]
    assert found["other-w0"]["dependencies"] == ["wide-w0", "t"]
    assert found["other-extra"]["dependencies"] == ["wide-w0", "t"]
    assert "dependencies" not in found["wide-w0"]
    old = dag(manifest(types, tasks, plan={"coordinator_merges": False}))
    assert old["t"]["dependencies"] == ["wide-merge"]


def test_an_unsplit_task_is_one_pod_that_runs_its_command() -> None:
    found = manifest({"t": {"command": ["sim", "--out", "{out}"], "image": "sim:1"}})
    assert list(dag(found)) == ["t"]
    assert arguments(dag(found)["t"])["role"] == "exec"
    assert container(found)["command"] == ["sim", "--out", "/simrun/run/tasks/t/out"]
    assert container(found)["workingDir"] == "/simrun/run/tasks/t/out"
    assert "args" not in container(found)


def test_an_unsplit_plugin_runs_under_simrun_exec() -> None:
    found = container(manifest({"t": {"plugin": "p:f", "image": "sim:1"}}))
    assert found["command"] == ["simrun-exec"]
    assert "workingDir" not in found


def test_a_round_has_a_workflow_of_its_own_without_the_done_tasks() -> None:
    found = manifest(
        {"a": BARE, "b": BARE}, tasks={"a": TaskState.DONE}, round=2, attempt_base={"b": 3}
    )
    assert found["metadata"]["name"] == "simrun-r1-r2"
    assert list(dag(found)) == ["b"]
    assert env(found, "b")["SIMRUN_ATTEMPT_BASE"] == "3"
    assert env(found, "b")["SIMRUN_ATTEMPT"] == "{{retries}}"


def test_a_run_without_anything_left_to_do_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to submit"):
        manifest({"a": BARE}, tasks={"a": TaskState.DONE})


def test_a_task_named_like_a_word_of_argo_meets_nothing() -> None:
    found = manifest({"dag": BARE, "main": BARE, "run": BARE})
    names = [item["name"] for item in found["spec"]["templates"]]
    assert len(set(names)) == len(names)
    assert found["spec"]["entrypoint"] == names[0] == "DAG"


# --- metadata and admission


def test_every_pod_can_be_found_by_run_task_worker_role_and_group() -> None:
    found = manifest({"t": WIDE}, group="Team A", config={"namespace": "sims"})
    run = {
        "app.kubernetes.io/managed-by": "simrun",
        "simrun/run": "r1",
        "simrun/group": found["metadata"]["labels"]["simrun/group"],
    }
    assert run["simrun/group"].startswith("team-a-")
    assert found["metadata"] == {
        "name": "simrun-r1",
        "namespace": "sims",
        "labels": run,
        "annotations": {"simrun/group": "Team A"},
    }
    assert found["spec"]["podMetadata"]["labels"] == {**run, "kueue.x-k8s.io/queue-name": "simrun"}
    assert found["spec"]["podMetadata"]["annotations"] == {
        "simrun/group": "Team A",
        "kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname",
    }
    assert template(found)["metadata"]["labels"] == {
        "simrun/task": "{{inputs.parameters.task}}",
        "simrun/worker": "{{inputs.parameters.worker}}",
        "simrun/role": "{{inputs.parameters.role}}",
        "kueue.x-k8s.io/priority-class": "{{inputs.parameters.priority}}",
    }


def test_priority_and_queue_are_the_clusters() -> None:
    config = {"local_queue": "q", "base_priority": "high", "extra_priority": "low"}
    found = manifest({"t": WIDE, "u": BARE}, config=config, plan={"coordinator_merges": False})
    priorities = {name: arguments(task)["priority"] for name, task in dag(found).items()}
    assert priorities == {"t-w0": "high", "t-extra": "low", "t-merge": "high", "u": "high"}
    assert found["spec"]["podMetadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    for name in ("t", "t-merge", "u"):
        assert template(found, name)["priorityClassName"] == "{{inputs.parameters.priority}}"


def test_the_priority_of_a_run_stands_for_classes_of_the_cluster() -> None:
    known = {"high": {"base": "urgent", "extra": "less"}, "low": {"base": "idle"}}

    def priorities(priority: str | None) -> list[str]:
        found = manifest({"t": WIDE}, config={"priorities": known}, priority=priority)
        return [arguments(task)["priority"] for task in dag(found).values()]

    assert priorities("high") == ["urgent", "less"]
    assert priorities("low") == ["idle", "simrun-extra"]
    assert priorities("normal") == priorities(None) == ["simrun-base", "simrun-extra"]
    with pytest.raises(InvalidInput, match=r"priority: .*'urgent'.*one of high, low, normal"):
        priorities("urgent")


def test_an_image_that_is_to_be_built_is_refused_with_the_remedy() -> None:
    build = {**BARE, "build": {"context": "."}}
    del build["image"]

    with pytest.raises(InvalidInput, match=r"types\.t\.build: .* name it as `image`"):
        manifest({"t": build}, config={"image": "the cluster's own"})
    assert container(manifest({"t": build}, plan={"image": "built"}))["image"] == "built"


def test_a_cluster_without_topology_levels_can_leave_the_annotation_out() -> None:
    found = manifest({"t": BARE}, config={"topology": None})
    assert list(found["spec"]["podMetadata"]["annotations"]) == ["simrun/group"]


def test_the_pods_run_as_the_service_account_and_only_the_executor_sees_its_token() -> None:
    found = manifest({"t": BARE}, config={"service_account": "account"})
    assert found["spec"]["serviceAccountName"] == "account"
    assert found["spec"]["automountServiceAccountToken"] is True
    assert mount(found, "no-token") == {
        "name": "no-token",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }
    assert {"name": "no-token", "emptyDir": {}} in found["spec"]["volumes"]


# --- attempts


def test_argo_tries_again_after_what_was_not_the_units_own_fault() -> None:
    assert template(manifest({"t": WIDE}, max_evictions=3))["retryStrategy"] == {
        "limit": "8",
        "retryPolicy": "Always",
        "expression": 'lastRetry.exitCode in ["-1", "137", "143", "6"] || lastRetry.status == "Error"',
    }


def test_the_attempt_after_a_kill_for_memory_has_the_retry_memory_and_knows_it() -> None:
    found = manifest({"t": WIDE}, plan={"memory": 256 * MIB, "retry_memory": 1536 * MIB})
    (main,) = patch(found)["containers"]
    memory = "{{=lastRetry.exitCode == '137' ? '1536Mi' : '256Mi'}}"
    assert main["name"] == "main"
    assert main["resources"] == {"requests": {"memory": memory}, "limits": {"memory": memory}}
    assert main["env"] == [
        {
            "name": "SIMRUN_MEMORY_PER_WORKER_GB",
            "value": "{{=lastRetry.exitCode == '137' ? '1.5' : '0.25'}}",
        }
    ]
    assert env(found)["SIMRUN_MEMORY_PER_WORKER_GB"] == "0.25"
    assert env(found)["SIMRUN_RETRY_MEMORY_GB"] == "1.5"
    # The expression stands in JSON in JSON, and Argo undoes one of the two before it reads the expression
    assert '"' not in memory


def test_without_a_retry_memory_every_attempt_is_the_same() -> None:
    found = manifest({"t": BARE}, plan={"retry_memory": None})
    assert patch(found) == {"terminationGracePeriodSeconds": 30}
    assert "SIMRUN_RETRY_MEMORY_GB" not in env(found)


def test_requests_equal_limits() -> None:
    resources = {"cpu": 0.25, "nvidia.com/gpu": 2, "scratch": "1Gi"}
    found = manifest({"t": {**BARE, "resources": resources}}, plan={"cpus": 0.25})
    wanted = {"cpu": "250m", "memory": "256Mi", "nvidia.com/gpu": "2"}
    assert container(found)["resources"] == {"requests": wanted, "limits": wanted}


@pytest.mark.parametrize(
    ("cpus", "quantity"), [(1, "1"), (2.0, "2"), (0.25, "250m"), (1.5, "1500m"), (0.0001, "1m")]
)
def test_processors_are_written_as_kubernetes_writes_them(cpus: float, quantity: str) -> None:
    found = manifest({"t": BARE}, plan={"cpus": cpus})
    assert container(found)["resources"]["limits"]["cpu"] == quantity


def test_memory_that_is_no_whole_number_of_mebibytes_is_written_in_bytes() -> None:
    found = manifest({"t": BARE}, plan={"memory": 1_500_000_000})
    assert container(found)["resources"]["limits"]["memory"] == "1500000000"


def test_the_grace_of_the_type_is_the_pods() -> None:
    found = manifest({"t": {**BARE, "grace": "90.5s"}})
    assert patch(found)["terminationGracePeriodSeconds"] == 91
    assert (env(found)["SIMRUN_GRACE_S"], env(found)["SIMRUN_STALE_S"]) == ("90.5", "150.5")


def test_only_a_type_with_a_time_limit_has_a_deadline_and_the_workflow_has_none() -> None:
    found = manifest({"t": {**BARE, "timeout": "10m", "grace": 20}, "u": BARE})
    assert template(found)["activeDeadlineSeconds"] == 680
    assert env(found)["SIMRUN_TIMEOUT_S"] == "600"
    assert "activeDeadlineSeconds" not in template(found, "u")
    assert "activeDeadlineSeconds" not in found["spec"]


def test_the_workflow_goes_after_a_week_at_the_latest() -> None:
    assert manifest({"t": BARE})["spec"]["ttlStrategy"] == {"secondsAfterCompletion": 604800}


# --- environment


def test_the_environment_tells_apart_the_workers_of_one_template() -> None:
    found = env(manifest({"t": WIDE}))
    assert found["SIMRUN_WORKER"] == "{{inputs.parameters.worker}}"
    assert found["SIMRUN_ROLE"] == "{{inputs.parameters.role}}"
    assert found["SIMRUN_TASK"] == "{{inputs.parameters.task}}"
    assert found["SIMRUN_SCRATCH"] == "/simrun/scratch/r1/t/{{inputs.parameters.worker}}"
    assert found["SIMRUN_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert found["SIMRUN_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_variables_of_the_user_come_first_and_secrets_by_reference() -> None:
    found = manifest(
        {"t": {**BARE, "env": {"A": "1"}, "secret_env": {"B": {"secret": "s", "key": ".k"}}}}
    )
    assert container(found)["env"][:3] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": ".k"}}},
        {"name": "SIMRUN_RUN", "value": "r1"},
    ]


def test_no_variable_is_named_twice() -> None:
    found = manifest({"t": {**WIDE, "env": {"A": "{{"}}})
    names = [item["name"] for item in container(found)["env"]]
    assert len(set(names)) == len(names)


# --- storage


def test_the_run_is_mounted_by_its_own_directory_and_the_snapshots_read_only() -> None:
    apart = {"persistentVolumeClaim": {"claimName": "snapshots", "readOnly": True}}
    config = {"store_path": "/simrun/store/", "snapshots": apart, "snapshots_path": "/a/b/"}
    found = manifest({"t": BARE}, config=config)
    assert found["spec"]["volumes"] == [
        {"name": "store", "persistentVolumeClaim": {"claimName": "simrun-store"}},
        {"name": "snapshots", **apart},
        {"name": "no-token", "emptyDir": {}},
    ]
    assert mount(found, "store") == {
        "name": "store",
        "mountPath": "/simrun/run",
        "subPath": "simrun/store/runs/r1",
    }
    assert mount(found, "snapshots") == {
        "name": "snapshots",
        "mountPath": "/simrun/snapshots",
        "subPath": "a/b",
        "readOnly": True,
    }
    whole = manifest({"t": BARE}, config={"snapshots": apart, "snapshots_path": ""})
    assert "subPath" not in mount(whole, "snapshots")
    assert mount(whole, "store")["subPath"] == "runs/r1"


def test_where_it_is_wanted_a_pod_sees_only_the_snapshots_that_its_task_names() -> None:
    reading = {**BARE, "inputs": ["a", "b", "c"]}
    inputs = {"a": "snapshot:mesh/x", "b": "snapshot:mesh", "c": "snapshot:era5.v2/1990"}
    found = manifest(
        {"t": reading, "u": BARE},
        {"t": {"type": "t", "inputs": inputs}, "u": {"type": "u"}},
        config={"snapshots_mounted": "named"},
    )
    seen = [
        item for item in container(found, "t")["volumeMounts"] if "snapshots" in item["mountPath"]
    ]
    assert seen == [
        {
            "name": "store",
            "mountPath": f"/simrun/snapshots/{name}",
            "readOnly": True,
            "subPath": f"snapshots/{name}",
        }
        for name in ("mesh", "era5.v2")
    ]
    assert not any("snapshots" in str(item) for item in container(found, "u")["volumeMounts"])


@pytest.mark.parametrize("config", [{}, {"store": {"nfs": {"server": "a", "path": "/"}}}])
def test_snapshots_in_the_volume_of_the_store_need_no_second_volume(
    config: dict[str, Any],
) -> None:
    if config:
        config = {**config, "snapshots": {"nfs": {**config["store"]["nfs"], "readOnly": True}}}
    found = manifest({"t": BARE}, config=config)
    assert [volume["name"] for volume in found["spec"]["volumes"]] == ["store", "no-token"]
    assert [item for item in container(found)["volumeMounts"] if item["name"] == "store"] == [
        {"name": "store", "mountPath": "/simrun/run", "subPath": "runs/r1"},
        {
            "name": "store",
            "mountPath": "/simrun/snapshots",
            "readOnly": True,
            "subPath": "snapshots",
        },
    ]


@pytest.mark.parametrize(
    ("types", "name", "path"),
    [
        ({"t": WIDE}, "t", "r1/t/{{inputs.parameters.worker}}"),
        ({"t": WIDE}, "t-merge", "r1/t/merge"),
        ({"t": BARE}, "t", "r1/t"),
    ],
)
def test_each_worker_has_a_scratch_directory_of_its_own(
    types: dict[str, dict[str, Any]], name: str, path: str
) -> None:
    plan = {"coordinator_merges": False}
    private = manifest(types, plan=plan)
    assert template(private, name)["volumes"] == [{"name": "scratch", "emptyDir": {}}]
    assert mount(private, "scratch", name) == {
        "name": "scratch",
        "mountPath": f"/simrun/scratch/{path}",
    }
    claim = {"persistentVolumeClaim": {"claimName": "scratch"}}
    shared = manifest(types, plan=plan, config={"scratch": claim})
    assert template(shared, name)["volumes"] == [{"name": "scratch", **claim}]
    assert mount(shared, "scratch", name)["subPath"] == path
    assert env(shared, name)["SIMRUN_SCRATCH"] == f"/simrun/scratch/{path}"


def test_the_scratch_of_a_type_limits_an_empty_directory() -> None:
    limited = {**BARE, "resources": {"scratch": "2Gi"}}
    config = {"scratch": {"emptyDir": {"medium": "Memory"}}}
    found = template(manifest({"t": limited}, config=config))
    assert found["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    assert "sizeLimit" not in config["scratch"]["emptyDir"]


# --- placement


def test_the_pods_of_a_run_with_a_reserved_node_select_it_and_tolerate_any_effect() -> None:
    config = {
        "node_selector": {"disk": "ssd", "zone": "a"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
    }
    found = manifest({"t": {**BARE, "node_selector": {"zone": "b"}}}, config=config, node="n1")
    assert template(found)["nodeSelector"] == {"disk": "ssd", "zone": "b", "simrun/reserved": "r1"}
    assert found["spec"]["tolerations"] == [
        {"key": "x", "operator": "Exists"},
        {"key": "simrun/reserved", "operator": "Equal", "value": "r1"},
    ]


def test_other_pods_neither_select_nor_tolerate() -> None:
    found = manifest({"t": BARE})
    assert "nodeSelector" not in template(found)
    assert "tolerations" not in found["spec"]


# --- security


def test_all_containers_satisfy_pod_security_restricted() -> None:
    config = {"run_as_user": 1000, "run_as_group": 2000}
    spec = json.loads(manifest({"t": BARE}, config=config)["spec"]["podSpecPatch"])
    tight = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec == {
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            "runAsUser": 1000,
            "runAsGroup": 2000,
        },
        "containers": [
            {"name": "main", "securityContext": tight},
            {"name": "wait", "securityContext": tight},
        ],
        "initContainers": [{"name": "init", "securityContext": tight}],
    }


def test_the_containers_of_argos_executor_are_the_clusters_to_name() -> None:
    containers = ExecutorContainers(init=[], containers=["supervisor"])
    spec = json.loads(
        manifest({"t": BARE}, config={"executor_containers": containers})["spec"]["podSpecPatch"]
    )
    assert [item["name"] for item in spec["containers"]] == ["main", "supervisor"]
    assert "initContainers" not in spec
    assert "runAsUser" not in spec["securityContext"]


# --- images


def test_images_and_their_secrets() -> None:
    found = manifest(
        {"t": {"command": ["a"]}},
        config={
            "image": "registry.test/x:1",
            "image_pull_policy": "Always",
            "image_pull_secrets": ["one", "two"],
        },
    )
    assert container(found)["image"] == "registry.test/x:1"
    assert container(found)["imagePullPolicy"] == "Always"
    assert found["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


# --- errors


def test_a_task_without_an_image_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="task 't' has no image: name one in its type, or"):
        manifest({"t": {"command": ["a"]}})


def test_a_task_without_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="task 't' has no command"):
        broken(command=None)


def test_a_staged_port_that_is_no_input_is_refused() -> None:
    with pytest.raises(ValueError, match="task 't' stages 'mesh', which is no input"):
        broken(stage=["mesh"])


def broken(**update: Any) -> None:
    """Render a type that no validator saw."""
    task_type = TaskType(**BARE).model_copy(update=update)
    workflow = Workflow(tasks={"t": Task(type="t")})
    record = RunRecord(id="r1", times=RunTimes(created=0)).with_workflow(workflow)
    to_argo(record, {"t": TaskPlan(memory=MIB)}, {"t": task_type}, ClusterConfig())


def test_a_run_id_that_is_no_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"run id '../x'"):
        manifest({"t": BARE}, id="../x")


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"image": "x:{{=1+1}}"}, "task 't': image"),
        ({"image": "x y"}, "task 't': image"),
        ({"node_selector": {"a": "{{x}}"}}, "task 't': node selector a:"),
        ({"node_selector": {"{{x}}": "a"}}, "task 't': node selector"),
        ({"secret_env": {"A": {"secret": "{{x}}", "key": "k"}}}, "task 't': secret"),
        ({"secret_env": {"A": {"secret": "s", "key": "$(x)"}}}, "task 't': key of a secret"),
        ({"resources": {"{{x}}/gpu": 1}}, "task 't': resource"),
    ],
)
def test_names_that_could_be_read_as_something_else_are_refused(
    update: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        manifest({"t": {**BARE, **update}})


# --- text of users


def expanded(value: str, variables: dict[str, str]) -> str:
    """What the kubelet makes of a command item or a variable's value."""
    result, at = "", 0
    while at < len(value):
        if value[at] != "$" or at + 1 == len(value):
            result += value[at]
            at += 1
        elif value[at + 1] == "$":
            result += "$"
            at += 2
        elif value[at + 1] == "(" and (end := value.find(")", at)) >= 0:
            name = value[at + 2 : end]
            result += variables.get(name, f"$({name})")
            at = end + 1
        else:
            result += value[at : at + 2]
            at += 2
    return result


def variables_of(found: dict[str, Any], name: str = "t") -> dict[str, str]:
    """The environment as the kubelet makes it: each value may use those before it."""
    known: dict[str, str] = {}
    for item in container(found, name)["env"]:
        if "value" in item:
            known[item["name"]] = expanded(item["value"], known)
    return known


def read_by_argo(found: dict[str, Any]) -> str:
    """All of a manifest that Argo looks for `{{` in: everything but the workflow's own metadata."""
    return json.dumps(found["spec"], ensure_ascii=False)


def check_tags(found: dict[str, Any]) -> None:
    """Every mark in the manifest starts one of simrun's own tags."""
    content = read_by_argo(found)
    own = re.findall(r"\{\{.*?\}\}", content)
    assert content.count("{{") == len(own)
    for tag in own:
        ours = tag in TAGS or re.fullmatch(
            r"\{\{=lastRetry\.exitCode == '137' \? '[0-9.]+(Mi)?' : '[0-9.]+(Mi)?'\}\}", tag
        )
        assert ours, tag


hostile = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "{{",
                "{",
                "}}",
                "}",
                "$",
                "$$",
                "$(",
                "(",
                ")",
                "=1+1",
                "SIMRUN_BRACE",
                "HOME",
                "\n",
                '"',
                "'",
                "\\",
                "retries",
                "é",
            ]
        )
    ).map("".join),
)
environment = st.dictionaries(st.sampled_from(["A", "HOME", "Z_1"]), hostile)


@given(
    st.lists(hostile, min_size=1),
    environment,
    hostile,
    hostile.filter(lambda t: t and ":" not in t),
)
@settings(max_examples=200)
@example(["{{=1+1}}"], {"A": "{{=1+1}}"}, "{{=1+1}}", "{{=1+1}}")
@example(["$$(HOME)"], {"A": "$(SIMRUN_BRACE)", "HOME": "{{{{$(A)"}, "$(HOME)", "$(HOME)\n")
@example(["{", "{params.p}"], {}, "{", "a{{")
@example(["{{params.p}"], {}, "{", "}}{{")
def test_text_of_users_comes_through_unread(
    command: list[str], user_env: dict[str, str], param: str, group: str
) -> None:
    params = {"p": param}
    command = [re.sub(r"\{(params|inputs|outputs|unit)\.(?!p\})", "", item) for item in command]
    types = {"t": {"command": command, "image": "i", "env": user_env, "params": params}}
    found = manifest(types, group=group)
    check_tags(found)
    meant = [item.replace("{params.p}", param) for item in command]
    meant = [
        item.replace("{out}", "/simrun/run/tasks/t/out").replace(
            "{scratch}", "/simrun/scratch/r1/t"
        )
        for item in meant
    ]
    variables = variables_of(found)
    if container(found)["command"] == ["simrun-exec"]:
        assert any("{{" in item for item in meant)
    else:
        assert [expanded(item, variables) for item in container(found)["command"]] == meant
    assert {name: variables[name] for name in user_env} == user_env
    assert found["metadata"]["annotations"]["simrun/group"] == group
    of_pods = found["spec"]["podMetadata"]["annotations"]["simrun/group"]
    assert of_pods.replace("{ ", "{") == group.replace("{ ", "{")


def test_the_pods_carry_the_group_as_given_but_for_a_blank_between_two_braces() -> None:
    def of_pods(group: str) -> str:
        found = manifest({"t": BARE}, group=group)["spec"]["podMetadata"]["annotations"]
        return str(found["simrun/group"])

    assert of_pods("Team A {x} $(HOME)\n") == "Team A {x} $(HOME)\n"
    assert of_pods("{{=1+1}} {{{") == "{ {=1+1}} { { {"


@given(hostile, hostile)
def test_nothing_of_a_task_under_the_harness_is_in_the_manifest(param: str, item: str) -> None:
    marked = {"type": "t", "params": {"p": f"zebra-{param}", f"zebra-{param}": 1}}
    for kind in (
        {"command": [f"zebra-{item}"], "split": SPLIT, "merge": {"command": ["zebra-merge"]}},
        {"plugin": "zebra.py:zebra", "params": {"zebra": 2}},
        {"command": ["zebra-{params.p}"], "harness": True},
    ):
        found = manifest({"t": {**kind, "image": "i"}}, {"t": marked}, name="zebra", owner="zebra")
        assert "zebra" not in read_by_argo(found)
        check_tags(found)


def test_a_variable_for_the_brace_is_there_only_where_it_is_needed() -> None:
    assert "SIMRUN_BRACE" not in env(manifest({"t": {**BARE, "env": {"A": "{ {"}}}))
    needed = manifest({"t": {**BARE, "env": {"A": "{{x}}"}}})
    assert container(needed)["env"][0] == {"name": "SIMRUN_BRACE", "value": "{"}
    assert env(needed)["A"] == "{$(SIMRUN_BRACE)x}}"


@given(hostile)
def test_the_kubelet_gives_back_what_was_escaped_for_it(value: str) -> None:
    assert expanded(text.for_kubelet(value), {"HOME": "no", "": "no"}) == value


# --- a second opinion


def test_heras_models_take_the_manifest_and_give_it_back() -> None:
    found = manifest(
        {
            "w": {**WIDE, "timeout": 5, "secret_env": {"A": {"secret": "s", "key": "k"}}},
            "t": {**BARE, "env": {"A": "{{"}, "resources": {"scratch": "1Gi"}},
        },
        config={
            "run_as_user": 1,
            "image_pull_secrets": ["x"],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        },
        plan={"coordinator_merges": False},
        node="n",
        group="{{x}}",
    )
    model = HeraWorkflow.model_validate(found)
    assert model.model_dump(by_alias=True, exclude_none=True, mode="json") == found
