"""A year of a scheduler in minutes: many schedules in many zones, crashes, lost snapshots, clocks that are set; and what should come of it.

Plans, runs and files are in memory, time is moved by hand, chance comes from a seed. What should come of it is found by walking through all
quarters of an hour of the year in every zone, by the rule that an instant counts when the clock on the wall there matches, and by nothing of the
scheduler or its cron engine. All minutes of the expressions are quarters of an hour, so the walk misses none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from simrun.model.launchplan import instant_of
from simrun.scheduler.ports import ActiveSchedule
from simrun.scheduler.scheduler import Scheduler
from tests.scheduler.world import World, plan

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "America/St_Johns",
    "America/Havana",
    "Africa/Cairo",
    "Pacific/Chatham",
    "America/Sao_Paulo",
    "Asia/Tokyo",
    "Europe/London",
    "America/Los_Angeles",
    "Australia/Sydney",
    "Pacific/Auckland",
    "Asia/Jerusalem",
    "Africa/Casablanca",
    "America/Santiago",
    "Pacific/Kiritimati",
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
_FULL = (range(60), range(24), range(1, 32), range(1, 13), range(7))


@dataclass(frozen=True)
class Planned:
    """A schedule of the year: its fields as sets, or its rate; and when it is active."""

    name: str
    zone: str
    text: str
    fields: tuple[frozenset[int], ...] | None
    rate: timedelta | None
    spans: tuple[tuple[datetime, datetime], ...]
    """From each activation to the deactivation after it."""

    def active(self, version: int) -> ActiveSchedule:
        """Give it as the scheduler sees it in one of its spans."""
        how = {"cron": self.text, "timezone": self.zone} if self.fields else {"every": self.text}
        return plan(
            self.name,
            activated=self.spans[version][0],
            version=str(version),
            catch_up_cap=100_000,
            **how,
        )


@dataclass(frozen=True)
class Shape:
    """How large the year is."""

    schedules: int = 500
    zones: int = len(ZONES)
    days: int = 365
    crashes: int = 150
    steps: int = 40


@dataclass
class Result:
    """What came of it."""

    expected: set[tuple[str, datetime]]
    made: set[tuple[str, datetime]]
    runs: int
    starts: int
    tries: int
    """How often a run was asked for; those above the runs were there already."""
    log: list[str] = field(default_factory=list)


# --- what should come ------------------------------------------------------------------------------------------------------


def expected(schedules: list[Planned], end: datetime) -> set[tuple[str, datetime]]:
    """Walk through the year."""
    found: set[tuple[str, datetime]] = set()
    for zone in {item.zone for item in schedules}:
        walls = list(_walls(ZoneInfo(zone), end))
        for item in schedules:
            if item.zone == zone and item.fields is not None:
                found |= {(item.name, instant) for instant in _matching(item, walls)}
    for item in schedules:
        if item.rate is not None:
            for begin, until in item.spans:
                instant = begin + item.rate
                while instant <= min(until, end):
                    found.add((item.name, instant))
                    instant += item.rate
    return found


def _walls(zone: ZoneInfo, end: datetime) -> Iterator[tuple[datetime, tuple[int, ...]]]:
    instant = BEGIN
    while instant <= end:
        wall = instant.astimezone(zone)
        yield (
            instant,
            (wall.minute, wall.hour, wall.day, wall.month, wall.isoweekday() % 7),
        )
        instant += QUARTER


def _matching(item: Planned, walls: list[tuple[datetime, tuple[int, ...]]]) -> Iterator[datetime]:
    assert item.fields is not None
    minutes, hours, days, months, weekdays = item.fields
    either = len(days) < 31 and len(weekdays) < 7
    for instant, (minute, hour, day, month, weekday) in walls:
        if minute not in minutes or hour not in hours or month not in months:
            continue
        in_days, in_weekdays = day in days, weekday in weekdays
        on_day = (in_days or in_weekdays) if either else (in_days and in_weekdays)
        if on_day and any(begin < instant <= until for begin, until in item.spans):
            yield instant


# --- what happens ------------------------------------------------------------------------------------------------------------


def schedules(chance: random.Random, shape: Shape, end: datetime) -> list[Planned]:
    """Make schedules that fire about once a day, some much less and some more."""
    zones = ZONES[: shape.zones]
    return [_schedule(chance, f"plan-{index}", zones, end) for index in range(shape.schedules)]


def _schedule(chance: random.Random, name: str, zones: tuple[str, ...], end: datetime) -> Planned:
    minute, hour = chance.choice((0, 15, 30, 45)), chance.randrange(24)
    sets: list[frozenset[int] | None] = [frozenset({minute}), frozenset({hour}), None, None, None]
    kind = chance.randrange(9)
    if kind == 0:
        sets[4] = frozenset(chance.sample(range(7), 2))
    elif kind == 1:
        sets[2] = frozenset(chance.sample(range(1, 32), 3))
    elif kind == 2:
        sets[1] = frozenset(chance.sample(range(24), 4))
        sets[4] = frozenset({chance.randrange(7)})
    elif kind == 3:
        sets[2], sets[4] = frozenset({1, 15, 31}), frozenset({chance.randrange(7)})
    elif kind == 4:
        sets[0], sets[1] = frozenset({0, 15, 30, 45}), frozenset({1, 2, 3})
        sets[3] = frozenset({3, 4, 10, 11})
    elif kind == 5:
        sets[2], sets[3] = frozenset({29, 30, 31}), frozenset({2, 3, 5, 8})
    elif kind == 6:
        rate = timedelta(minutes=chance.choice((455, 1000, 1439, 1441, 4321)))
        text = f"{rate // timedelta(minutes=1)}m"
        return Planned(name, "UTC", text, None, rate, _spans(chance, end))
    words = ["*" if values is None else ",".join(map(str, sorted(values))) for values in sets]
    fields = tuple(
        frozenset(full) if values is None else values
        for values, full in zip(sets, _FULL, strict=True)
    )
    zone = chance.choice(zones)
    return Planned(name, zone, " ".join(words), fields, None, _spans(chance, end))


def _spans(chance: random.Random, end: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """Give when it is active: for ever, or with changes in the first and last weeks, in which no clock is wrong."""
    later = BEGIN + timedelta(seconds=chance.randrange(86400))
    never = end + timedelta(days=1)
    kind = chance.randrange(4)
    if kind == 0:
        return ((later, end - timedelta(days=chance.randrange(1, 9), seconds=7)),)
    if kind == 1:
        off = end - timedelta(days=chance.randrange(5, 9), seconds=11)
        return (later, off), (off + timedelta(hours=chance.randrange(1, 72)), never)
    return ((later, never),)


async def live(seed: int, shape: Shape) -> Result:
    """Let a year go by."""
    year = _Year(seed, shape)
    await year.go()
    made = {(item.plan.name, item.instant) for item in year.world.runs.made.values()}
    wanted = expected(year.planned, year.end)
    tries = len(year.world.runs.asked)
    return Result(wanted, made, len(year.world.runs.made), year.starts, tries, year.log)


class _Year:
    def __init__(self, seed: int, shape: Shape) -> None:
        self.chance = random.Random(seed)
        self.world = World(BEGIN.isoformat())
        self.end = BEGIN + timedelta(days=shape.days)
        self.planned = schedules(self.chance, shape, self.end)
        self.starts = 0
        self.log: list[str] = []
        self._wrong = 0.0
        """Seconds by which the wall clock is ahead."""
        self._old: list[str | None] = [None]
        self._events = sorted(self._changes() + self._crashes(shape) + self._steps(shape))

    def _changes(self) -> list[tuple[datetime, str, str]]:
        found = []
        for item in self.planned:
            for version, (begin, until) in enumerate(item.spans):
                found.append((begin, "activate", f"{item.name} {version}"))
                if until < self.end:
                    found.append((until, "deactivate", item.name))
        return found

    def _crashes(self, shape: Shape) -> list[tuple[datetime, str, str]]:
        span = (self.end - BEGIN).total_seconds()
        return [
            (BEGIN + timedelta(seconds=self.chance.uniform(0, span)), "crash", "")
            for _ in range(shape.crashes)
        ]

    def _steps(self, shape: Shape) -> list[tuple[datetime, str, str]]:
        """The clock is wrong for some hours, then right again; far from the weeks in which plans change."""
        found = []
        first, last = BEGIN + timedelta(days=32), self.end - timedelta(days=45)
        for index in range(shape.steps):
            at = first + (last - first) * (index + 0.5) / shape.steps
            seconds = self.chance.choice((3600, -3600, 30 * 86400, -30 * 86400))
            hours = self.chance.uniform(0.5, 20)
            found.append((at, "step", str(seconds)))
            found.append((at + timedelta(hours=hours), "step", str(-seconds)))
        return found

    async def go(self) -> None:
        """Go through the events; between two crashes one scheduler runs."""
        events = iter([*self._events, (self.end, "end", "")])
        over = False
        while not over:
            over = await self._one_life(events)

    async def _one_life(self, events: Iterator[tuple[datetime, str, str]]) -> bool:
        """Start a scheduler, and let it live up to a crash or the end; whether it was the end."""
        self.starts += 1
        async with self.world.working() as scheduler:
            if self.chance.random() < 0.3:
                # Killed in the midst of the catch-up
                for _ in range(self.chance.randrange(30)):
                    await asyncio.sleep(0)
                await scheduler.save_progress()
                if self.chance.random() < 0.5:
                    return False
            for at, what, detail in events:
                await self._until(scheduler, at)
                if what == "crash":
                    break
                if what == "end":
                    return True
                await self._happen(scheduler, what, detail)
        await self._be_away(events)
        self._lose_something()
        return False

    async def _until(self, scheduler: Scheduler, at: datetime) -> None:
        await self.world.until(scheduler, at + timedelta(seconds=self._wrong))
        if self.chance.random() < 0.5:
            await scheduler.save()
            self._old.append(self.world.notes.snapshot)

    async def _happen(self, scheduler: Scheduler, what: str, detail: str) -> None:
        key = self._change(what, detail)
        if key is not None:
            await scheduler.notify(key)

    def _change(self, what: str, detail: str) -> str | None:
        """Do what happens to plans and clocks; the plan that changed."""
        self.log.append(f"{instant_of(self.world.time.wall())} {what} {detail}")
        plans = self.world.plans
        if what == "step":
            self.world.time.step(float(detail))
            self._wrong += float(detail)
            return None
        name, _, version = detail.partition(" ")
        key = f"lab.{name}"
        if what == "activate":
            item = next(item for item in self.planned if item.name == name)
            plans.put(item.active(int(version)))
        elif key in plans.active:
            plans.remove(key)
        return key

    async def _be_away(self, events: Iterator[tuple[datetime, str, str]]) -> None:
        """Nothing runs for a while; plans and clocks change all the same, in their order."""
        for _ in range(self.chance.randrange(3)):
            event = next(events, None)
            if event is None:
                return
            at, what, detail = event
            left = at.timestamp() + self._wrong - self.world.time.wall()
            self.world.time.advance(max(0.0, left))
            if what in ("deactivate", "end"):
                # What was missed of a plan that is not active any more is not made up for, so somebody must be there
                async with self.world.working() as scheduler:
                    await self.world.until(scheduler, at + timedelta(seconds=self._wrong))
            if what == "end":
                return
            if what != "crash":
                self._change(what, detail)

    def _lose_something(self) -> None:
        """Sometimes the snapshot is gone or old, sometimes the notes of the catch-up are."""
        if self.chance.random() < 0.1:
            self.world.notes.snapshot = self.chance.choice(self._old[-20:])
        if self.chance.random() < 0.3:
            self.world.notes.progress.clear()
