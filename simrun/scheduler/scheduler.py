"""The scheduler: which instants are due, when, and that each gets its run once.

    start      the active plans are read, and the last snapshot
    catch-up   what was missed up to the start, by each schedule's policy, oldest first
    live       then timers run, from the instant of the start: what fell due during the catch-up is fired, not lost
    ticks      at the next instant, each second at the latest: the lanes that are due go to the workers
    snapshots  from the end of the catch-up on, each half minute
    watch      plans that were activated, deactivated, paused by another process

Nothing here decides whether a run exists: its id is a function of plan, version and instant, and the run store answers "exists already". So
everything may be done twice: by a second scheduler, after a crash, with a snapshot of last week.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from simrun.base.clock import Clock
from simrun.model.launchplan import instant_of, instant_text
from simrun.scheduler.firing import TRIES, Firing, may_go_on
from simrun.scheduler.history import History
from simrun.scheduler.lane import Lane
from simrun.scheduler.lanes import ON_TIME, Lanes
from simrun.scheduler.limiter import Limiter
from simrun.scheduler.ports import ActiveSchedule, Notes, PlanSource, Runs
from simrun.scheduler.states import LaneState, counted, state_of, trouble_of
from simrun.scheduler.statistics import SchedulerStatistics

log = logging.getLogger(__name__)

STEP_BACK: Final = timedelta(seconds=0.5)
"""A wall clock that goes back by more than this was set; by less it was slewed, and standing still for a moment does."""
TURN_S: Final = 0.005
"""How long a tick may keep the loop before it lets others have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """How fast, and how often. Times in seconds."""

    workers: int = 8
    rate: float = 50.0
    """Runs that all schedules together begin in a second, over more than the burst."""
    burst: int = 200
    tries: int = TRIES
    snapshot_every_s: float = 30.0
    watch_every_s: float = 5.0
    longest_sleep_s: float = 1.0
    """So that a clock that was set is noticed."""


