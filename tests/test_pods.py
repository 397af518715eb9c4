"""Which pods a round has, what they run and what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.model.cluster import ClusterConfig
from simrun.model.inputs import input_refs, open_inputs
from simrun.model.mounts import Mounts
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunTimes, TaskState
from simrun.model.settings import InputRef
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.pods import Pod, pods_of, task_order

MIB = 2**20
SPLIT = {"workers": 3, "units": {"list": [1, 2, 3]}}


@dataclass
class Here:
    """A configuration as a local backend has it: no image, directories that depend on the run."""

    image: str | None = None

    def mounts(self, run: str) -> Mounts:
        return Mounts(run=f"/store/runs/{run}", snapshots="/store/snapshots", scratch="/tmp/simrun")


def record(tasks: dict[str, dict[str, Any]], /, **update: Any) -> RunRecord:
    workflow = Workflow(tasks={name: Task(**task) for name, task in tasks.items()})
    return RunRecord(id="r1", times=RunTimes(created=0), **update).with_workflow(workflow)


def plan_for(task_type: TaskType, **update: Any) -> TaskPlan:
    split = task_type.split
    values = {
        "memory": 256 * MIB,
        "pods": split.workers if split else 1,
        "split": split is not None,
        "coordinator_merges": split is not None,
    }
    return TaskPlan(**{**values, **update})


def pods(
    tasks: dict[str, dict[str, Any]],
    types: dict[str, dict[str, Any]],
    /,
    *,
    config: Any = None,
    plan: dict[str, Any] | None = None,
    **update: Any,
) -> dict[str, Pod]:
    known = {name: TaskType(**content) for name, content in types.items()}
    plans = {name: plan_for(known[task["type"]], **(plan or {})) for name, task in tasks.items()}
    found = pods_of(record(tasks, **update), plans, known, config or Here())
    assert len({pod.worker for pod in found}) == len(found)
    return {pod.worker: pod for pod in found}


def only(task_type: dict[str, Any], **keywords: Any) -> Pod:
    (pod,) = pods({"t": {"type": "t"}}, {"t": task_type}, **keywords).values()
    return pod


# --- workers and roles


def test_an_unsplit_command_is_one_bare_pod() -> None:
    pod = only({"command": ["sim", "--fast"]})
    assert (pod.worker, pod.task, pod.role, pod.index) == ("t", "t", "exec", 0)
    assert (pod.harness, pod.command) == (None, ("sim", "--fast"))
    assert pod.working_dir == "/store/runs/r1/tasks/t/out"
    assert pod.scratch == "r1/t"
    assert (pod.priority, pod.may_fail) == ("base", False)


def test_a_split_task_has_a_coordinator_that_merges_and_extra_workers_that_may_fail() -> None:
    found = pods({"t": {"type": "t"}}, {"t": {"plugin": "p:f", "split": SPLIT}})
    assert list(found) == ["t-w0", "t-w1", "t-w2"]
    assert [pod.role for pod in found.values()] == ["base", "extra", "extra"]
    assert [pod.index for pod in found.values()] == [0, 1, 2]
    assert [pod.harness for pod in found.values()] == ["worker"] * 3
    assert [pod.priority for pod in found.values()] == ["base", "extra", "extra"]
    assert [pod.may_fail for pod in found.values()] == [False, True, True]
    assert [pod.scratch for pod in found.values()] == ["r1/t/t-w0", "r1/t/t-w1", "r1/t/t-w2"]
    assert [pod.env.get("SIMRUN_MERGE") for pod in found.values()] == ["1", None, None]
    assert {pod.command for pod in found.values()} == {()}


def test_a_plan_from_before_coordinators_merged_has_a_merge_after_the_coordinator() -> None:
    found = pods(
        {"t": {"type": "t"}, "u": {"type": "u", "after": ["t"]}},
        {"t": {"plugin": "p:f", "split": SPLIT}, "u": {"command": ["true"]}},
        plan={"coordinator_merges": False},
    )
    merge = found["t-merge"]
    assert (merge.role, merge.harness, merge.priority) == ("merge", "merge", "base")
    assert (merge.needs, merge.scratch) == (("t-w0",), "r1/t/merge")
    assert "SIMRUN_MERGE" not in found["t-w0"].env
    assert found["u"].needs == ("t-merge",)


def test_a_split_task_of_one_pod_has_no_extra_workers() -> None:
    found = pods({"t": {"type": "t"}}, {"t": {"plugin": "p:f", "split": SPLIT}}, plan={"pods": 1})
    assert list(found) == ["t-w0"]


def test_a_plan_of_no_pods_still_has_its_coordinator() -> None:
    found = pods({"t": {"type": "t"}}, {"t": {"plugin": "p:f", "split": SPLIT}}, plan={"pods": 0})
    assert list(found) == ["t-w0"]


# --- order and needs


def test_a_task_waits_for_the_worker_whose_end_means_that_the_task_before_is_done() -> None:
    found = pods(
        {
            "last": {"type": "one", "inputs": {"a": "wide.x"}, "after": ["first"]},
            "wide": {"type": "wide", "inputs": {"a": "first.x"}},
            "first": {"type": "one"},
        },
        {
            "one": {
                "command": ["true"],
                "inputs": {"a": {"optional": True}},
                "outputs": {"x": "x"},
            },
            "wide": {"command": ["true"], "inputs": ["a"], "outputs": {"x": "x"}, "split": SPLIT},
        },
    )
    assert list(found) == ["first", "wide-w0", "wide-w1", "wide-w2", "last"]
    assert found["wide-w0"].needs == found["wide-w2"].needs == ("first",)
    assert found["last"].needs == ("wide-w0", "first")


def test_done_tasks_have_no_pods_and_nobody_waits_for_them() -> None:
    found = pods(
        {
            "a": {"type": "x"},
            "b": {"type": "x", "after": ["a"]},
            "c": {"type": "x", "after": ["b"]},
        },
        {"x": {"command": ["true"]}},
        tasks={"a": TaskState.DONE, "b": TaskState.WAITING},
        round=1,
    )
    assert list(found) == ["b", "c"]
    assert (found["b"].needs, found["c"].needs) == ((), ("b",))


@given(st.data())
def test_every_pod_stands_after_those_it_needs(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    names = data.draw(st.permutations([f"t{i}" for i in range(count)]))
    tasks: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(names):
        before = data.draw(st.lists(st.sampled_from(names[:place]), unique=True)) if place else []
        tasks[name] = {"type": data.draw(st.sampled_from(["one", "wide"])), "after": before}
    shuffled = {name: tasks[name] for name in sorted(tasks)}
    found = pods(
        shuffled, {"one": {"command": ["true"]}, "wide": {"command": ["true"], "split": SPLIT}}
    )
    seen: set[str] = set()
    for worker, pod in found.items():
        assert seen.issuperset(pod.needs)
        seen.add(worker)
    assert {pod.task for pod in found.values()} == set(tasks)


def test_tasks_that_wait_for_each_other_are_refused_by_name() -> None:
    workflow = Workflow(tasks={"a": Task(type="x", after=["b"]), "b": Task(type="x", after=["a"])})
    with pytest.raises(ValueError, match=r"wait for each other: (a -> b -> a|b -> a -> b)"):
        task_order(workflow)


def test_a_task_that_waits_for_nobody_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'a' waits for 'z', which is no task"):
        task_order(Workflow(tasks={"a": Task(type="x", after=["z"])}))


def test_a_chain_of_thousands_is_put_in_order() -> None:
    names = [f"t{i}" for i in range(5000)]
    tasks = {
        name: Task(type="x", after=[before] if before else [])
        for name, before in zip(reversed(names), [*reversed(names[:-1]), None], strict=True)
    }
    assert task_order(Workflow(tasks=tasks)) == names


# --- environment


def test_the_environment_of_the_harness() -> None:
    pod = only(
        {
            "command": ["sim"],
            "timeout": "2h",
            "grace": "45s",
            "env": {"OMP_NUM_THREADS": "2"},
            "secret_env": {"TOKEN": {"secret": "s", "key": "k"}},
        },
        plan={"retry_memory": 1536 * MIB, "cpus": 0.25},
        config=ClusterConfig(),
        attempt_base={"t": 4},
    )
    assert dict(pod.env) == {
        "OMP_NUM_THREADS": "2",
        "SIMRUN_RUN": "r1",
        "SIMRUN_TASK": "t",
        "SIMRUN_WORKER": "t",
        "SIMRUN_ROLE": "exec",
        "SIMRUN_ATTEMPT_BASE": "4",
        "SIMRUN_TASK_DIR": "/simrun/run/tasks/t",
        "SIMRUN_SCRATCH": "/simrun/scratch/r1/t",
        "SIMRUN_SNAPSHOTS": "/simrun/snapshots",
        "SIMRUN_GRACE_S": "45",
        "SIMRUN_STALE_S": "105",
        "SIMRUN_TIMEOUT_S": "7200",
        "SIMRUN_CPUS": "0.25",
        "SIMRUN_RETRY_MEMORY_GB": "1.5",
    }
    assert pod.secret_env["TOKEN"].secret == "s"
    assert (pod.timeout_s, pod.grace_s, pod.attempt_base) == (7200, 45, 4)


def test_without_a_retry_memory_or_a_time_limit_the_harness_hears_of_none() -> None:
    env = only({"command": ["sim"]}).env
    assert not {"SIMRUN_RETRY_MEMORY_GB", "SIMRUN_TIMEOUT_S", "SIMRUN_MERGE"} & set(env)


def test_evictions_and_one_attempt_that_asks_after_each_fit_into_the_retries() -> None:
    assert only({"command": ["sim"]}, max_evictions=5).retry_limit == 12
    assert only({"command": ["sim"]}, max_evictions=0).retry_limit == 2


def test_memory_and_resources_come_from_the_plan_and_the_type() -> None:
    pod = only(
        {"command": ["sim"], "resources": {"cpu": 9, "scratch": "1Gi", "nvidia.com/gpu": 2}},
        plan={"cpus": 2.0, "memory": 300 * MIB, "retry_memory": 600 * MIB},
    )
    assert (pod.cpus, pod.memory, pod.retry_memory) == (2.0, 300 * MIB, 600 * MIB)
    assert (pod.scratch_limit, pod.extended) == (2**30, {"nvidia.com/gpu": 2})


@pytest.mark.parametrize(
    ("plan", "own", "default", "image"),
    [
        ("built", "named", "default", "built"),
        (None, "named", "default", "named"),
        (None, None, "default", "default"),
        (None, None, None, None),
    ],
)
def test_the_image_is_the_plans_or_the_types_or_the_default(
    plan: str | None, own: str | None, default: str | None, image: str | None
) -> None:
    pod = only({"command": ["a"], "image": own}, plan={"image": plan}, config=Here(image=default))
    assert pod.image == image


def test_the_pods_of_a_run_with_a_reserved_node_select_it() -> None:
    own = {"command": ["a"], "node_selector": {"disk": "ssd", "simrun/reserved": "other"}}
    assert only(own, node="n1").node_selector == {"disk": "ssd", "simrun/reserved": "r1"}
    assert only(own, reserve_node=True).node_selector["simrun/reserved"] == "r1"
    assert only({"command": ["a"], "node_selector": {"disk": "ssd"}}).node_selector == {
        "disk": "ssd"
    }


# --- bare, or under the harness


@pytest.mark.parametrize(
    "update",
    [
        {"timeout": 5},
        {"retries": 1},
        {"harness": True},
        {"inputs": {"a": {"optional": True}}, "stage": ["a"]},
        {"command": None, "plugin": "p:f"},
    ],
    ids=["time limit", "retries", "asked for", "stages", "plugin"],
)
def test_what_only_the_harness_can_do_runs_under_it(update: dict[str, Any]) -> None:
    pod = only({"command": ["sim", "{params.unknown}"], **update})
    assert (pod.harness, pod.command, pod.working_dir) == ("exec", (), None)


def test_a_command_that_reads_like_a_template_runs_under_the_harness() -> None:
    assert only({"command": ["sim", "{{=1+1}}"]}).harness == "exec"
    assert only({"command": ["sim", "{params.x}"], "params": {"x": "{{=1"}}).harness == "exec"
    assert only({"command": ["sim", "{{params.x}"], "params": {"x": "{"}}).harness == "exec"
    assert only({"command": ["sim", "}} { {"]}).harness is None


def test_a_command_that_reads_like_a_template_cannot_be_forced_to_run_bare() -> None:
    with pytest.raises(ValueError, match=r"task 't'.*'\{\{'.*harness: false"):
        only({"command": ["sim", "{{=1+1}}"], "harness": False})


def test_a_task_that_stages_cannot_be_forced_to_run_bare() -> None:
    with pytest.raises(ValueError, match=r"task 't' stages.*harness: false"):
        only(
            {
                "command": ["sim"],
                "inputs": {"a": {"optional": True}},
                "stage": ["a"],
                "harness": False,
            }
        )


def test_placeholders_of_a_bare_command_become_what_its_pod_sees() -> None:
    found = pods(
        {
            "up": {"type": "up"},
            "t": {
                "type": "t",
                "params": {"n": 7},
                "inputs": {"a": "up.x", "b": "./b.txt", "c": "snapshot:mesh/fine/m.vtk"},
            },
        },
        {
            "up": {"command": ["true"], "outputs": {"x": "dir/x.csv"}},
            "t": {
                "command": [
                    "sim",
                    "{params.n} {params.name} {params.flag}",
                    "{inputs.a}",
                    "{inputs.b}",
                    "{inputs.c}",
                    "{outputs.y}",
                    "{out}|{scratch}",
                    "{unit.index} {other} ${HOME}",
                ],
                "params": {"n": 1, "name": "a b", "flag": True},
                "inputs": ["a", "b", "c"],
                "outputs": {"y": "y.csv"},
            },
        },
    )
    assert found["t"].command == (
        "sim",
        "7 a b true",
        "/store/runs/r1/tasks/up/out/dir/x.csv",
        "/store/runs/r1/tasks/t/in/b",
        "/store/snapshots/mesh/fine/m.vtk",
        "/store/runs/r1/tasks/t/out/y.csv",
        "/store/runs/r1/tasks/t/out|/tmp/simrun/r1/t",
        "0 {other} ${HOME}",
    )


def test_an_optional_input_that_is_not_connected_is_empty_text() -> None:
    pod = only({"command": ["sim", "--a={inputs.a}"], "inputs": {"a": {"optional": True}}})
    assert pod.command == ("sim", "--a=")


def test_an_unsplit_command_is_unit_0_of_its_task() -> None:
    assert only({"command": ["{unit.index}", "{unit.key}"]}).command == ("0", "t")


def test_the_seed_of_an_unsplit_command_depends_on_its_task_alone() -> None:
    command = {"command": ["sim", "{unit.seed}", "{unit.seed31}"]}
    one, other = pods({"a": {"type": "x"}, "b": {"type": "x"}}, {"x": command}).values()
    assert one.command == only_task("a", command).command
    assert int(one.command[1]) != int(other.command[1])
    assert 0 < int(one.command[2]) < 2**31


def only_task(name: str, task_type: dict[str, Any]) -> Pod:
    (pod,) = pods({name: {"type": "t"}}, {"t": task_type}, round=3).values()
    return pod


# --- errors


def test_an_unknown_placeholder_names_its_task() -> None:
    with pytest.raises(ValueError, match=r"task 't': \{params.x\}"):
        only({"command": ["sim", "{params.x}"]})


def test_a_task_without_a_command_is_refused() -> None:
    empty = TaskType(command=["x"]).model_copy(update={"command": None})
    with pytest.raises(ValueError, match="task 't' has no command"):
        pods_of(record({"t": {"type": "t"}}), {"t": plan_for(empty)}, {"t": empty}, Here())


def test_a_staged_port_that_is_no_input_is_refused() -> None:
    wrong = TaskType(command=["x"]).model_copy(update={"stage": ["mesh"]})
    with pytest.raises(ValueError, match="task 't' stages 'mesh', which is no input"):
        pods_of(record({"t": {"type": "t"}}), {"t": plan_for(wrong)}, {"t": wrong}, Here())


def test_a_staged_port_that_the_task_leaves_open_is_refused_unless_it_is_optional() -> None:
    with pytest.raises(ValueError, match="task 't' stages 'mesh', which is no input"):
        only({"command": ["x"], "inputs": ["mesh"], "stage": ["mesh"]})
    assert only({"command": ["x"], "inputs": {"mesh": {"optional": True}}, "stage": ["mesh"]})


def test_a_task_without_a_plan_is_refused_by_name() -> None:
    known = {"t": TaskType(command=["x"])}
    with pytest.raises(ValueError, match="task 't' has no plan"):
        pods_of(record({"t": {"type": "t"}}), {}, known, Here())


def test_a_record_without_its_workflow_is_refused() -> None:
    with pytest.raises(ValueError, match="without its workflow"):
        pods_of(RunRecord(id="r1", times=RunTimes(created=0)), {}, {}, Here())


# --- inputs


def test_inputs_lie_below_the_run_or_the_snapshots() -> None:
    types = {
        "up": TaskType(command=["x"], outputs={"x": "d/x.csv"}),
        "t": TaskType(command=["x"], inputs={"a": {}, "b": {"optional": True}, "c": {}, "d": {}}),
    }
    sources = {"a": "up.x", "b": "/data/b", "c": "snapshot:mesh", "d": "snapshot:mesh/a/b/"}
    workflow = Workflow(tasks={"up": Task(type="up"), "t": Task(type="t", inputs=sources)})
    assert input_refs(workflow, types, "t") == {
        "a": InputRef(run="tasks/up/out/d/x.csv"),
        "b": InputRef(run="tasks/t/in/b", optional=True),
        "c": InputRef(snapshot="mesh"),
        "d": InputRef(snapshot="mesh/a/b"),
    }


def test_optional_inputs_that_nothing_is_connected_to_are_told_to_the_harness() -> None:
    types = {
        "t": TaskType(command=["x"], inputs={"a": {"optional": True}, "b": {"optional": True}})
    }
    workflow = Workflow(tasks={"t": Task(type="t", inputs={"a": "/data/a"})})
    assert open_inputs(workflow, types, "t") == ["b"]


def test_an_output_that_does_not_exist_is_named_with_those_that_do() -> None:
    types = {"x": TaskType(command=["x"], inputs=["a"], outputs={"map": "m", "log": "l"})}
    tasks = {"up": Task(type="x"), "t": Task(type="x", inputs={"a": "up.mop"})}
    with pytest.raises(
        ValueError, match=r"'t' reads up.mop, but the outputs of 'up' are: map, log"
    ):
        input_refs(Workflow(tasks=tasks), types, "t")
