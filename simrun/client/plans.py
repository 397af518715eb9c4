"""Calls about launch plans and their schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import aiohttp

from simrun.base import ids
from simrun.base.clock import SystemClock
from simrun.client.runs import UPLOAD_S
from simrun.client.transport import CONNECT_S, Transport, api
from simrun.client.uploads import files_of_all, form
from simrun.model.launchplan import Active, LaunchPlan, Schedule, Settings, instant_text
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment

if TYPE_CHECKING:  # the server's side of HTTP takes half a second to import
    from simrun.service.api.launch_plans import PlanDetail, PlanPage, PlanSummary
    from simrun.service.api.pauses import PauseState
    from simrun.service.api.plan_diff import Diff
    from simrun.service.api.schedules import Preview, SchedulesState
    from simrun.service.backfill import BackfillPage
    from simrun.service.schedule_view import ScheduleView

_PLANS = "launch-plans"


class PlanCalls(Transport):
    """/api/v1/launch-plans and /schedules. A plan without a group is that of the caller's only group, or of `default`."""

    async def create_plan(
        self,
        name: str,
        submission: Submission,
        attachments: Sequence[Attachment] = (),
        *,
        version: str | None = None,
        description: str = "",
        defaults: Settings | None = None,
        fixed: Settings | None = None,
        schedule: Schedule | None = None,
    ) -> LaunchPlan:
        """Make a version of a launch plan, with the files of its workflow; the next number where no version is named.

        One that has the same content as the newest, or as the one that is named, is given as it is. Raises InvalidInput, Conflict.
        """
        from simrun.service.launchplans import NewPlan

        new = NewPlan(
            name=name,
            version=version,
            description=description,
            defaults=defaults or {},
            fixed=fixed or {},
            schedule=schedule,
        )
        documents = {
            "plan": new.model_dump_json(exclude_defaults=True),
            "submission": submission.model_dump_json(),
        }
        files = await files_of_all(attachments)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=UPLOAD_S)
        answer = await self._call(
            "POST",
            api(_PLANS),
            data=lambda: form(documents, files),
            timeout=timeout,
            repeatable=True,
        )
        return self._model(LaunchPlan, answer)

    async def plans(
        self, *, group: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> PlanPage:
        """Give a page of launch plans, by group and name."""
        from simrun.service.api.launch_plans import PlanPage

        query = {"limit": str(limit), "group": group, "cursor": cursor}
        answer = await self._call("GET", api(_PLANS), params=_given(query))
        return self._model(PlanPage, answer)

    async def all_plans(self, *, group: str | None = None) -> AsyncIterator[PlanSummary]:
        """Yield all launch plans, page by page."""
        cursor: str | None = None
        while True:
            page = await self.plans(group=group, limit=500, cursor=cursor)
            for plan in page.plans:
                yield plan
            cursor = page.cursor
            if cursor is None:
                return

    async def plan(self, name: str, *, group: str | None = None) -> PlanDetail:
        """Give a launch plan with its versions. Raises NotFound."""
        from simrun.service.api.launch_plans import PlanDetail

        answer = await self._call("GET", api(_PLANS, name), params=_given({"group": group}))
        return self._model(PlanDetail, answer)

    async def plan_version(
        self, name: str, version: str, *, group: str | None = None
    ) -> LaunchPlan:
        """Give all of a version. Raises NotFound."""
        path = api(_PLANS, name, "versions", version)
        return self._model(
            LaunchPlan, await self._call("GET", path, params=_given({"group": group}))
        )

    async def diff_plan(
        self,
        name: str,
        *,
        before: str | None = None,
        after: str | None = None,
        group: str | None = None,
    ) -> Diff:
        """Say how two versions differ; the active one and the one before it where none are named. Raises NotFound."""
        from simrun.service.api.plan_diff import Diff

        query = {"before": before, "after": after, "group": group}
        answer = await self._call("GET", api(_PLANS, name, "diff"), params=_given(query))
        return self._model(Diff, answer)

    async def activate_plan(self, name: str, version: str, *, group: str | None = None) -> Active:
        """Make a version the active one. Raises NotFound, InvalidInput for one that can't be run or never fires."""
        path = api(_PLANS, name, "versions", version, "activate")
        query = _given({"group": group})
        return self._model(Active, await self._call("POST", path, params=query, repeatable=True))

    async def deactivate_plan(self, name: str, *, group: str | None = None) -> Active:
        """Let no version be active. Raises NotFound."""
        path, query = api(_PLANS, name, "deactivate"), _given({"group": group})
        return self._model(Active, await self._call("POST", path, params=query, repeatable=True))

    async def delete_plan(self, name: str, version: str, *, group: str | None = None) -> None:
        """Delete a version. Raises NotFound, Conflict for the active one."""
        await self._call(
            "DELETE", api(_PLANS, name, "versions", version), params=_given({"group": group})
        )

    async def launch_plan(
        self,
        name: str,
        *,
        version: str | None = None,
        settings: Settings | None = None,
        run_name: str = "",
        labels: Mapping[str, str] | None = None,
        run_id: str | None = None,
        group: str | None = None,
    ) -> RunRecord:
        """Run a plan now: the active version, or the one that is named. Raises NotFound, InvalidInput, Conflict.

        Without `run_id` the client makes one, so that what is sent twice because a connection was cut is one run.
        """
        body: dict[str, Any] = {
            "version": version,
            "settings": settings,
            "name": run_name,
            "labels": labels,
            "id": run_id or ids.new_run_id(SystemClock().wall()),
        }
        answer = await self._call(
            "POST",
            api(_PLANS, name, "launch"),
            params=_given({"group": group}),
            json={key: value for key, value in body.items() if value},
            repeatable=True,
        )
        return self._model(RunRecord, answer)

    async def schedule(
        self, name: str, *, following: int = 5, last: int = 5, group: str | None = None
    ) -> ScheduleView:
        """Say when a plan runs next, and what became of its last instants. Raises NotFound."""
        from simrun.service.schedule_view import ScheduleView

        query = {"next": str(following), "last": str(last), "group": group}
        answer = await self._call("GET", api(_PLANS, name, "schedule"), params=_given(query))
        return self._model(ScheduleView, answer)

    async def pause_schedule(self, name: str, *, group: str | None = None) -> PauseState:
        """Fire nothing of a schedule until it is resumed. Raises NotFound."""
        return await self._pause(api(_PLANS, name, "pause"), group)

    async def resume_schedule(self, name: str, *, group: str | None = None) -> PauseState:
        """End the pause of a schedule. Raises NotFound."""
        return await self._pause(api(_PLANS, name, "resume"), group)

    async def pause_all_schedules(self) -> PauseState:
        """Fire nothing of any schedule until all are resumed. Raises Forbidden."""
        return await self._pause(api("schedules", "pause"), None)

    async def resume_all_schedules(self) -> PauseState:
        """End the pause of all schedules. Raises Forbidden."""
        return await self._pause(api("schedules", "resume"), None)

    async def _pause(self, path: str, group: str | None) -> PauseState:
        from simrun.service.api.pauses import PauseState

        query = _given({"group": group})
        return self._model(
            PauseState, await self._call("POST", path, params=query, repeatable=True)
        )

    async def schedules(self) -> SchedulesState:
        """Say how the scheduler of the server does."""
        from simrun.service.api.schedules import SchedulesState

        return self._model(SchedulesState, await self._call("GET", api("schedules")))

    async def preview_schedule(
        self,
        expression: str,
        *,
        timezone: str | None = None,
        after: datetime | None = None,
        count: int = 5,
    ) -> Preview:
        """Say when an expression would fire after an instant, or from now on. Raises InvalidInput."""
        from simrun.service.api.schedules import Preview

        query = {
            "expression": expression,
            "timezone": timezone,
            "after": None if after is None else instant_text(after),
            "count": str(count),
        }
        answer = await self._call("GET", api("schedules", "preview"), params=_given(query))
        return self._model(Preview, answer)

    async def backfill(
        self,
        name: str,
        first: datetime,
        last: datetime | None = None,
        *,
        only_missing: bool = False,
        dry_run: bool = False,
        limit: int = 100,
        group: str | None = None,
    ) -> BackfillPage:
        """Give the instants in [first, last], or from first up to now, their runs, at most `limit` in one call; the answer says where to go on.

        What has its run stays as it is, so this may be repeated. Raises NotFound, Conflict without an active schedule, InvalidInput.
        """
        from simrun.service.backfill import BackfillPage

        body = {
            "first": instant_text(first),
            "last": None if last is None else instant_text(last),
            "only_missing": only_missing,
            "dry_run": dry_run,
            "limit": limit,
        }
        answer = await self._call(
            "POST",
            api(_PLANS, name, "backfill"),
            params=_given({"group": group}),
            json=body,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=UPLOAD_S),
            repeatable=True,
        )
        return self._model(BackfillPage, answer)


def _given(query: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}
