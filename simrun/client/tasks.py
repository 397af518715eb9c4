"""Calls about the tasks of a run, and what they used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from simrun.client.transport import Transport, api
from simrun.service.runreport import RunReport

if TYPE_CHECKING:  # the server's side of HTTP takes half a second to import
    from simrun.service.api.tasks import AttemptBody, TaskBody
    from simrun.store.unitlist import UnitRow


class TaskCalls(Transport):
    """/api/v1/runs/{run}/tasks and /report."""

    async def report(self, run_id: str) -> RunReport:
        """Give what a run used of what it was given. Raises NotFound."""
        return self._model(RunReport, await self._call("GET", api("runs", run_id, "report")))

    async def tasks(self, run_id: str) -> list[TaskBody]:
        """Give the tasks of a run with plan and progress, in the order of the workflow. Raises NotFound."""
        from simrun.service.api.tasks import TaskList

        return self._model(TaskList, await self._call("GET", api("runs", run_id, "tasks"))).tasks

    async def attempts(self, run_id: str, task: str) -> list[AttemptBody]:
        """Give the attempts of a task: what was seen of each, and what the harness said. Raises NotFound."""
        from simrun.service.api.tasks import AttemptList

        path = api("runs", run_id, "tasks", task, "attempts")
        return self._model(AttemptList, await self._call("GET", path)).attempts

    async def units(
        self, run_id: str, task: str, *, state: str | None = None
    ) -> AsyncIterator[UnitRow]:
        """Yield the units of a split task in the order of their numbers. state: only those in it. Raises NotFound."""
        from simrun.service.api.tasks import UnitPage

        after: int | None = -1
        while after is not None:
            params = {"after": str(after), "limit": "1000", **({"state": state} if state else {})}
            path = api("runs", run_id, "tasks", task, "units")
            page = self._model(UnitPage, await self._call("GET", path, params=params))
            for unit in page.units:
                yield unit
            after = page.after