class Scheduler:
    """Fires the schedules of the active launch plans. One event loop; nothing of it blocks."""

    def __init__(
        self,
        source: PlanSource,
        runs: Runs,
        notes: Notes,
        *,
        clock: Clock,
        random: Callable[[], float] = random_module.random,
        settings: SchedulerSettings | None = None,
    ) -> None:
        self._source, self._notes, self._clock = source, notes, clock
        self._settings = settings or SchedulerSettings()
        self._numbers = SchedulerStatistics()
        self._firing = Firing(
            source,
            runs,
            clock=clock,
            random=random,
            limiter=Limiter(self._settings.rate, self._settings.burst, clock),
            statistics=self._numbers,
            on_served=self._served,
            on_changed=self.apply,
            tries=self._settings.tries,
        )
        self._lanes = Lanes(self._firing.enqueue, self._numbers)
        self._boot = self._considered = self._now()
        self._on_time = ON_TIME
        self._turn = clock.monotonic()
        self._woken = asyncio.Event()
        self._to_be_saved = asyncio.Event()

    def _now(self) -> datetime:
        return instant_of(self._clock.wall())

    # --- life ------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start, and go on until cancelled; what goes wrong on the way is logged and tried again."""
        wait = 1.0
        self._numbers.last_tick_monotonic = self._clock.monotonic()
        while not self._numbers.started:
            try:
                await self.start()
            except OSError as error:
                log.warning("the schedules can't be read, again in %.0f s: %s", wait, error)
                await asyncio.sleep(wait)
                wait = min(30.0, 2 * wait)
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.workers):
                    group.create_task(self.work(), name=f"schedules {number}")
                group.create_task(self._tick_forever(), name="ticker")
                group.create_task(self._watch_forever(), name="watch of launch plans")
                group.create_task(self._save_forever(), name="snapshots")
        finally:
            await self._saved()

    async def work(self) -> None:
        """Fire what is handed over, until cancelled; `run` has several of these."""
        await self._firing.work()

    async def start(self) -> None:
        """Read what there is and begin the catch-up, which the workers do. Raises OSError."""
        plans = await self._source.load()
        snapshot, progress = await self._notes.load(), await self._notes.load_progress()
        # Now, and not before the plans were read: what was activated meanwhile has its activation before the start
        self._boot = self._considered = self._now()
        self._lanes.remember(snapshot)
        for key, plan in plans.items():
            self._lanes.catch_up(plan, self._boot, snapshot=snapshot, progress=progress.get(key))
            await self._let_others()
        self._numbers.started = True
        number = len(self._lanes.catching)
        log.info("%d schedules, %d of them catch up", len(plans), number)
        self._enter_live_when_caught_up()

    def _enter_live_when_caught_up(self) -> None:
        """Let live timers run once no catch-up is left; they go on from the start."""
        if self._numbers.live or self._lanes.catching or not self._numbers.started:
            return
        self._numbers.live = True
        # What fell due since the start is not missed, however long the catch-up took
        self._on_time = max(ON_TIME, self._now() - self._boot)
        self._lanes.enter_live()
        self._woken.set()
        self._to_be_saved.set()

    def _served(self, lane: Lane) -> None:
        """See whether the catch-up of a lane has ended: by its end, or because it can't go on and must not hold up the others."""
        if lane.plan.key in self._lanes.catching and not (lane.queued or may_go_on(lane)):
            self._lanes.catching.discard(lane.plan.key)
            self._enter_live_when_caught_up()

    # --- ticks -----------------------------------------------------------------------------------------------------------

    async def _tick_forever(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception:  # who asks whether it ticks is told
                log.exception("a tick failed")
            try:
                async with asyncio.timeout(self.sleep_s()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    def sleep_s(self) -> float:
        """Give the seconds until there is something to do."""
        waits = [self._settings.longest_sleep_s]
        if (release := self._firing.next_release()) is not None:
            waits.append(release - self._clock.monotonic())
        if self._numbers.live and (instant := self._lanes.next()) is not None:
            waits.append(instant.timestamp() - self._clock.wall())
        return max(0.0, min(waits))

    async def tick(self) -> None:
        """Hand over everything that is due now."""
        began = self._turn = self._clock.monotonic()
        now = self._now()
        self._firing.release()
        if self._numbers.live:
            if now < self._considered - STEP_BACK:
                log.warning(
                    "the clock went back from %s to %s; what was fired in between stays",
                    instant_text(self._considered),
                    instant_text(now),
                )
                self._considered = now
                await self._go_through(self._lanes.step_back(now))
            on_time, self._on_time = self._on_time, ON_TIME
            await self._go_through(self._lanes.tick(now, on_time))
            self._considered = max(self._considered, now)
        numbers, after = self._numbers, self._clock.monotonic()
        numbers.last_tick, numbers.last_tick_monotonic = now.timestamp(), after
        numbers.tick_s = after - began
        numbers.ticks += 1

    async def _go_through(self, steps: Iterable[None]) -> None:
        for _ in steps:
            await self._let_others()

    async def _let_others(self) -> None:
        """Give the loop to others when this has had it for long enough."""
        if self._clock.monotonic() - self._turn > TURN_S:
            await asyncio.sleep(0)
            self._turn = self._clock.monotonic()

    # --- plans that change -------------------------------------------------------------------------------------------------

    async def notify(self, key: str) -> None:
        """Look at one plan again: it was activated, deactivated, paused or resumed. Raises OSError."""
        self.apply(key, await self._source.look(key))

    async def notify_all(self) -> None:
        """Look at what has changed of all plans. Raises OSError."""
        for key, plan in (await self._source.changes()).items():
            self.apply(key, plan)

    def apply(self, key: str, plan: ActiveSchedule | None) -> None:
        """Take over what is active now of one plan; before the start has read them all, that does."""
        if self._numbers.started:
            self._lanes.apply(key, plan, self._now())
            self._enter_live_when_caught_up()
            self._woken.set()

    def forget(self, key: str) -> None:
        """Forget what became of the instants of a plan that was deleted."""
        self._lanes.forget(key)

    async def _watch_forever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.watch_every_s)
            try:
                await self.notify_all()
                await self.save_progress()
            except OSError as error:
                log.warning("the launch plans can't be looked at now: %s", error)

    # --- what is kept ------------------------------------------------------------------------------------------------------

    async def save_progress(self) -> None:
        """Write how far the catch-ups are: hints, from which a start after a crash goes on. Raises OSError."""
        for key in list(self._lanes.catching):
            lane = self._lanes.by_key.get(key)
            if lane is not None:
                await self._notes.save_progress(key, lane.record())

    async def _save_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.snapshot_every_s):
                    await self._to_be_saved.wait()
            except TimeoutError:
                pass
            self._to_be_saved.clear()
            await self._saved()

    async def _saved(self) -> None:
        try:
            await self.save()
        except OSError as error:
            log.warning("the snapshot can't be written, the next one will be: %s", error)

    async def save(self) -> None:
        """Write a snapshot, once live: before, it would deny what the catch-up has still to do. Raises OSError."""
        if not self._numbers.live:
            return
        # Taken first: a lane that goes on meanwhile is farther than this says, never less
        at = self._considered
        self._turn = self._clock.monotonic()
        await self._go_through(self._lanes.render())
        if not self._lanes.unsaved:
            return
        self._lanes.unsaved = False
        try:
            await self._notes.save(at, dict(self._lanes.records))
        except BaseException:
            self._lanes.unsaved = True
            raise
        if not self._numbers.snapshots:
            await self._notes.clear_progress()
        self._numbers.snapshots += 1
        self._numbers.last_snapshot = self._clock.wall()

    async def drain(self) -> None:
        """Wait until the workers have nothing left to do now."""
        await self._firing.drain()

    # --- what people see ---------------------------------------------------------------------------------------------------

    def state(self, key: str) -> LaneState | None:
        """Give one schedule as it is now; None when it is not active."""
        return state_of(self._lanes, self._firing, key)

    def history(self, key: str) -> History | None:
        """Give what became of the instants of a plan, active or not; None when nothing is known."""
        found = self._lanes.histories.get(key)
        return None if found is None else found.copy()

    @property
    def statistics(self) -> SchedulerStatistics:
        """The numbers, with those that are counted now."""
        return counted(self._numbers, self._lanes, self._firing)

    def trouble(self) -> list[str]:
        """Say what keeps schedules from being fired; empty when nothing does."""
        return trouble_of(self._numbers, self._firing, self._clock.monotonic())
