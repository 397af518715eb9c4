"""The contract: what every part of simrun relies on, and what files of one version say to another.

docs/contract.md says it in prose. A change that makes one of these tests fail is a change of the contract: it needs a decision
record, and where files are concerned a new schema.
"""

from __future__ import annotations

import enum
import hashlib
import inspect
import json
import os
import re
import types
import typing
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from pydantic import BaseModel

from simrun.argo import label_value, run_workflow_name, to_argo, workflow_name
from simrun.backends.base import Attempt, Backend, BackendStatus, Node, Phase
from simrun.base import ids
from simrun.base.errors import DamagedRecord, UnknownSchema
from simrun.model import report as report_model
from simrun.model.cluster import ClusterConfig
from simrun.model.launchplan import Active, LaunchPlan
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.report import AttemptEvidence, Observation, WorkerReport
from simrun.model.settings import TaskSettings
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.service import controller
from simrun.service.decide import decide
from simrun.service.decision import GONE, View
from simrun.store import codec
from simrun.store.layout import RunDir, StoreLayout
from simrun.store.pauses import Pause
from simrun.worker import environment, protocol, report
from simrun.worker import settings as harness_settings
from simrun.worker.claims import Holder, Token, decode_token
from simrun.worker.endings import BadSettingsError, MemoryKillError
from simrun.worker.protocol import Exit, TaskDir

GOLDEN = Path(__file__).parent / "golden" / "contract"
PATH = Path("file.json")

# --- ids -----------------------------------------------------------------------------------------------------------------

GOOD_NAMES = ["a", "0", "a-b", "sweep-2", "a--b", "w0", "extra", "r1", "a-w", "a-w0b", "a-extras"]


@pytest.mark.parametrize("text", [*GOOD_NAMES, "a-r1", "x" * 48])
def test_a_task_id(text: str) -> None:
    assert ids.task_id_problem(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "-a", "a-", "A", "a_b", "a.b", "a b", "ä", "a\n", "a/b", "..", "x" * 49),
        *("a-w0", "a-w12", "a-extra", "a-merge", "a-b-w3"),
    ],
)
def test_what_is_no_task_id(text: str) -> None:
    assert ids.task_id_problem(text)


@pytest.mark.parametrize("text", [*GOOD_NAMES, "a-w0", "x" * 40, "01h" + "0" * 23])
def test_a_run_id(text: str) -> None:
    assert ids.run_id_problem(text) is None


@pytest.mark.parametrize("text", ["", "..", ".", "a/b", "A", "a-", "x" * 41, "a-r1", "a-r10"])
def test_what_is_no_run_id(text: str) -> None:
    assert ids.run_id_problem(text)


@pytest.mark.parametrize("text", ["a", "x" * 63, "a-w", "nightly-2"])
def test_the_name_of_a_launch_plan(text: str) -> None:
    assert ids.plan_name_problem(text) is None


@pytest.mark.parametrize("text", ["", "x" * 64, "a-w0", "A", "a-merge"])
def test_what_is_no_name_of_a_launch_plan(text: str) -> None:
    assert ids.plan_name_problem(text)


@pytest.mark.parametrize("text", ["1", "v1.2_3-rc", "A", "...", "x" * 63])
def test_a_version(text: str) -> None:
    assert ids.version_problem(text) is None


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "a/b", "é", "x" * 64, "1\n"])
def test_what_is_no_version(text: str) -> None:
    assert ids.version_problem(text)


def test_a_group_is_free_text_without_a_colon() -> None:
    assert ids.group_problem("Team Ä / 1") is None
    assert ids.group_problem("{{=1+1}} $(X)\ntwo lines") is None
    assert ids.group_problem("a:b")
    assert ids.group_problem("")


@given(st.text(max_size=60) | st.from_regex(r"[a-z0-9-]{1,50}(-w[0-9]+|-r[0-9]+)?", fullmatch=True))
def test_ids_that_pass_are_safe_as_directory_dag_node_and_label(text: str) -> None:
    for problem, longest in ((ids.task_id_problem, 48), (ids.run_id_problem, 40)):
        if problem(text) is None:
            assert len(text) <= longest
            assert label_value(text) == text
            assert Path(text).name == text
            assert text.isascii()


@given(
    task=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?", fullmatch=True),
    index=st.integers(0, 9999),
)
def test_no_name_of_a_worker_is_a_task_id(task: str, index: int) -> None:
    for name in (protocol.worker_name(task, index), protocol.merge_name(task), f"{task}-extra"):
        assert ids.task_id_problem(name)


