"""docs/reference/workflow.md has every key, and its example is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from simrun.model.load import load
from simrun.model.tasktype import FailurePolicy, Merge, Resources, Seed, Split, TaskType, Units
from simrun.model.wording import field_names
from simrun.model.workflow import Notify, RunRequest, Task
from simrun.worker import placeholders

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "workflow.md").read_text()


@pytest.mark.parametrize(
    "model",
    [TaskType, Task, RunRequest, Split, Seed, Units, Merge, FailurePolicy, Resources, Notify],
)
def test_every_key_is_described(model: type[BaseModel]) -> None:
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    described = " ".join(re.findall(r"`[^`]+`", prose))

    missing = [name for name in field_names(model) if not re.search(rf"\b{name}\b", described)]
    assert missing in ([], ["extended"])  # extended resources stand there under names of their own


def test_every_placeholder_is_described() -> None:
    for word in (*placeholders.WORDS, *(f"{space}." for space in placeholders.NAMESPACES)):
        assert f"{{{word}" in TEXT


def test_the_example_is_a_right_workflow() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)

    assert load(example, file="example.yaml").workflow.name == "random-walks"
