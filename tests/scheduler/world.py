"""What tests of the scheduler work with: plans, runs and notes in memory, and time that a test moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from simrun.model.launchplan import Schedule, instant_of, instant_text
from simrun.scheduler.launch_plans import schedule_timetable
from simrun.scheduler.ports import ActiveSchedule, Outcome, schedule_key
from simrun.scheduler.scheduler import Scheduler, SchedulerSettings
from simrun.scheduler.snapshots import LaneRecord, Snapshot
from tests.service.world import FakeClock

FAST = SchedulerSettings(rate=float("inf"), longest_sleep_s=float("inf"))


def at(text: str) -> datetime:
    """Read an instant: `10:05` of 2026-03-02 (a Monday), or in full."""
    text = f"2026-03-02T{text}Z" if len(text) <= 15 and "T" not in text else text
    return datetime.fromisoformat(text).astimezone(UTC)


def told(instants: Iterable[datetime]) -> list[str]:
    """Give instants as short texts: 10:05, 10:05:30."""
    return [instant.strftime("%H:%M:%S").removesuffix(":00") for instant in instants]


class Time(FakeClock):
    """The clock of the tests, from an instant that is written out."""

    def __init__(self, now: str) -> None:
        super().__init__(at(now).timestamp())


def plan(
    name: str = "nightly",
    cron: str | None = None,
    *,
    activated: datetime,
    version: str = "1",
    group: str = "lab",
    **schedule: Any,
) -> ActiveSchedule:
    """Make an active schedule."""
    made = Schedule(cron=cron, **schedule)
    return ActiveSchedule(
        key=schedule_key(group, name),
        group=group,
        name=name,
        version=version,
        activated=activated,
        schedule=made,
        timetable=schedule_timetable(made, activated),
        since=activated,
    )


@dataclass
class Plans:
    """The active plans, and what a scheduler has not seen yet."""

    active: dict[str, ActiveSchedule] = field(default_factory=dict)
    unseen: dict[str, ActiveSchedule | None] = field(default_factory=dict)
    broken: int = 0
    """So many reads fail."""

    def put(self, *plans: ActiveSchedule) -> None:
        for item in plans:
            self.active[item.key] = self.unseen[item.key] = item

    def remove(self, key: str) -> None:
        del self.active[key]
        self.unseen[key] = None

    def change(self, key: str, **update: Any) -> None:
        self.put(replace(self.active[key], **update))

    async def load(self) -> Mapping[str, ActiveSchedule]:
        self._maybe_fail()
        self.unseen.clear()
        return dict(self.active)

    async def changes(self) -> Mapping[str, ActiveSchedule | None]:
        self._maybe_fail()
        seen, self.unseen = self.unseen, {}
        return seen

    async def look(self, key: str) -> ActiveSchedule | None:
        self._maybe_fail()
        return self.active.get(key)

    def _maybe_fail(self) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("the store does not answer")


@dataclass
class Made:
    """A run that was made."""

    plan: ActiveSchedule
    instant: datetime
    at: datetime


class Runs:
    """A run store in memory: a run exists once, whoever asks."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.made: dict[str, Made] = {}
        self.ended: set[str] = set()
        self.cancelled: list[str] = []
        self.asked: list[tuple[str, datetime]] = []
        """Every try, in order."""
        self.failing: dict[datetime, Exception] = {}
        """What a try at an instant meets."""
        self.failing_plans: dict[str, Exception] = {}
        self.gate: asyncio.Event | None = None
        """While it is there and not set, tries hang."""

    async def fire(self, plan: ActiveSchedule, instant: datetime) -> Outcome:
        self.asked.append((plan.key, instant))
        await asyncio.sleep(0)  # as any call of a real store
        if self.gate is not None:
            await self.gate.wait()
        if error := self.failing.get(instant) or self.failing_plans.get(plan.key):
            raise error
        run_id = plan.run_id(instant)
        if run_id in self.made:
            return Outcome.EXISTS
        self.made[run_id] = Made(plan, instant, instant_of(self._time.wall()))
        return Outcome.CREATED

    async def exists(self, plan: ActiveSchedule, instant: datetime) -> bool:
        return plan.run_id(instant) in self.made

    async def going(self, plan: ActiveSchedule, before: datetime) -> list[str]:
        return [
            run_id
            for run_id, made in self.made.items()
            if made.plan.key == plan.key and made.instant < before and run_id not in self.ended
        ]

    async def cancel(self, run_id: str) -> None:
        self.cancelled.append(run_id)
        self.ended.add(run_id)

    def instants(self, name: str = "nightly") -> list[datetime]:
        """The instants of the runs of a plan, in the order in which the runs were made."""
        return [made.instant for made in self.made.values() if made.plan.name == name]


class Notes:
    """Files in memory: what they hold is text, as on a disk."""

    def __init__(self) -> None:
        self.snapshot: str | None = None
        self.progress: dict[str, str] = {}

    async def load(self) -> Snapshot:
        return Snapshot() if self.snapshot is None else Snapshot.model_validate_json(self.snapshot)

    async def save(self, at: datetime, records: Mapping[str, str]) -> None:
        body = ",".join(f"{json.dumps(key)}:{record}" for key, record in records.items())
        self.snapshot = f'{{"at":"{instant_text(at)}","schedules":{{{body}}}}}'

    async def load_progress(self) -> Mapping[str, LaneRecord]:
        return {
            key: LaneRecord.model_validate_json(record) for key, record in self.progress.items()
        }

    async def save_progress(self, key: str, record: str) -> None:
        self.progress[key] = record

    async def clear_progress(self) -> None:
        self.progress.clear()


class World:
    """What outlives a scheduler, and the schedulers over it."""

    def __init__(self, now: str, settings: SchedulerSettings = FAST) -> None:
        self.time = Time(now)
        self.plans = Plans()
        self.runs = Runs(self.time)
        self.notes = Notes()
        self.settings = settings

    def scheduler(self) -> Scheduler:
        """Make a scheduler that has not started."""
        return Scheduler(
            self.plans,
            self.runs,
            self.notes,
            clock=self.time,
            random=lambda: 0.5,
            settings=self.settings,
        )

    @asynccontextmanager
    async def working(
        self, scheduler: Scheduler | None = None, *, start: bool = True, workers: int = 4
    ) -> AsyncIterator[Scheduler]:
        """A scheduler whose workers work; leaving is a crash: nothing is written."""
        made = scheduler or self.scheduler()
        if start:
            await made.start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(made.work()) for _ in range(workers)]
            try:
                yield made
            finally:
                for task in tasks:
                    task.cancel()

    async def until(self, scheduler: Scheduler, when: str | datetime) -> None:
        """Let time go on to an instant, stopping wherever the scheduler has something to do."""
        end = (at(when) if isinstance(when, str) else when).timestamp()
        while True:
            await scheduler.tick()
            await scheduler.drain()
            wait, left = scheduler.sleep_s(), end - self.time.wall()
            if left <= 0:
                return
            self.time.advance(min(max(wait, 1e-6), left))