@given(wall=st.floats(0, 4e9), later=st.floats(0.002, 4e9))
def test_a_new_run_id_is_a_lower_case_ulid_that_sorts_by_time(wall: float, later: float) -> None:
    first, second = ids.new_run_id(wall), ids.new_run_id(wall + later)
    assert len(first) == len(second) == 26
    assert ids.run_id_problem(first) is None
    assert first < second


def test_a_ulid_is_the_one_of_its_definition() -> None:
    assert ids.new_run_id(1469918176.385, bytes(10)) == "01aryz6s41" + "0" * 16


def test_an_idempotency_key_stands_for_one_id_within_its_group() -> None:
    digest = hashlib.sha256(b'["team-a", "key-1"]').hexdigest()
    assert ids.keyed_run_id("team-a", "key-1") == "k" + digest[:19]
    assert ids.run_id_problem(ids.keyed_run_id("team-a", "key-1")) is None
    pairs = [("a", "b"), ("b", "a"), ("", "ab"), ("ab", ""), ("é", "x"), ("a", "b ")]
    assert len({ids.keyed_run_id(*pair) for pair in pairs}) == len(pairs)


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(data: dict[str, Any]) -> None:
    turned = dict(reversed(data.items()))
    assert ids.fingerprint(data) == ids.fingerprint(turned)
    assert ids.fingerprint({**data, "more": 1.5}) != ids.fingerprint({**data, "more": 2})


def test_the_name_of_a_workflow_has_room_in_a_label_in_every_round() -> None:
    longest = "x" * ids.RUN_ID_MAX
    assert workflow_name("run1") == run_workflow_name("run1", 0)
    assert run_workflow_name("run1", 2) == workflow_name("run1-r2")
    assert len(run_workflow_name(longest, 10**6)) <= 63


# --- names of workers, attempts, holders and claims ----------------------------------------------------------------------


def test_names_in_a_task() -> None:
    assert protocol.worker_name("sweep", 0) == "sweep-w0"
    assert protocol.merge_name("sweep") == "sweep-merge"
    assert protocol.attempt_name("sweep-w0", 3) == "sweep-w0-3"
    assert protocol.holder_name("sweep-w0", 3, "0123456789ab") == "sweep-w0-3.01234567"
    assert protocol.claim_name(17, 2) == "17.2"


@given(
    task=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?", fullmatch=True),
    attempt=st.integers(0, 10**9),
)
def test_the_name_of_an_attempt_tells_worker_and_number(task: str, attempt: int) -> None:
    for worker in (task, protocol.worker_name(task, 7), protocol.merge_name(task)):
        name = protocol.attempt_name(worker, attempt)
        assert protocol.parse_attempt_name(name) == (worker, attempt)
        assert controller.attempt_of(f"{name}.json") == attempt


@given(unit=st.integers(0, 10**12), generation=st.integers(1, 10**6))
def test_the_name_of_a_claim_tells_unit_and_generation(unit: int, generation: int) -> None:
    assert protocol.parse_claim_name(protocol.claim_name(unit, generation)) == (unit, generation)


@pytest.mark.parametrize("name", [".w0-0.abc.0", ".open.w0-0.abc.0", "1", "1.", "a.1", "1.2.3", ""])
def test_tokens_and_temporary_names_are_no_claims(name: str) -> None:
    assert protocol.parse_claim_name(name) is None


def test_a_token_names_its_holder_and_whether_it_is_open() -> None:
    holder = Holder("sweep-w0", 3, "0123456789ab", "node-1")
    data = Token(holder).encode()
    assert json.loads(data) == {
        "schema": 1,
        "worker": "sweep-w0",
        "attempt": 3,
        "pod_uid": "0123456789ab",
        "node": "node-1",
    }
    assert holder.name == protocol.holder_name("sweep-w0", 3, "0123456789ab")
    for token in (Token(holder), Token(holder, open=True), Token(holder, True, True)):
        assert decode_token(token.encode()) == token


# --- layout --------------------------------------------------------------------------------------------------------------

