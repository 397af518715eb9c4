"""Firing: from an instant of a lane to its run, with as many tries as it takes.

Workers take lanes in turn and one instant of each, so that a schedule with a year to make up for does not stand before one that is due now.
An instant whose try failed waits beside its lane, which goes on: T2 may get its run before T1 does. A try that is under way, or waits for the next,
goes on when its schedule is removed; what was not begun does not.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from simrun.base.clock import Clock
from simrun.base.errors import Conflict, DamagedRecord, InvalidInput, NotFound
from simrun.model.launchplan import Overlap, instant_of, instant_text
from simrun.scheduler.history import Failure, Why
from simrun.scheduler.lane import Lane
from simrun.scheduler.limiter import Limiter
from simrun.scheduler.plan import Verdict, verdict
from simrun.scheduler.ports import ActiveSchedule, Outcome, PlanSource, PlanUnfit, Runs
from simrun.scheduler.statistics import SchedulerStatistics

log = logging.getLogger(__name__)

TRIES: Final = 30
"""Tries of an instant in all, as Flyte's scheduler has it."""
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 75.0
"""The waits double up to here; 29 of them are about 25 minutes."""
RETRYING_AT_MOST: Final = 50
"""Instants of one schedule that wait for another try; behind them the schedule itself waits, so that memory stays flat."""
LOOK_AGAIN_S: Final = 2.0
"""How often an instant that waits for the end of an earlier run looks for it."""
_TOLD: Final = (1, 5, 10, 20)
"""After how many tries the log is told, beside the last."""
_FOR_GOOD: Final = (InvalidInput, NotFound, DamagedRecord, Conflict)
"""What no further try would change."""


@dataclass(slots=True, eq=False)
class Fire:
    """One instant on its way to its run."""

    lane: Lane
    plan: ActiveSchedule
    instant: datetime
    missed: bool
    """Whether it was missed and is made up for now, so that its lateness says nothing of the scheduler."""
    tries: int = 0
    confirmed: bool = False
    """Whether its plan was found active right before."""
    retrying: bool = False
    error: str = ""
    next_try: float = 0.0
    """On the monotonic clock, while it waits for one."""


def wait_s(tries: int, random: float) -> float:
    """Give the seconds to wait after so many tries; `random` from 0 to 1 spreads them from half to one and a half."""
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (tries - 1)) * (0.5 + random)


