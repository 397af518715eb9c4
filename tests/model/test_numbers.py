"""Numbers that JSON has no word for: refused where they come in, with the field, whoever builds the models."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from simrun.model.faults import dotted
from simrun.model.scalars import DEPTH_MAX
from simrun.model.tasktype import TaskType
from simrun.model.wording import faults_of
from simrun.model.workflow import Workflow

INF, NAN = float("inf"), float("nan")


def units(**kind: Any) -> dict[str, Any]:
    return {"split": {"workers": 1, "units": kind}}


@pytest.mark.parametrize(
    ("update", "places"),
    [
        ({"params": {"x": INF, "deep": {"a": [1, NAN]}}}, ["params.x", "params.deep.a[1]"]),
        (units(list=[-INF, {"a": NAN}]), ["split.units.list[0]", "split.units.list[1].a"]),
        (units(grid={"a": [1, NAN]}), ["split.units.grid.a[1]"]),
        (units(zip={"a": [INF]}), ["split.units.zip.a[0]"]),
        (
            units(lhs={"n": 2, "ranges": {"a": {"low": 0, "high": INF}}}),
            ["split.units.lhs.ranges.a.high"],
        ),
        ({"timeout": INF, "grace": NAN}, ["timeout", "grace"]),
        ({"resources": {"cpu": INF, "memory": INF}}, ["resources.cpu", "resources.memory"]),
    ],
)
def test_a_type_with_a_number_that_is_not_finite_is_refused_at_each_field(
    update: dict[str, Any], places: list[str]
) -> None:
    assert refused_at(TaskType, {"command": ["x"], **update}) == places


def test_a_parameter_of_a_task_that_is_not_finite_is_refused_at_its_field() -> None:
    tasks = {"a": {"type": "t", "params": {"x": NAN}}, "b": {"type": "t", "params": {"x": 1e308}}}
    assert refused_at(Workflow, {"tasks": tasks}) == ["tasks.a.params.x"]


def test_a_parameter_that_is_nested_too_deeply_is_refused_at_its_field() -> None:
    deep: list[Any] = []
    for _ in range(DEPTH_MAX):
        deep = [deep]
    Workflow.model_validate({"tasks": {"a": {"type": "t", "params": {"x": deep[0]}}}})
    tasks = {"a": {"type": "t", "params": {"x": deep}}}
    with pytest.raises(ValidationError) as caught:
        Workflow.model_validate({"tasks": tasks})
    (fault,) = faults_of(caught.value.errors(), model=Workflow, data={"tasks": tasks})
    assert (dotted(fault.path), fault.message) == (
        "tasks.a.params.x",
        f"is nested deeper than {DEPTH_MAX} levels",
    )


def refused_at(model: type[BaseModel], data: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    faults = faults_of(caught.value.errors(), model=model, data=data)
    assert all("finite" in fault.message for fault in faults)
    return [dotted(fault.path) for fault in faults]