RUN_LAYOUT = {
    "record": "run.json",
    "submission": "submission.json",
    "code": "code",
    "tasks": "tasks",
}
TASK_LAYOUT = {
    "settings": "settings.json",
    "units": "units",
    "claims": "claims",
    "heartbeats": "heartbeats",
    "dead": "dead",
    "done": "done",
    "faults": "faults",
    "failed": "failed",
    "work": "work",
    "inputs": "in",
    "out": "out",
    "attempts": "attempts",
    "reports": "reports",
    "recorded": "recorded",
    "memory": "memory",
    "logs": "logs",
}
STORE_LAYOUT = {
    "runs": "runs",
    "live": "live",
    "deleted": "runs-deleted",
    "snapshots": "snapshots",
    "snapshots_made": "snapshots-made.lock",
    "snapshots_used": "snapshots-used.lock",
    "uploads": ".uploads",
    "resources": "resources",
    "launch_plans": "launch-plans",
    "scheduler": "scheduler",
    "schedules_changed": "scheduler/changed",
    "damaged": "damaged",
    "lock": "simrun.lock",
}


def properties(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, property)}


def test_every_name_in_a_store_is_the_agreed_one() -> None:
    store = StoreLayout(Path("/store"))
    assert properties(StoreLayout) == set(STORE_LAYOUT)
    for name, place in STORE_LAYOUT.items():
        assert getattr(store, name) == Path("/store") / place
    assert store.run("r1").root == Path("/store/runs/r1")
    assert store.tombstone("r1") == Path("/store/runs-deleted/r1")
    assert store.live_mark("r1") == Path("/store/live/r1")
    observed = store.observation("orbit", "r1", "sweep", "sweep-w0", 3)
    assert observed == Path("/store/resources/orbit/r1-sweep-sweep-w0-3.json")


def test_every_name_in_a_run_and_a_task_is_the_agreed_one() -> None:
    run = RunDir(Path("/store/runs/r1"))
    assert properties(RunDir) == set(RUN_LAYOUT)
    for name, place in RUN_LAYOUT.items():
        assert getattr(run, name) == run.root / place
    task = run.task("sweep")
    assert task.root == Path("/store/runs/r1/tasks/sweep")
    assert task.run_dir == run.root
    assert properties(TaskDir) == {*TASK_LAYOUT, "run_dir"}
    for name, place in TASK_LAYOUT.items():
        assert getattr(task, name) == task.root / place
    assert protocol.MERGE_MARKER == ".simrun-merged"
    assert protocol.RESULT == "result.json"


# --- words ---------------------------------------------------------------------------------------------------------------


def test_states_reasons_roles_and_phases_are_these_words() -> None:
    assert list(RunState) == ["submitting", "running", "succeeded", "failed", "cancelled"]
    assert list(TaskState) == [
        *("waiting", "queued", "running", "retrying", "preempted"),
        *("done", "failed", "skipped"),
    ]
    assert typing.get_args(report_model.Reason) == protocol.REASONS
    assert (
        *("completed", "error", "oom", "evicted", "preempted", "lost", "deadline"),
        *("start_error", "asked", "cancelled"),
    ) == protocol.REASONS
    roles = (protocol.ROLE_BASE, protocol.ROLE_EXTRA, protocol.ROLE_MERGE, protocol.ROLE_EXEC)
    assert roles == ("base", "extra", "merge", "exec")
    assert list(Phase) == ["Pending", "Running", "Succeeded", "Failed", "Error", "Omitted"]


def test_which_states_are_ends() -> None:
    assert {state for state in RunState if state.terminal} == {"succeeded", "failed", "cancelled"}
    assert {state for state in TaskState if state.final} == {"done", "failed", "skipped"}
    assert {phase for phase in Phase if not phase.ended} == {"Pending", "Running"}


def test_numbers_that_several_parts_rely_on() -> None:
    assert protocol.HEARTBEAT_S == 10
    assert protocol.DEFAULT_GRACE_S == 30
    assert protocol.STALE_MARGIN_S == 60
    assert protocol.UNIT_TRIES == TaskSettings(run="r", task="t", type="k").unit_tries == 2
    assert controller.MERGE_MARKER_GRACE_S == 120
    assert RunRecord(id="r", times=RunTimes(created=0)).max_evictions == 5
    assert protocol.SCHEMA == codec.SCHEMA == 1
    assert protocol.HARNESS_PROTOCOL == 1


# --- environment of the harness ------------------------------------------------------------------------------------------

REQUIRED = {
    "SIMRUN_RUN": "r1",
    "SIMRUN_TASK": "sweep",
    "SIMRUN_WORKER": "sweep-w0",
    "SIMRUN_ATTEMPT": "2",
    "SIMRUN_TASK_DIR": "/store/runs/r1/tasks/sweep",
}
OPTIONAL = {
    *("SIMRUN_ATTEMPT_BASE", "SIMRUN_ROLE", "SIMRUN_MERGE", "SIMRUN_SCRATCH", "SIMRUN_SNAPSHOTS"),
    *("SIMRUN_STALE_S", "SIMRUN_GRACE_S", "SIMRUN_TIMEOUT_S", "SIMRUN_MEMORY_PER_WORKER_GB"),
    *("SIMRUN_RETRY_MEMORY_GB", "SIMRUN_CPUS", "SIMRUN_POD_UID", "SIMRUN_NODE"),
}


