"""The runs of schedules: what the scheduler asks, answered from the run store.

Whether an instant has its run is asked of the store alone, never of the cluster: a run whose workflow was cleaned away long ago is there as well
as one that goes on, and the tombstone of a deleted one too. So an instant is fired once, whatever was lost meanwhile.
"""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from simrun.base.errors import Conflict, DamagedRecord, InvalidInput, NotFound
from simrun.model.launchplan import INSTANT_LABEL, PLAN_LABEL, VERSION_LABEL, instant_text
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.scheduler.launch_plans import scheduled_submission
from simrun.scheduler.ports import ActiveSchedule, Outcome, PlanUnfit
from simrun.service.attachments import Attachment, uploaded_attachments
from simrun.store.launch_plans import LaunchPlanStore
from simrun.worker import files

if TYPE_CHECKING:
    from simrun.service.session import Session

_ID_LENGTH: Final = 20
"""Characters of the id of a scheduled run, which begins with `f`."""


class ScheduledRuns:
    """See above; implements scheduler.ports.Runs."""

    def __init__(self, session: Session, plans: LaunchPlanStore) -> None:
        self._session, self._plans = session, plans
        self._owners: dict[str, tuple[str, str, str] | None] = {}
        """Of live runs: group, plan and instant; None for those of no schedule. None of that changes."""

    async def fire(self, plan: ActiveSchedule, instant: datetime) -> Outcome:
        """Make the run of an instant exist, and start it.

        Raises PlanUnfit, Conflict when the id stands for a run that is none of this schedule, InvalidInput for snapshots that are gone, OSError.
        """
        run_id = plan.run_id(instant)
        if await self.exists(plan, instant):
            return Outcome.EXISTS
        submission, attachments = await self._session.in_pool(self._submission, plan, instant)
        try:
            await self._session.submit(submission, attachments, run_id)
        except Conflict:
            # Made or deleted by somebody else since the look; anything else is a conflict indeed
            if await self._session.in_pool(self._there, plan, instant, listed=True):
                return Outcome.EXISTS
            raise
        return Outcome.CREATED

    async def exists(self, plan: ActiveSchedule, instant: datetime) -> bool:
        """Whether an instant has its run, or had it. Raises Conflict when its id stands for something else."""
        return await self._session.in_pool(self._there, plan, instant)

    async def going(self, plan: ActiveSchedule, before: datetime) -> list[str]:
        """Give the ids of the runs of earlier instants of a plan that have not ended, oldest first."""
        return await self._session.in_pool(self._going, plan, before)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run."""
        await self._session.cancel(run_id)

    # --- in threads ------------------------------------------------------------------------------------------------------

    def _there(self, plan: ActiveSchedule, instant: datetime, *, listed: bool = False) -> bool:
        run_id, store = plan.run_id(instant), self._session.store
        if os.path.lexists(store.layout.tombstone(run_id)) or (
            listed and run_id in files.listing(store.layout.deleted)
        ):
            return True
        try:
            record = store.read(run_id)
        except NotFound:
            return False
        except DamagedRecord:
            return True  # there was a run; that it can't be read is told where runs are
        if not is_of(record, plan, instant):
            raise Conflict(
                f"run {run_id} exists and is none of schedule {plan.name} at {instant_text(instant)}"
            )
        return True

    def _submission(
        self, plan: ActiveSchedule, instant: datetime
    ) -> tuple[Submission, list[Attachment]]:
        try:
            version = self._plans.read(plan.group, plan.name, plan.version)
            submission = scheduled_submission(version, instant)
            found = uploaded_attachments(submission, self._plans.files_of(version))
        except (NotFound, DamagedRecord, InvalidInput) as error:
            raise PlanUnfit(
                f"version {plan.version} of launch plan {plan.name} can't be run: {error}; activate a good version"
            ) from error
        # The files stay the plan's: they are copied
        return submission, [replace(item, ours=False) for item in found]

    def _going(self, plan: ActiveSchedule, before: datetime) -> list[str]:
        live = [run_id for run_id in self._session.store.live_ids() if _may_be_scheduled(run_id)]
        self._owners = {run_id: self._owners[run_id] for run_id in live if run_id in self._owners}
        latest, found = instant_text(before), []
        for run_id in live:
            owner = self._owners.get(run_id, ("", "", ""))
            if owner is None or (owner[0] and owner[:2] != (plan.group, plan.name)):
                continue
            try:
                record = self._session.store.read(run_id)
            except (NotFound, DamagedRecord):
                continue
            owner = self._owners[run_id] = _owner(record)
            if owner is None or owner[:2] != (plan.group, plan.name) or record.state.terminal:
                continue
            if owner[2] < latest:
                found.append((owner[2], run_id))
        return [run_id for _, run_id in sorted(found)]


def is_of(record: RunRecord, plan: ActiveSchedule, instant: datetime) -> bool:
    """Whether a run is that of an instant of a schedule: by what it says itself, as two plans may come to one id."""
    return record.labels.get(VERSION_LABEL) == plan.version and _owner(record) == (
        plan.group,
        plan.name,
        instant_text(instant),
    )


def _owner(record: RunRecord) -> tuple[str, str, str] | None:
    name, instant = record.labels.get(PLAN_LABEL), record.labels.get(INSTANT_LABEL)
    return None if name is None or instant is None else (record.group, name, instant)


def _may_be_scheduled(run_id: str) -> bool:
    return len(run_id) == _ID_LENGTH and run_id.startswith("f")
