"""Versions of a launch plan, for the tests of its store."""

from __future__ import annotations

from typing import Any

from simrun.model.launchplan import LaunchPlan, Schedule
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Task, Workflow


def version(name: str, *, group: str = "lab", plan: str = "nightly", **values: Any) -> LaunchPlan:
    """Make a version; `fingerprint` follows from its description."""
    submission = Submission(
        workflow=Workflow(tasks={"only": Task(type="t", params={"depth": 1})}),
        types={"t": TaskType(command=["true"], params={"depth": 1})},
        request=RunRequest(group=group),
    )
    given: dict[str, Any] = {"schedule": Schedule(cron="@daily"), "created_at": 1.0, **values}
    given.setdefault("fingerprint", f"of {given.get('description', '')}")
    return LaunchPlan(group=group, name=plan, version=name, submission=submission, **given)