def test_the_names_of_the_environment_are_these() -> None:
    named = {value for name, value in vars(protocol).items() if name.startswith("ENV_")}
    assert named == {*REQUIRED, *OPTIONAL}


def test_the_defaults_of_the_environment() -> None:
    found = environment.read({**REQUIRED, "SIMRUN_NEWER_THAN_THIS": "ignored"}, "worker")
    assert (found.run, found.task, found.worker) == ("r1", "sweep", "sweep-w0")
    assert (found.attempt, found.attempt_base) == (2, 0)
    assert (found.role, found.merge) == ("base", False)
    assert found.task_dir.root == Path("/store/runs/r1/tasks/sweep")
    assert (found.grace_s, found.stale_s, found.timeout_s) == (30, 90, None)
    assert (found.memory, found.retry_memory, found.cpus) == (None, None, None)
    assert (found.scratch, found.snapshots, found.node) == (None, None, "")
    assert found.pod_uid


def test_what_the_environment_says_is_taken_in_the_agreed_units() -> None:
    told = {
        **REQUIRED,
        "SIMRUN_ATTEMPT_BASE": "3",
        "SIMRUN_ROLE": "extra",
        "SIMRUN_MERGE": "1",
        "SIMRUN_GRACE_S": "45",
        "SIMRUN_TIMEOUT_S": "600.5",
        "SIMRUN_MEMORY_PER_WORKER_GB": "0.25",
        "SIMRUN_RETRY_MEMORY_GB": "1",
        "SIMRUN_CPUS": "0.5",
        "SIMRUN_POD_UID": "0123456789",
        "SIMRUN_NODE": "node-1",
    }
    found = environment.read(told, "worker")
    assert (found.attempt, found.attempt_base) == (5, 3)
    assert (found.role, found.merge) == ("extra", True)
    assert (found.grace_s, found.stale_s, found.timeout_s) == (45, 105, 600.5)
    assert (found.memory, found.retry_memory, found.cpus) == (2**28, 2**30, 0.5)
    assert found.holder == "sweep-w0-5.01234567"
    assert environment.read({**told, "SIMRUN_STALE_S": "7"}, "worker").stale_s == 7
    assert environment.read(told, "exec").role == "exec"


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_required_name_is_told(name: str) -> None:
    told = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(BadSettingsError, match=name):
        environment.read(told, "worker")


def one_split_task(**record: Any) -> dict[str, Any]:
    """The manifest of a run of one task over three workers."""
    workflow = Workflow(tasks={"sweep": Task(type="k")})
    kind = TaskType.model_validate(
        {
            "name": "k",
            "image": "image",
            "command": ["true"],
            "timeout": 600,
            "split": {"workers": 3, "units": {"list": [1, 2, 3]}},
        }
    )
    plan = TaskPlan(
        pods=3, split=True, memory=2**28, retry_memory=2**29, coordinator_merges=True, image="image"
    )
    made = RunRecord(id="r1", times=RunTimes(created=0)).changed(**record)
    return to_argo(made.with_workflow(workflow), {"sweep": plan}, {"k": kind}, ClusterConfig())


def test_every_name_that_a_backend_sets_is_one_of_the_contract() -> None:
    text = json.dumps(one_split_task())
    env = {
        item["name"]
        for template in one_split_task()["spec"]["templates"]
        for item in template.get("container", {}).get("env", [])
    }
    assert {name for name in env if name.startswith("SIMRUN_")} <= {*REQUIRED, *OPTIONAL}
    assert set(REQUIRED) <= env
    assert "SIMRUN_MEMORY_PER_WORKER_GB" in text


# --- exit codes, and what is retried -------------------------------------------------------------------------------------


def test_the_exit_codes_of_the_harness() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "BAD_SETTINGS": 2,
        "FAILED": 3,
        "STORE": 6,
        "MEMORY": 137,
        "TERMINATED": 143,
    }


def test_what_argo_retries_and_how_often() -> None:
    [strategy] = [
        template["retryStrategy"]
        for template in one_split_task(max_evictions=5)["spec"]["templates"]
        if "retryStrategy" in template
    ]
    assert strategy["expression"] == (
        'lastRetry.exitCode in ["-1", "137", "143", "6"] || lastRetry.status == "Error"'
    )
    assert strategy["retryPolicy"] == "Always"
    assert int(strategy["limit"]) == 12
    assert [protocol.retry_limit(evictions) for evictions in (0, 1, 5)] == [2, 4, 12]


