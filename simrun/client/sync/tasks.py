# Made from simrun/client/tasks.py by `python -m tests.client.generate`; a test holds it to that
"""TaskCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simrun.client.sync.blocking import Blocking
from simrun.service.runreport import RunReport

if TYPE_CHECKING:
    from simrun.service.api.tasks import AttemptBody, TaskBody
    from simrun.store.unitlist import UnitRow


class TaskCalls(Blocking):
    """/api/v1/runs/{run}/tasks and /report."""

    def report(self, run_id: str) -> RunReport:
        """Give what a run used of what it was given. Raises NotFound."""
        return self._wait(self._client.report(run_id))

    def tasks(self, run_id: str) -> list[TaskBody]:
        """Give the tasks of a run with plan and progress, in the order of the workflow. Raises NotFound."""
        return self._wait(self._client.tasks(run_id))

    def attempts(self, run_id: str, task: str) -> list[AttemptBody]:
        """Give the attempts of a task: what was seen of each, and what the harness said. Raises NotFound."""
        return self._wait(self._client.attempts(run_id, task))

    def units(self, run_id: str, task: str, *, state: str | None = None) -> Iterator[UnitRow]:
        """Yield the units of a split task in the order of their numbers. state: only those in it. Raises NotFound."""
        return self._each(self._client.units(run_id, task, state=state))
