"""Schedules in this process: the scheduler over the session's store and runs, and what people do to schedules.

`simrun serve` runs it; other processes have it too, for launch plans that are only looked at. Everything that is changed here is written first and
told to the scheduler then, which reads it again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simrun.aio.threads import Pool
from simrun.base.clock import Clock
from simrun.model.launchplan import Active
from simrun.scheduler.active import ActivePlans
from simrun.scheduler.launch_plans import check_activation_of
from simrun.scheduler.ports import ActiveSchedule, schedule_key
from simrun.scheduler.scheduler import Scheduler, SchedulerSettings
from simrun.scheduler.snapshots import Snapshotter
from simrun.scheduler.statistics import SchedulerStatistics
from simrun.service.scheduled_runs import ScheduledRuns
from simrun.store.launch_plans import LaunchPlanStore
from simrun.store.pauses import ALL, Pause, Pauses

if TYPE_CHECKING:
    from simrun.service.session import Session


class Schedules:
    """The launch plans and schedules of a session."""

    def __init__(
        self,
        session: Session,
        pool: Pool,
        clock: Clock,
        settings: SchedulerSettings | None = None,
    ) -> None:
        root: Path = session.store.layout.root
        self._pool, self._clock = pool, clock
        self.plans = LaunchPlanStore(root)
        self.pauses = Pauses(root)
        self.runs = ScheduledRuns(session, self.plans)
        self._source = ActivePlans(self.plans, self.pauses, session.store.layout, pool, clock)
        self.scheduler = Scheduler(
            self._source, self.runs, Snapshotter(root, pool), clock=clock, settings=settings
        )
        self.running = False
        """Whether schedules are fired by this process."""

    async def run(self) -> None:
        """Fire schedules until cancelled."""
        self.running = True
        try:
            await self.scheduler.run()
        finally:
            self.running = False

    @property
    def statistics(self) -> SchedulerStatistics:
        """What the scheduler has done and is doing."""
        return self.scheduler.statistics

    def trouble(self) -> list[str]:
        """Say what keeps schedules from being fired; empty when nothing does, or when this process fires none."""
        return self.scheduler.trouble() if self.running else []

    async def look(self, group: str, name: str) -> ActiveSchedule | None:
        """Give the schedule of the active version of a plan, read anew; None when there is none."""
        return await self._source.peek(schedule_key(group, name))

    def monotonic(self) -> float:
        """Give the time on the clock that waits are told by."""
        return self._clock.monotonic()

    # --- which version is active -------------------------------------------------------------------------------------------

    async def activate(self, group: str, name: str, version: str, *, by: str) -> Active:
        """Make a version the active one. Raises NotFound, DamagedRecord, InvalidInput when it can't be run or never fires."""
        now = self._clock.wall()
        plan = await self._pool.run(self.plans.read, group, name, version)
        await self._pool.run(check_activation_of, plan, Active(activated_at=now).since)
        active = await self._pool.run(self.plans.activate, group, name, version, by=by, now=now)
        await self._tell(group, name)
        return active

    async def deactivate(
        self, group: str, name: str, *, by: str, version: str | None = None
    ) -> Active:
        """Let no version be active, or not this one. Raises NotFound."""
        now = self._clock.wall()
        active = await self._pool.run(
            self.plans.deactivate, group, name, by=by, now=now, version=version
        )
        await self._tell(group, name)
        return active

    async def delete(self, group: str, name: str, version: str) -> None:
        """Take a version away. Raises NotFound, Conflict for the active one."""
        await self._pool.run(self.plans.delete, group, name, version)
        if not await self._pool.run(self.plans.versions, group, name):
            self.scheduler.forget(schedule_key(group, name))

    # --- pauses --------------------------------------------------------------------------------------------------------------

    async def pause(self, group: str, name: str, *, by: str) -> Pause:
        """Fire nothing more of one schedule until it is resumed."""
        key = schedule_key(group, name)
        pause = await self._pool.run(self.pauses.pause, key, by=by, now=self._clock.wall())
        await self._tell(group, name)
        return pause

    async def resume(self, group: str, name: str, *, by: str) -> Pause | None:
        """End the pause of one schedule; what fell into it is not made up for."""
        key = schedule_key(group, name)
        pause = await self._pool.run(self.pauses.resume, key, by=by, now=self._clock.wall())
        await self._tell(group, name)
        return pause

    async def pause_all(self, *, by: str) -> Pause:
        """Fire nothing of any schedule until all are resumed."""
        pause = await self._pool.run(self.pauses.pause, ALL, by=by, now=self._clock.wall())
        await self.scheduler.notify_all()
        return pause

    async def resume_all(self, *, by: str) -> Pause | None:
        """End the pause of all schedules; those that were paused one by one stay so."""
        pause = await self._pool.run(self.pauses.resume, ALL, by=by, now=self._clock.wall())
        await self.scheduler.notify_all()
        return pause

    async def _tell(self, group: str, name: str) -> None:
        await self.scheduler.notify(schedule_key(group, name))
