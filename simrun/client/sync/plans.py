# Made from simrun/client/plans.py by `python -m tests.client.generate`; a test holds it to that
"""PlanCalls of Client, each the call of the same name of AsyncClient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from simrun.client.sync.blocking import Blocking
from simrun.model.launchplan import Active, LaunchPlan, Schedule, Settings
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import Attachment

if TYPE_CHECKING:
    from simrun.service.api.launch_plans import PlanDetail, PlanPage, PlanSummary
    from simrun.service.api.pauses import PauseState
    from simrun.service.api.plan_diff import Diff
    from simrun.service.api.schedules import Preview, SchedulesState
    from simrun.service.backfill import BackfillPage
    from simrun.service.schedule_view import ScheduleView


class PlanCalls(Blocking):
    """/api/v1/launch-plans and /schedules. A plan without a group is that of the caller's only group, or of `default`."""

    def create_plan(
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
        return self._wait(
            self._client.create_plan(
                name,
                submission,
                attachments,
                version=version,
                description=description,
                defaults=defaults,
                fixed=fixed,
                schedule=schedule,
            )
        )

    def plans(
        self, *, group: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> PlanPage:
        """Give a page of launch plans, by group and name."""
        return self._wait(self._client.plans(group=group, limit=limit, cursor=cursor))

    def all_plans(self, *, group: str | None = None) -> Iterator[PlanSummary]:
        """Yield all launch plans, page by page."""
        return self._each(self._client.all_plans(group=group))

    def plan(self, name: str, *, group: str | None = None) -> PlanDetail:
        """Give a launch plan with its versions. Raises NotFound."""
        return self._wait(self._client.plan(name, group=group))

    def plan_version(self, name: str, version: str, *, group: str | None = None) -> LaunchPlan:
        """Give all of a version. Raises NotFound."""
        return self._wait(self._client.plan_version(name, version, group=group))

    def diff_plan(
        self,
        name: str,
        *,
        before: str | None = None,
        after: str | None = None,
        group: str | None = None,
    ) -> Diff:
        """Say how two versions differ; the active one and the one before it where none are named. Raises NotFound."""
        return self._wait(self._client.diff_plan(name, before=before, after=after, group=group))

    def activate_plan(self, name: str, version: str, *, group: str | None = None) -> Active:
        """Make a version the active one. Raises NotFound, InvalidInput for one that can't be run or never fires."""
        return self._wait(self._client.activate_plan(name, version, group=group))

    def deactivate_plan(self, name: str, *, group: str | None = None) -> Active:
        """Let no version be active. Raises NotFound."""
        return self._wait(self._client.deactivate_plan(name, group=group))

    def delete_plan(self, name: str, version: str, *, group: str | None = None) -> None:
        """Delete a version. Raises NotFound, Conflict for the active one."""
        return self._wait(self._client.delete_plan(name, version, group=group))

    def launch_plan(
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
        return self._wait(
            self._client.launch_plan(
                name,
                version=version,
                settings=settings,
                run_name=run_name,
                labels=labels,
                run_id=run_id,
                group=group,
            )
        )

    def schedule(
        self, name: str, *, following: int = 5, last: int = 5, group: str | None = None
    ) -> ScheduleView:
        """Say when a plan runs next, and what became of its last instants. Raises NotFound."""
        return self._wait(self._client.schedule(name, following=following, last=last, group=group))

    def pause_schedule(self, name: str, *, group: str | None = None) -> PauseState:
        """Fire nothing of a schedule until it is resumed. Raises NotFound."""
        return self._wait(self._client.pause_schedule(name, group=group))

    def resume_schedule(self, name: str, *, group: str | None = None) -> PauseState:
        """End the pause of a schedule. Raises NotFound."""
        return self._wait(self._client.resume_schedule(name, group=group))

    def pause_all_schedules(self) -> PauseState:
        """Fire nothing of any schedule until all are resumed. Raises Forbidden."""
        return self._wait(self._client.pause_all_schedules())

    def resume_all_schedules(self) -> PauseState:
        """End the pause of all schedules. Raises Forbidden."""
        return self._wait(self._client.resume_all_schedules())

    def schedules(self) -> SchedulesState:
        """Say how the scheduler of the server does."""
        return self._wait(self._client.schedules())

    def preview_schedule(
        self,
        expression: str,
        *,
        timezone: str | None = None,
        after: datetime | None = None,
        count: int = 5,
    ) -> Preview:
        """Say when an expression would fire after an instant, or from now on. Raises InvalidInput."""
        return self._wait(
            self._client.preview_schedule(expression, timezone=timezone, after=after, count=count)
        )

    def backfill(
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
        return self._wait(
            self._client.backfill(
                name,
                first,
                last,
                only_missing=only_missing,
                dry_run=dry_run,
                limit=limit,
                group=group,
            )
        )