def test_an_ordinary_failure_is_never_retried_by_argo() -> None:
    retried = set(protocol.ARGO_RETRIES)
    assert {str(int(code)) for code in Exit} & retried == {"6", "137", "143"}


# --- schemas of files ----------------------------------------------------------------------------------------------------

STORED: dict[str, type[BaseModel]] = {
    "run": RunRecord,
    "submission": Submission,
    "settings": TaskSettings,
    "report": WorkerReport,
    "attempt": AttemptEvidence,
    "observation": Observation,
    "launch-plan": LaunchPlan,
    "active": Active,
    "pause": Pause,
}
CHECKED = frozenset({"submission", "launch-plan"})
"""What may not hold just any text in its fields."""


def schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    """What a file of this model may hold: names, types and defaults, without prose."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            prose = {"description"} | ({"title"} if isinstance(value.get("title"), str) else set())
            return {key: bare(item) for key, item in value.items() if key not in prose}
        return [bare(item) for item in value] if isinstance(value, list) else value

    found: dict[str, Any] = bare(kind.model_json_schema(mode="serialization"))
    return found


@pytest.mark.parametrize("name", STORED)
def test_the_fields_of_a_stored_file_are_the_ones_written_down(name: str) -> None:
    """A difference is a change of the contract. One that is meant: SIMRUN_GOLDEN=write, and read the difference."""
    text = json.dumps(schema_of(STORED[name]), indent=1, sort_keys=True) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_schema_is_of_a_stored_file() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(STORED)


@pytest.mark.parametrize("name", STORED)
def test_every_field_of_a_stored_file_has_a_type(name: str) -> None:
    def untyped(schema: Any, place: str) -> list[str]:
        found = []
        for field, content in schema.get("properties", {}).items():
            known = {"type", "$ref", "anyOf", "const", "enum", "allOf"} & set(content)
            if not known:
                found.append(f"{place}{field}")
        for title, inner in schema.get("$defs", {}).items():
            found += untyped(inner, f"{title}.")
        return found

    assert untyped(schema_of(STORED[name]), "") == []


@pytest.mark.parametrize("name", STORED)
def test_the_schema_stands_in_every_file(name: str) -> None:
    assert schema_of(STORED[name])["properties"]["schema"] == {
        "const": 1,
        "default": 1,
        "type": "integer",
    }


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def values(annotation: Any, bounds: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """What a field of that type may hold."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        flat = [*inner[1:], *bounds]
        flat += [part for item in inner[1:] for part in getattr(item, "metadata", [])]
        return values(inner[0], tuple(flat))
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(item, bounds) for item in inner])
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(values(inner[0]), values(inner[1]), max_size=3)
    if annotation is Any:
        return JSON
    if annotation is float:
        low = next((item.gt for item in bounds if hasattr(item, "gt")), None)
        high = next((item.le for item in bounds if hasattr(item, "le")), None)
        floats = st.floats(low, high, allow_nan=False, allow_infinity=False)
        return floats if low is None else floats.filter(lambda number: number > low)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return models(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return st.sampled_from(list(annotation))
    plain = {str: TEXT, int: st.integers(), bool: st.booleans(), type(None): st.none()}
    return plain[annotation]


def models(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Instances of a stored model; every field may be left to its default."""
    hints = typing.get_type_hints(kind, include_extras=True)
    required, optional = {}, {}
    for name, field in kind.model_fields.items():
        if name != "schema_" and not field.exclude:
            bucket = required if field.is_required() else optional
            bucket[name] = values(hints[name], tuple(field.metadata))
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind(**given))


@pytest.mark.parametrize("name", [name for name in STORED if name not in CHECKED])
def test_what_is_written_is_read_again_as_the_same(name: str) -> None:
    kind = STORED[name]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(model=models(kind))
    def round_trip(model: BaseModel) -> None:
        data = codec.encode(model)
        assert json.loads(data)["schema"] == 1
        assert data.endswith(b"\n")
        again = codec.decode(kind, data, PATH)
        assert again == model
        assert codec.encode(again) == data

    round_trip()


UNITS: list[dict[str, Any]] = [
    {"grid": {"a": [1, 2.5], "b": ["x", True, None]}},
    {"zip": {"a": [1, 2], "b": [3, 4]}},
    {"table": "points.csv"},
    {"lhs": {"n": 8, "ranges": {"a": {"low": 1, "high": 10, "log": True}}}},
    {"random": {"n": 3, "ranges": {"a": {"low": 0, "high": 9, "integer": True}}}},
    {"list": [{"a": 1}, "x", 3, [4]]},
    {"plugin": "tiles.py:tiles"},
]


def submission_of(units: dict[str, Any]) -> Submission:
    return Submission.model_validate(
        {
            "workflow": {
                "name": "everything",
                "tasks": {
                    "sweep": {
                        "type": "split",
                        "params": {"n": 3, "x": 0.5, "deep": {"a": [1, None, True, "é"]}},
                        "inputs": {"mesh": "./mesh.txt", "data": "snapshot:era5/1990"},
                    },
                    "plot": {"type": "whole", "inputs": {"map": "sweep.map"}, "after": ["sweep"]},
                },
            },
            "types": {
                "split": {
                    "image": "registry.test/sim:1",
                    "command": "run {params.n} > {outputs.map}",
                    "inputs": {"mesh": {"optional": True, "description": "a mesh"}, "data": {}},
                    "outputs": {"map": "map.npy"},
                    "stage": ["mesh"],
                    "params": {"n": 1},
                    "split": {
                        "workers": 4,
                        "units": units,
                        "replicates": 3,
                        "seed": {"base": 7, "across": "replicates"},
                    },
                    "merge": {"command": ["merge", "{{x}}"]},
                    "failures": {"allowed": "5%"},
                    "retries": 2,
                    "timeout": "1h30m",
                    "unit_timeout": "90s",
                    "grace": 45,
                    "resources": {
                        "cpu": 0.25,
                        "memory": "256Mi",
                        "retry_memory": "1.5GiB",
                        "scratch": "10G",
                        "nvidia.com/gpu": 1,
                    },
                    "env": {"A": "$(B)"},
                    "secret_env": {"TOKEN": {"secret": "s", "key": "k"}},
                    "node_selector": {"pool": "sims"},
                    "size_hint": "n",
                },
                "whole": {"build": {"context": "img"}, "plugin": "pkg.mod:plot", "inputs": ["map"]},
            },
            "request": {
                "group": "Team Ä",
                "owner": "ada",
                "name": "my run",
                "labels": {"project": "x"},
                "priority": "high",
                "reserve_node": True,
                "max_evictions": 0,
                "notify": {"webhook": "https://example.test/hook"},
            },
            "code": {"tiles.py": "ab" * 32},
        }
    )


@pytest.mark.parametrize("units", UNITS, ids=[next(iter(item)) for item in UNITS])
def test_a_submission_is_read_again_as_the_same(units: dict[str, Any]) -> None:
    made = submission_of(units)
    data = codec.encode(made)
    again = codec.decode(Submission, data, PATH)
    assert again == made
    assert codec.encode(again) == data
    assert again.types["split"].split is not None
    assert again.types["split"].split.units.kind == next(iter(units))


@pytest.mark.parametrize("allowed", [0, 1, 3, 0.05, 1.0])
def test_a_number_of_units_and_a_share_of_them_stay_apart(allowed: float) -> None:
    made = TaskType.model_validate({"command": ["x"], "failures": {"allowed": allowed}})
    data = json.dumps(made.model_dump(mode="json"))
    again = TaskType.model_validate_json(data).failures.allowed
    assert (again, type(again)) == (allowed, type(allowed))


@pytest.mark.parametrize("name", STORED)
def test_a_reader_refuses_the_schema_after_its_own_and_reads_the_one_before(name: str) -> None:
    kind = STORED[name]
    with pytest.raises(UnknownSchema, match="use a newer simrun"):
        codec.decode(kind, b'{"schema":2}', PATH)
    with pytest.raises(DamagedRecord) as caught:  # 0 is read, and an empty one is not complete
        codec.decode(kind, b'{"schema":0}', PATH)
    assert not isinstance(caught.value, UnknownSchema)


def test_a_record_of_schema_0_is_read() -> None:
    old = b'{"id":"r","plans":{"a":{"memory_gb":1.5,"retry_memory_gb":3}},"times":{"created":1}}'
    record = codec.decode(RunRecord, old, PATH)
    assert record.plans["a"] == TaskPlan(memory=3 * 2**29, retry_memory=3 * 2**30)


def test_a_record_takes_at_most_200_bytes_a_task() -> None:
    count = 1000
    names = [f"stability-map-{number:04}" for number in range(count)]
    plan = TaskPlan(
        pods=16,
        split=True,
        cpus=0.25,
        memory=268435456,
        retry_memory=1073741824,
        coordinator_merges=True,
    )

    def size(number: int) -> int:
        tasks = names[:number]
        record = RunRecord(
            id="01h00000000000000000000000",
            state=RunState.RUNNING,
            tasks=dict.fromkeys(tasks, TaskState.PREEMPTED),
            plans=dict.fromkeys(tasks, plan),
            oom_kills={f"{task}-w0": [0] for task in tasks[::20]},
            evictions={f"{task}-w0": 2 for task in tasks[::5]},
            times=RunTimes(created=1800000000.123456),
        )
        return len(codec.encode(record))

    assert (size(count) - size(0)) / count <= 200
    assert size(0) <= 400


# --- what the service writes and the harness reads, and the other way round ----------------------------------------------


def test_the_harness_reads_the_settings_that_the_service_writes() -> None:
    made = TaskSettings.model_validate(
        {
            "run": "r1",
            "task": "sweep",
            "type": "split",
            "command": ["run", "{params.n}"],
            "params": {"n": 3},
            "inputs": {"mesh": {"run": "tasks/sweep/in/mesh"}, "data": {"snapshot": "era5/1990"}},
            "outputs": {"map": "map.npy"},
            "stage": ["mesh"],
            "units": {"kind": "plugin", "plugin": {"file": "code/t.py", "function": "f"}},
            "merge": {"kind": "sum"},
            "failures_allowed": 0.25,
            "retries": 1,
            "unit_timeout_s": 90.0,
            "max_evictions": 3,
        }
    )
    read = harness_settings.parse(json.loads(codec.encode(made)))
    assert (read.run, read.task, read.type) == ("r1", "sweep", "split")
    assert (read.command, read.params) == (("run", "{params.n}"), {"n": 3})
    assert read.inputs["data"].snapshot
    assert read.units is not None
    assert read.units.plugin is not None
    assert (read.units.plugin.file, read.units.plugin.function) == ("code/t.py", "f")
    assert (read.merge.kind, read.failures_allowed, read.retries) == ("sum", 0.25, 1)
    assert (read.unit_timeout_s, read.unit_tries, read.max_evictions) == (90, 2, 3)


def test_the_harness_knows_every_field_of_settings_and_its_default() -> None:
    known = set(harness_settings.TaskSettings._fields)
    assert known == {name for name in TaskSettings.model_fields if name != "schema_"}
    least = TaskSettings(run="r1", task="sweep", type="k", command=["x"])
    read = harness_settings.parse(json.loads(codec.encode(least)))
    assert (read.failures_allowed, read.retries, read.unit_timeout_s) == (0, 0, None)
    assert (read.unit_tries, read.max_evictions, read.seed_base) == (2, 5, 0)
    assert (read.params, read.inputs, read.outputs, read.stage) == ({}, {}, {}, ())
    assert read.units is None


def test_the_service_reads_the_report_that_the_harness_writes_and_knows_all_of_it() -> None:
    env = environment.read({**REQUIRED, "SIMRUN_POD_UID": "uid"}, "worker")
    measured = {"cpu_s": 1.5, "memory": {"limit": 2**28, "peak": 2**27, "oom_kills": 1}}
    said = report.build(
        env,
        MemoryKillError("killed", ["last line"]),
        started=1.0,
        measured=measured,
        units={"done": 3, "failed": 1},
        merged=False,
    )
    assert set(said) <= {field.alias or name for name, field in WorkerReport.model_fields.items()}
    read = codec.decode(WorkerReport, json.dumps(said).encode(), PATH)
    assert (read.protocol, read.worker, read.attempt, read.pod_uid) == (1, "sweep-w0", 2, "uid")
    assert (read.exit_code, read.reason, read.memory.oom_kills) == (137, "oom", 1)
    assert (read.units.done, read.units.failed, read.tail) == (3, 1, ["last line"])
    assert controller.is_oom(read, 2, {})


# --- the protocols in code -----------------------------------------------------------------------------------------------


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_backend_protocol_has_these_calls() -> None:
    calls = {name: parameters(call) for name, call in vars(Backend).items() if name[0] != "_"}
    assert calls == {
        "submit": ["record", "plans", "types"],
        "status": ["name"],
        "stop": ["name", "now"],
        "delete": ["name"],
        "reserve": ["run"],
        "release": ["node", "run"],
        "queues": [],
        "logs": ["name", "worker", "attempt"],
        "events": [],
    }
    waits = {name for name, call in vars(Backend).items() if inspect.iscoroutinefunction(call)}
    assert waits == set(calls) - {"logs", "events"}


def test_what_a_backend_says_has_these_fields() -> None:
    assert list(BackendStatus.__dataclass_fields__) == ["phase", "message", "nodes", "uid"]
    assert list(Node.__dataclass_fields__) == ["phase", "attempts", "message"]
    assert set(Attempt.__dataclass_fields__) == {
        *("n", "phase", "reason", "exit_code", "oom", "message", "pod_uid", "node"),
        *("leaving", "preemptor"),
        *("created", "started", "ended", "memory", "enforced"),
        *("peak", "peak_unreclaimable", "cpu_s"),
    }


def test_the_controller_has_the_calls_of_its_reference() -> None:
    made = controller.Controller
    assert parameters(made.__init__)[:4] == ["store", "resources", "backend", "types"]
    assert {
        name: parameters(getattr(made, name))
        for name in (
            *("wake", "wait_for_wake", "start_submission", "in_flight", "close", "recover"),
            *("reconcile", "reconcile_run", "write_if_unchanged", "cancel", "settle"),
        )
    } == {
        "wake": [],
        "wait_for_wake": ["timeout_s"],
        "start_submission": ["run_id", "job"],
        "in_flight": ["run_id"],
        "close": [],
        "recover": [],
        "reconcile": [],
        "reconcile_run": ["run_id"],
        "write_if_unchanged": ["before", "after"],
        "cancel": ["run_id"],
        "settle": ["run_id"],
    }
    assert parameters(controller.task_states) == [
        *("workflow", "types", "status", "plans", "merge_state"),
    ]
    assert parameters(controller.is_oom) == ["report", "attempt", "kills"]
    assert parameters(controller.attempt_of) == ["name"]
    assert parameters(controller.task_plans) == ["record"]
    assert parameters(controller.has_merge_marker) == ["task_dir"]
    assert parameters(controller.closed)[:4] == ["record", "state", "tasks", "message"]
    assert parameters(decide) == ["view", "now"]
    assert {
        "record",
        "workflow",
        "types",
        "plans",
        "status",
        "markers",
        "reports",
        "in_flight",
    } <= (set(View.__dataclass_fields__))
    assert GONE is not None


def test_argo_has_the_calls_of_its_reference() -> None:
    assert parameters(to_argo) == ["record", "plans", "types", "config"]
    assert parameters(workflow_name) == ["run_id"]
    assert parameters(label_value) == ["text"]


@given(st.text())
@example("Team Ä")
def test_a_group_stands_in_labels_as_a_valid_value(group: str) -> None:
    value = label_value(group)
    assert 0 < len(value) <= 63
    assert value[0].isalnum()
    assert value[-1].isalnum()


# --- the page ------------------------------------------------------------------------------------------------------------


def test_the_page_names_everything_that_the_code_agrees_on() -> None:
    page = (Path(__file__).parent.parent / "docs" / "contract.md").read_text()
    words = {
        *(f"`{name}`" for name in (*REQUIRED, *OPTIONAL)),
        *(f"`{word}`" for word in (*RunState, *TaskState, *protocol.REASONS, *Phase)),
        *(f"| {int(code)} |" for code in Exit),
        *(f"`…/{place}" for name, place in TASK_LAYOUT.items() if name != "inputs"),
        *(f"`runs/<run>/{place}" for name, place in RUN_LAYOUT.items() if name != "tasks"),
        *(f"`{place}" for place in STORE_LAYOUT.values()),
        *(
            f"`{name}("
            for name, call in vars(Backend).items()
            if inspect.isfunction(call) and name[0] != "_"
        ),
        *(f"`{name}`" for name in RunRecord.model_fields if name not in ("schema_", "workflow")),
        'lastRetry.exitCode in ["-1", "137", "143", "6"] || lastRetry.status == "Error"',
    }
    assert {word for word in words if word not in page} == set()


def test_every_ruling_that_the_code_cites_is_written_down() -> None:
    root = Path(__file__).parent.parent
    known = set(
        re.findall(r"^\*\*(\d+b?)\.", (root / "docs" / "rulings.md").read_text(), re.MULTILINE)
    )
    cited: set[str] = set()
    for path in (root / "simrun").rglob("*.py"):
        for found in re.findall(r"Rulings? ((?:\d+b?(?:, | and )?)+)", path.read_text()):
            cited |= set(re.findall(r"\d+b?", found))
    assert {"17b", "23", "24", "25", "34", "35", "39"} <= known
    assert cited <= known
