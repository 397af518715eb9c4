"""Which plans are active, by what the files say now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from simrun.aio.threads import Pool
from simrun.scheduler.active import CACHED_S, LOOK_AT_ALL_S, ActivePlans
from simrun.store.launch_plans import LaunchPlanStore, PlanPlace, Signature
from simrun.store.layout import StoreLayout
from simrun.store.pauses import ALL, Pauses
from tests.scheduler.world import Time, at
from tests.store.plans import version


class Here:
    def __init__(self, root: Path) -> None:
        self.time = Time("10:00")
        self.plans, self.pauses = LaunchPlanStore(root), Pauses(root)
        self.pool = Pool("files", 1)
        self.layout = StoreLayout(root)
        self.source = ActivePlans(self.plans, self.pauses, self.layout, self.pool, self.time)

    def activate(self, name: str = "1", plan: str = "nightly") -> None:
        self.plans.create(version(name, plan=plan, description=name))
        self.plans.activate("lab", plan, name, by="ana", now=self.time.wall())


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    found = Here(tmp_path)
    yield found
    found.pool.close()


async def test_the_schedules_of_active_plans_are_given(here: Here) -> None:
    here.activate()
    here.plans.create(version("1", plan="inactive"))
    here.plans.create(version("1", plan="plain", schedule=None))
    here.plans.activate("lab", "plain", "1", by="ana", now=1.0)
    found = await here.source.load()
    assert list(found) == ["lab.nightly"]
    (plan,) = found.values()
    assert (plan.group, plan.version, plan.activated) == ("lab", "1", at("10:00"))
    assert plan.timetable is not None
    assert await here.source.changes() == {}


async def test_only_what_has_changed_is_told(here: Here) -> None:
    here.activate()
    here.activate(plan="other")
    await here.source.load()
    here.activate("2")
    here.plans.deactivate("lab", "other", by="ana", now=2.0)
    changed = await here.source.changes()
    assert changed["lab.other"] is None
    assert changed["lab.nightly"] is not None
    assert changed["lab.nightly"].version == "2"
    assert await here.source.changes() == {}


async def test_without_the_hint_all_are_looked_at_now_and_then(here: Here) -> None:
    here.activate()
    await here.source.load()
    hint = here.layout.schedules_changed
    before = hint.stat()
    here.activate("2")
    hint.unlink()

    hint.touch()
    os.utime(hint, ns=(before.st_atime_ns, before.st_mtime_ns))
    here.source._hint = here.source._read_hint()  # as if it had been seen so
    assert await here.source.changes() == {}
    here.time.advance(LOOK_AT_ALL_S + 1)
    assert list(await here.source.changes()) == ["lab.nightly"]


class Cached(LaunchPlanStore):
    """As a client of a file server sees it that answers for a minute what it knew before."""

    def __init__(self, root: Path, time: Time) -> None:
        super().__init__(root)
        self.time = time
        self.known: dict[PlanPlace, tuple[float, Signature | None]] = {}

    def signature(self, place: PlanPlace) -> Signature | None:
        until, known = self.known.get(place, (0.0, None))
        if self.time.monotonic() < until:
            return known
        known = super().signature(place)
        self.known[place] = self.time.monotonic() + 60, known
        return known


async def test_what_a_cache_hid_when_the_hint_came_is_seen_a_minute_later(here: Here) -> None:
    here.activate()
    store = Cached(here.layout.root, here.time)
    source = ActivePlans(store, here.pauses, here.layout, here.pool, here.time)
    await source.load()
    here.activate("2")
    assert await source.changes() == {}

    here.time.advance(CACHED_S + 1)

    changed = (await source.changes())["lab.nightly"]
    assert changed is not None
    assert changed.version == "2"
    assert await source.changes() == {}


async def test_one_is_read_anew_each_time(here: Here) -> None:
    here.activate()
    await here.source.load()
    first = await here.source.look("lab.nightly")
    assert first is await here.source.look("lab.nightly")  # nothing was made anew for it
    here.plans.deactivate("lab", "nightly", by="ana", now=2.0)
    assert await here.source.look("lab.nightly") is None
    assert await here.source.look("lab.unknown") is None


async def test_a_peek_takes_nothing_from_those_who_wait_for_changes(here: Here) -> None:
    here.activate()
    await here.source.load()
    here.activate("2")
    peeked = await here.source.peek("lab.nightly")
    assert peeked is not None
    assert peeked.version == "2"
    assert list(await here.source.changes()) == ["lab.nightly"]


async def test_pauses_are_part_of_what_is_told(here: Here) -> None:
    here.activate()
    await here.source.load()
    here.pauses.pause("lab.nightly", by="ana", now=at("10:05").timestamp())
    here.pauses.pause(ALL, by="bob", now=at("10:06").timestamp())
    paused = (await here.source.changes())["lab.nightly"]
    assert paused is not None
    assert "paused by ana" in paused.paused
    assert "paused by bob" in paused.paused
    here.pauses.resume("lab.nightly", by="ana", now=at("10:07").timestamp())
    here.pauses.resume(ALL, by="bob", now=at("10:08").timestamp())
    resumed = (await here.source.changes())["lab.nightly"]
    assert resumed is not None
    assert (resumed.paused, resumed.since) == ("", at("10:08"))
    assert resumed.activated == at("10:00")


@pytest.mark.parametrize(
    ("file", "content", "trouble"),
    [
        ("active.json", "{", "activate one again"),
        ("active.json", '{"schema":1}', "activate one again"),
        ("1.json", "{", "activate another"),
        ("1.json", None, "no version '1'"),
    ],
)
async def test_what_can_not_be_read_is_in_trouble_and_no_other_is(
    here: Here, file: str, content: str | None, trouble: str
) -> None:
    here.activate()
    here.activate(plan="good")
    path = here.layout.launch_plan("lab", "nightly").root / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    found = await here.source.load()
    assert trouble in found["lab.nightly"].trouble
    assert found["lab.nightly"].timetable is None
    assert found["lab.good"].trouble == ""


async def test_a_file_of_another_plan_is_in_trouble(here: Here) -> None:
    here.activate()
    here.activate(plan="other")
    one, other = (
        here.layout.launch_plan("lab", name).version("1") for name in ("nightly", "other")
    )
    other.write_bytes(one.read_bytes())
    found = await here.source.load()
    assert "is that of plan 'nightly'" in found["lab.other"].trouble