class Firing:
    """The workers and what waits for them."""

    def __init__(
        self,
        source: PlanSource,
        runs: Runs,
        *,
        clock: Clock,
        random: Callable[[], float],
        limiter: Limiter,
        statistics: SchedulerStatistics,
        on_served: Callable[[Lane], None],
        on_changed: Callable[[str, ActiveSchedule | None], None],
        tries: int = TRIES,
    ) -> None:
        self._source, self._runs, self._clock, self._random = source, runs, clock, random
        self._limiter, self._statistics, self._tries = limiter, statistics, tries
        self._on_served, self._on_changed = on_served, on_changed
        self._queue: asyncio.Queue[Lane | Fire] = asyncio.Queue()
        self._timers: list[tuple[float, int, Fire]] = []
        self._order = itertools.count()
        self._busy: dict[int, float] = {}
        self.waiting: dict[Lane, list[Fire]] = {}
        """Fires that wait for another try, or for the end of an earlier run."""

    # --- queue and timers ------------------------------------------------------------------------------------------------

    def enqueue(self, lane: Lane) -> None:
        """Let a worker look at a lane that has something to fire."""
        if not lane.queued and may_go_on(lane):
            lane.queued = True
            self._queue.put_nowait(lane)

    def release(self) -> None:
        """Hand over what has waited long enough."""
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._queue.put_nowait(heapq.heappop(self._timers)[2])

    def next_release(self) -> float | None:
        """Give when something has waited long enough, on the monotonic clock."""
        return self._timers[0][0] if self._timers else None

    def busy_since(self) -> float | None:
        """Give since when the worker has been busy that has been for longest, on the monotonic clock."""
        return min(self._busy.values(), default=None)

    async def work(self) -> None:
        """Be a worker, until cancelled."""
        number = next(self._order)
        while True:
            item = await self._queue.get()
            self._busy[number] = self._clock.monotonic()
            try:
                await (self._attempt(item) if isinstance(item, Fire) else self._serve(item))
            except Exception:
                # One schedule's trouble must not stop the others
                log.exception("a worker of the scheduler met what it did not expect")
            finally:
                self._busy.pop(number, None)
                self._queue.task_done()

    async def drain(self) -> None:
        """Wait until the workers have nothing left to do now."""
        await self._queue.join()

    # --- one instant -----------------------------------------------------------------------------------------------------

    async def _serve(self, lane: Lane) -> None:
        try:
            instant = lane.take() if may_go_on(lane) else None
            if instant is not None:
                missed = instant <= lane.missed_until
                fire = Fire(lane, lane.plan, instant, missed)
                await self._limiter.take()
                await self._attempt(fire)
        finally:
            lane.queued = False
            self.enqueue(lane)
            self._on_served(lane)

    async def _attempt(self, fire: Fire) -> None:
        self._stop_waiting(fire)
        fire.tries += 1
        try:
            if not fire.confirmed and not await self._confirm(fire):
                self._land(fire)  # not active any more: as if it had never been due
                return
            if not await self._let_through(fire):
                return
            outcome = await self._runs.fire(fire.plan, fire.instant)
        except PlanUnfit as error:
            self._unfit(fire, str(error))
        except _FOR_GOOD as error:
            self._give_up(fire, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it may pass
            self._try_again(fire, error)
        else:
            self._done(fire, outcome)

    async def _confirm(self, fire: Fire) -> bool:
        """Whether the plan is active right now: by active.json, read anew."""
        plan = await self._source.look(fire.plan.key)
        if plan != fire.lane.plan:
            self._on_changed(fire.plan.key, plan)
        if plan is None or not plan.same_activation(fire.plan):
            return False
        if plan.trouble:
            raise PlanUnfit(plan.trouble)
        if plan.paused:
            fire.lane.history.lost(Why.PAUSED, 1, fire.instant, fire.instant, plan.paused)
            self._statistics.add_lost(Why.PAUSED, 1)
            return False
        fire.confirmed = True
        return True

    async def _let_through(self, fire: Fire) -> bool:
        """Do what the overlap policy says; whether the instant is to be fired now."""
        overlap = fire.plan.schedule.overlap
        if overlap is Overlap.ALLOW or await self._runs.exists(fire.plan, fire.instant):
            return True
        going = await self._runs.going(fire.plan, fire.instant)
        what = verdict(overlap, exists=False, earlier_is_running=bool(going))
        if what is Verdict.SKIP:
            fire.lane.history.lost(Why.OVERLAP, 1, fire.instant, fire.instant)
            self._statistics.add_lost(Why.OVERLAP, 1)
            self._land(fire)
            return False
        if what is Verdict.WAIT:
            fire.tries -= 1
            fire.confirmed = False
            fire.error = f"waits for the end of {going[0]}"
            fire.lane.held = True
            self._wait(fire, LOOK_AGAIN_S)
            return False
        if what is Verdict.CANCEL:
            for run_id in going:
                await self._runs.cancel(run_id)
        return True

    def _done(self, fire: Fire, outcome: Outcome) -> None:
        now = instant_of(self._clock.wall())
        fire.lane.history.fired(fire.instant, fire.plan.run_id(fire.instant), now, outcome)
        if outcome is Outcome.EXISTS:
            self._statistics.exists += 1
        else:
            self._statistics.created += 1
            if not fire.missed:
                late = (now - fire.instant).total_seconds()
                self._statistics.lateness.observe(max(0.0, late))
        self._land(fire)

    def _try_again(self, fire: Fire, error: Exception) -> None:
        self._statistics.failed_tries += 1
        if fire.tries >= self._tries:
            self._give_up(fire, error)
            return
        fire.error = _text(error)
        wait = wait_s(fire.tries, self._random())
        log.log(
            logging.WARNING if fire.tries in _TOLD else logging.DEBUG,
            "%s at %s: try %d of %d failed, again in %.1f s: %s",
            fire.plan.key,
            instant_text(fire.instant),
            fire.tries,
            self._tries,
            wait,
            fire.error,
        )
        if not fire.retrying:
            fire.retrying = True
            fire.lane.retrying += 1
        self._wait(fire, wait)

    def _give_up(self, fire: Fire, error: Exception) -> None:
        failure = Failure(
            instant=fire.instant,
            run=fire.plan.run_id(fire.instant),
            version=fire.plan.version,
            tries=fire.tries,
            error=_text(error),
            at=instant_of(self._clock.wall()),
        )
        log.error(
            "%s at %s is given up after %d tries: %s",
            fire.plan.key,
            instant_text(fire.instant),
            fire.tries,
            failure.error,
        )
        fire.lane.history.failed(failure)
        self._statistics.failed += 1
        self._land(fire)

    def _unfit(self, fire: Fire, trouble: str) -> None:
        """Fire nothing more of a plan that can't be run; what was due is noted."""
        log.error("%s fires nothing: %s", fire.plan.key, trouble)
        fire.lane.history.lost(Why.UNFIT, 1, fire.instant, fire.instant, trouble)
        self._statistics.add_lost(Why.UNFIT, 1 + fire.lane.turn_unfit(fire.plan, trouble))
        self._land(fire)

    def _land(self, fire: Fire) -> None:
        lane = fire.lane
        if fire.retrying:
            lane.retrying -= 1
        lane.held = False
        lane.landed(fire.instant)
        self.enqueue(lane)

    # --- waiting ---------------------------------------------------------------------------------------------------------

    def _wait(self, fire: Fire, seconds: float) -> None:
        fire.next_try = self._clock.monotonic() + seconds
        heapq.heappush(self._timers, (fire.next_try, next(self._order), fire))
        self.waiting.setdefault(fire.lane, []).append(fire)

    def _stop_waiting(self, fire: Fire) -> None:
        waiting = self.waiting.get(fire.lane)
        if waiting is not None and fire in waiting:
            waiting.remove(fire)
            if not waiting:
                del self.waiting[fire.lane]


def may_go_on(lane: Lane) -> bool:
    """Whether the next instant of a lane may be begun."""
    return bool(lane.windows) and lane.fires and not lane.held and lane.retrying < RETRYING_AT_MOST


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
