from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simrun.model.settings import TaskSettings as Model
from simrun.worker import environment, settings
from simrun.worker.endings import BadSettingsError, StoreError
from simrun.worker.environment import Environment

LEAST = {"schema": 1, "run": "r", "task": "t", "type": "ty", "command": ["true"]}


def env(root: Path, **more: str) -> Environment:
    told = {
        "SIMRUN_RUN": "r",
        "SIMRUN_TASK": "t",
        "SIMRUN_WORKER": "t-w0",
        "SIMRUN_ATTEMPT": "0",
        "SIMRUN_TASK_DIR": str(root / "runs" / "r" / "tasks" / "t"),
        **more,
    }
    return environment.read(told, "worker")


def test_what_the_model_writes_the_harness_reads_with_the_same_defaults() -> None:
    model = Model(
        run="r",
        task="t",
        type="ty",
        plugin={"file": "code/p.py", "function": "f"},  # type: ignore[arg-type]
        params={"x": [1, {"y": None}]},
        inputs={"a": {"run": "tasks/u/out/a"}, "b": {"snapshot": "s/b", "optional": True}},  # type: ignore[dict-item]
        outputs={"map": "map.npy"},
        stage=["a"],
        units={  # type: ignore[arg-type]
            "kind": "plugin",
            "plugin": {"module": "pkg.mod", "function": "units"},
            "replicates": 3,
            "seed_base": 9,
            "seed_across": "replicates",
        },
        merge={"kind": "sum"},  # type: ignore[arg-type]
        failures_allowed=0.25,
        unit_timeout_s=90,
    )
    read = settings.parse(json.loads(model.model_dump_json()))
    for name in ("run", "task", "type", "params", "outputs", "failures_allowed", "retries"):
        assert getattr(read, name) == getattr(model, name)
    for name in ("unit_timeout_s", "unit_tries", "max_evictions", "seed_base", "command"):
        assert getattr(read, name) == getattr(model, name)
    assert read.stage == ("a",)
    assert str(read.plugin) == "code/p.py:f"
    assert read.inputs["b"] == settings.InputRef("s/b", snapshot=True, optional=True)
    assert read.units == settings.UnitSource(
        settings.PluginRef("units", module="pkg.mod"), 3, 9, "replicates"
    )
    assert read.merge.kind == "sum"


def test_what_is_left_out_has_the_defaults_of_the_model() -> None:
    read, model = settings.parse(LEAST), Model(run="r", task="t", type="ty", command=["true"])
    names = ("failures_allowed", "retries", "unit_timeout_s", "unit_tries", "max_evictions")
    for name in (*names, "seed_base", "params", "units"):
        assert getattr(read, name) == getattr(model, name)
    assert read.merge.kind == "table"


def test_unknown_fields_are_ignored() -> None:
    assert settings.parse({**LEAST, "colour": "red"}) == settings.parse(LEAST)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"run": 3}, "run is 3; it must be text"),
        ({"task": None}, "task is not there; it must be text"),
        ({"schema": 99}, "schema is 99; it must be at most 1"),
        ({"command": None}, "exactly one of command and plugin"),
        ({"command": []}, "command is \\[\\]; it must be a list with at least"),
        ({"command": [1]}, "command is \\[1\\]; it must be a list of texts"),
        ({"retries": True}, "retries is true; it must be a whole number from 0"),
        ({"unit_tries": 0}, "unit_tries is 0; it must be a whole number from 1"),
        ({"unit_timeout_s": -2}, "unit_timeout_s is -2; it must be a number of seconds above 0"),
        ({"failures_allowed": 1.5}, "failures_allowed is 1.5; it must be a share"),
        ({"failures_allowed": "5%"}, "failures_allowed is '5%'; it must be a number of units"),
        ({"inputs": {"a": {}}}, "inputs.a.run is not there"),
        ({"inputs": {"a": 3}}, "inputs.a is 3; it must be an object"),
        ({"units": {}}, "units.kind is not there; it must be table or plugin"),
        ({"units": {"kind": "plugin"}}, "units.plugin is not there"),
        ({"units": {"kind": "table", "replicates": 0}}, "units.replicates is 0"),
        ({"merge": {"kind": "table", "command": ["x"]}}, "merge.kind"),
        ({"params": []}, "params is \\[\\]; it must be an object"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_it_must_be(
    change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadSettingsError, match=problem):
        settings.parse({**LEAST, **change})


def test_a_file_that_is_no_object_is_bad_settings() -> None:
    with pytest.raises(BadSettingsError, match=r"settings.json is \[\]"):
        settings.parse([])


def test_a_cut_file_is_bad_settings_and_a_missing_one_a_store_that_fails(tmp_path: Path) -> None:
    told = env(tmp_path)
    with pytest.raises(StoreError, match="is not there"):
        settings.load(told)
    told.task_dir.root.mkdir(parents=True)
    told.task_dir.settings.write_text('{"schema": 1, "ru')
    with pytest.raises(BadSettingsError, match="is no JSON"):
        settings.load(told)


def test_settings_of_another_task_are_refused(tmp_path: Path) -> None:
    told = env(tmp_path)
    told.task_dir.root.mkdir(parents=True)
    told.task_dir.settings.write_text(json.dumps({**LEAST, "task": "u"}))
    with pytest.raises(BadSettingsError, match="task is 'u', but the pod is of 't'"):
        settings.load(told)
