"""A store, and runs to put into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.store.runs import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "store")
    made.open()
    return made


@pytest.fixture
def submission() -> Submission:
    return Submission(
        workflow=Workflow(tasks={"only": Task(type="t")}), types={"t": TaskType(command=["true"])}
    )


@pytest.fixture
def new() -> Callable[..., RunRecord]:
    """Make the record of a run that does not exist yet."""

    def make(run_id: str = "run1", **values: Any) -> RunRecord:
        return RunRecord(id=run_id, times=RunTimes(created=1_800_000_000.0)).changed(**values)

    return make
