"""Schedules over a real run store: each instant has its run once, whatever is lost between."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.scripted import ScriptedBackend
from simrun.base.errors import Conflict, InvalidInput, NotFound
from simrun.model.launchplan import INSTANT_LABEL, LaunchPlan, Schedule
from simrun.model.record import RunState
from simrun.scheduler.history import Why
from simrun.scheduler.scheduler import Scheduler, SchedulerSettings
from simrun.service.launchplans import NewPlan, create
from simrun.service.opening import open_session
from simrun.service.schedules import Schedules
from simrun.service.session import Session
from simrun.store.snapshots import SnapshotStore
from tests.scheduler.world import Time, at, told
from tests.service.world import PLAIN, submission

ONE_TASK = submission(
    {"only": {"type": "plain", "params": {"depth": 1, "when": "never"}}},
    {"plain": {**PLAIN, "inputs": [], "params": {"depth": 1, "when": "never"}}},
    group="lab",
)
FAST = SchedulerSettings(rate=float("inf"), longest_sleep_s=float("inf"))


@dataclass
class Here:
    """A session whose schedules a test drives."""

    session: Session
    backend: ScriptedBackend
    time: Time

    @property
    def schedules(self) -> Schedules:
        return self.session.schedules

    async def make(self, name: str = "nightly", /, **how: Any) -> LaunchPlan:
        """Make a version."""
        schedule = how.pop("schedule", {"cron": "*/5 * * * *"})
        new = NewPlan(name=name, schedule=schedule and Schedule(**schedule), **how)
        made = await self.session.in_pool(
            create,
            self.schedules.plans,
            SnapshotStore(self.session.store.layout),
            new,
            ONE_TASK,
            [],
            by="ana",
            now=self.time.wall(),
        )
        return made.plan

    async def activate(self, name: str = "nightly", version: str = "1") -> None:
        await self.schedules.activate("lab", name, version, by="ana")

    @asynccontextmanager
    async def firing(self) -> AsyncIterator[Scheduler]:
        """A scheduler as after a start; leaving it is a crash."""
        scheduler = Schedules(self.session, self.session._pool, self.time, FAST).scheduler
        self.session.schedules.scheduler = scheduler
        await scheduler.start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scheduler.work()) for _ in range(4)]
            try:
                yield scheduler
            finally:
                for task in tasks:
                    task.cancel()

    async def until(self, scheduler: Scheduler, when: str) -> None:
        """Let time go on to an instant."""
        end = at(when).timestamp()
        while True:
            await scheduler.tick()
            await scheduler.drain()
            left = end - self.time.wall()
            if left <= 0:
                return
            self.time.advance(min(max(scheduler.sleep_s(), 1e-6), left))

    def runs(self) -> dict[str, str]:
        """The runs by the instants that they are for."""
        records = [self.session.store.read(run_id) for run_id in self.session.store.run_ids()]
        found = {record.labels[INSTANT_LABEL][11:16]: record.id for record in records}
        assert len(found) == len(records)
        return dict(sorted(found.items()))


@asynccontextmanager
async def opened(tmp_path: Path, now: str = "09:58") -> AsyncIterator[Here]:
    backend, time = ScriptedBackend(), Time(now)
    async with open_session(
        tmp_path / "store", lambda _store, _pool: backend, clock=time
    ) as session:
        yield Here(session, backend, time)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with opened(tmp_path) as found:
        yield found


async def test_an_instant_becomes_a_run_with_the_settings_of_its_plan(here: Here) -> None:
    await here.make(
        defaults={"only": {"depth": 5}}, schedule={"cron": "0 10 * * *", "time_param": "only.when"}
    )
    await here.activate()
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")
    (run_id,) = here.runs().values()
    record, made = here.session.store.read(run_id), here.session.store.submission(run_id)
    assert run_id.startswith("f")
    assert (record.group, record.name) == ("lab", "nightly")
    assert record.labels == {
        "simrun/launch-plan": "nightly",
        "simrun/launch-plan-version": "1",
        "simrun/scheduled-at": "2026-03-02T10:00:00Z",
    }
    assert made.workflow.tasks["only"].params == {"depth": 5, "when": "2026-03-02T10:00:00Z"}
    while here.session.store.read(run_id).state is RunState.SUBMITTING:
        await asyncio.sleep(0.01)
    assert [call for call in here.backend.calls if call[0] == "submit"]


@pytest.mark.parametrize("variant", ["running", "finished", "its workflow was deleted", "deleted"])
async def test_a_run_whose_record_as_fired_was_lost_is_not_made_again(
    here: Here, variant: str
) -> None:
    await here.make()
    await here.activate()
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")  # and killed before any snapshot
    (run_id,) = here.runs().values()
    while here.session.store.read(run_id).state is RunState.SUBMITTING:
        await asyncio.sleep(0.01)
    if variant != "running":
        await here.session.cancel(run_id)
        while here.session.store.read(run_id).pending:
            await asyncio.sleep(0.01)
    if variant == "its workflow was deleted":
        here.backend.forget(here.session.store.read(run_id).workflow_name or "")
    if variant == "deleted":
        here.session.store.delete(run_id)
    calls = len(here.backend.calls)
    async with here.firing() as scheduler:
        await scheduler.drain()
        assert scheduler.statistics.exists == 1
        assert scheduler.statistics.created == 0
    assert list(here.runs().values()) == ([] if variant == "deleted" else [run_id])
    assert not [call for call in here.backend.calls[calls:] if call[0] == "submit"]


async def test_a_snapshot_that_is_lost_cut_old_or_new_doubles_and_loses_nothing(here: Here) -> None:
    await here.make()
    await here.activate()
    path = here.session.store.layout.scheduler / "snapshot.json"
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:06")
        await scheduler.save()
        old = path.read_bytes()
        await here.until(scheduler, "10:11")
        await scheduler.save()
    whole = path.read_bytes()
    newer = whole.replace(b'"schema":1', b'"schema":2')
    v0 = b'{"schema":0,"schedules":{"lab.nightly":"2026-03-02T10:05:00Z"}}\n'
    for content, looked_at in (
        (None, 3),
        (whole[: len(whole) // 2], 3),
        (b"", 3),
        (b"[]", 3),
        (newer, 3),
        (old, 1),
        (v0, 1),
        (whole, 0),
    ):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        async with here.firing() as scheduler:
            await scheduler.drain()
            assert (scheduler.statistics.exists, scheduler.statistics.created) == (looked_at, 0)
            await scheduler.save()
    assert list(here.runs()) == ["10:00", "10:05", "10:10"]
    kept = {item.read_bytes() for item in here.session.store.layout.damaged.iterdir()}
    assert kept == {whole[: len(whole) // 2], b"", b"[]", newer}


async def test_an_id_that_stands_for_something_else_is_a_failure_that_is_told(here: Here) -> None:
    await here.make()
    await here.activate()
    plan = (await here.schedules.scheduler._source.load())["lab.nightly"]
    taken = plan.run_id(at("10:00"))
    await here.session.submit(ONE_TASK, [], taken)
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:06")
        history = scheduler.history("lab.nightly")
    assert history is not None
    assert [failure.run for failure in history.failures] == [taken]
    assert "none of schedule nightly" in history.failures[0].error
    assert len(here.session.store.run_ids()) == 2


async def test_the_file_active_json_is_the_only_word(here: Here, tmp_path: Path) -> None:
    await here.make()
    await here.activate()
    other = here.schedules.plans.active("lab", "nightly")
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")
        here.schedules.plans.deactivate("lab", "nightly", by="another process", now=1.0)
        await here.until(scheduler, "10:20")
        assert scheduler.state("lab.nightly") is None
    assert other is not None
    assert list(here.runs()) == ["10:00"]


async def test_a_plan_activated_by_another_process_is_found_by_the_hint(here: Here) -> None:
    await here.make()
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")
        here.schedules.plans.activate("lab", "nightly", "1", by="other", now=here.time.wall())
        await scheduler.notify_all()
        await here.until(scheduler, "10:06")
    assert list(here.runs()) == ["10:05"]


async def test_a_plan_activated_while_nothing_ran_starts_at_its_activation(here: Here) -> None:
    await here.make()
    here.time.advance(60 * 13)
    await here.activate()  # 10:11
    here.time.advance(60 * 11)
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:26")
    assert list(here.runs()) == ["10:15", "10:20", "10:25"]


async def test_a_plan_deactivated_while_nothing_ran_fires_nothing(here: Here) -> None:
    await here.make()
    await here.activate()
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")
        await scheduler.save()
    await here.schedules.deactivate("lab", "nightly", by="ana")
    here.time.advance(3600)
    async with here.firing() as scheduler:
        await here.until(scheduler, "11:30")
    assert list(here.runs()) == ["10:00"]


async def test_activating_again_keeps_the_activation_and_misses_nothing(here: Here) -> None:
    await here.make()
    await here.activate()
    here.time.advance(60 * 12)
    await here.activate()
    async with here.firing() as scheduler:
        await scheduler.drain()
    assert list(here.runs()) == ["10:00", "10:05", "10:10"]


@pytest.mark.parametrize("spoilt", ["version", "active.json", "workflow", "never"])
async def test_a_plan_that_can_not_be_run_says_so_and_heals_by_activation(
    here: Here, spoilt: str
) -> None:
    await here.make()
    await here.make("good")
    await here.activate()
    await here.activate("good")
    place = here.session.store.layout.launch_plan("lab", "nightly")
    file = place.active if spoilt == "active.json" else place.version("1")
    good = file.read_text()
    file.write_text(
        {
            "version": good[:40],
            "active.json": "{",
            "workflow": good.replace('"type":"plain"', '"type":"gone"'),
            "never": good.replace("*/5 * * * *", "0 0 31 2 *"),
        }[spoilt]
    )
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:06")
        state = scheduler.state("lab.nightly")
        assert state is not None
        assert state.plan.trouble
        assert state.next is None
        assert scheduler.statistics.unfit == 1
        assert list(here.runs()) == ["10:00", "10:05"]  # the other's
        assert here.schedules.trouble() == []
        if spoilt in ("version", "workflow", "never"):
            file.write_text(good)
        await here.activate()
        await here.until(scheduler, "10:11")
        state = scheduler.state("lab.nightly")
        assert state is not None
        assert state.plan.trouble == ""
    names = [here.session.store.read(run).name for run in here.session.store.run_ids()]
    assert names.count("nightly") == 1
    assert names.count("good") == 3


async def test_a_schedule_that_never_fires_is_not_activated(here: Here) -> None:
    with pytest.raises(InvalidInput, match="never fires"):
        await here.make(schedule={"cron": "0 0 31 2 *"})
    with pytest.raises(InvalidInput, match="shorter than a minute"):
        await here.make(schedule={"every": "30s"})
    await here.make(schedule={"cron": "0 10 * * *", "not_after": at("09:59")})
    with pytest.raises(InvalidInput, match="no instant to come"):
        await here.activate()
    with pytest.raises(NotFound):
        await here.activate(version="7")


async def test_pauses_outlive_the_process_and_the_snapshot(here: Here) -> None:
    await here.make()
    await here.make("other")
    await here.activate()
    await here.activate("other")
    async with here.firing() as scheduler:
        await here.schedules.pause("lab", "nightly", by="ana")
        await here.until(scheduler, "10:06")
    async with here.firing() as scheduler:
        await scheduler.drain()
        state = scheduler.state("lab.nightly")
        assert state is not None
        assert "paused by ana" in state.plan.paused
        await here.schedules.pause_all(by="bob")
        await here.until(scheduler, "10:11")
        await here.schedules.resume("lab", "nightly", by="ana")
        await here.until(scheduler, "10:16")
        await here.schedules.resume_all(by="bob")
        await here.until(scheduler, "10:21")
        history = scheduler.history("lab.nightly")
    names = [here.session.store.read(run) for run in here.session.store.run_ids()]
    assert sorted(f"{record.name} {record.labels[INSTANT_LABEL][11:16]}" for record in names) == [
        "nightly 10:20",
        "other 10:00",
        "other 10:05",
        "other 10:20",
    ]
    assert history is not None
    assert {loss.why for loss in history.losses} == {Why.PAUSED}


async def test_skip_knows_a_run_that_was_started_before_the_restart(here: Here) -> None:
    await here.make(schedule={"cron": "*/5 * * * *", "overlap": "skip"})
    await here.activate()
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:01")
    shutil.rmtree(here.session.store.layout.scheduler / "catchup", ignore_errors=True)
    async with here.firing() as scheduler:
        await here.until(scheduler, "10:06")
        assert list(here.runs()) == ["10:00"]
        await here.session.cancel(here.runs()["10:00"])
        await here.until(scheduler, "10:11")
    assert list(here.runs()) == ["10:00", "10:10"]


async def test_a_version_is_made_once_and_never_changed(here: Here) -> None:
    one = await here.make()
    assert (await here.make()).version == one.version == "1"
    two = await here.make(description="other")
    assert two.version == "2"
    with pytest.raises(Conflict, match="versions never change"):
        await here.make(version="1", description="third")
    assert (await here.make(version="1")).created_at == one.created_at


async def test_what_is_wrong_with_a_plan_is_told_at_once(here: Here) -> None:
    with pytest.raises(InvalidInput) as found:
        await here.make(
            defaults={"onyl": {"depth": 1}},
            fixed={"only": {"deph": 1}},
            schedule={"cron": "61 * * * *", "time_param": "only.wehn"},
        )
    fields = [problem.field for problem in found.value.problems]
    assert fields == ["defaults.onyl", "fixed.only.deph", "schedule.cron", "schedule.time_param"]


def test_times_are_told_short() -> None:
    assert told([at("10:05"), at("10:05:30")]) == ["10:05", "10:05:30"]
