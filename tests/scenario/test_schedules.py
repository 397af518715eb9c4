"""The failure scenarios of Flyte's scheduler, a to g, with processes that are killed over a real run store; and what else must never happen."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from simrun.model.launchplan import INSTANT_LABEL, LaunchPlan, Schedule, instant_text
from simrun.model.record import RunState
from simrun.model.workflow import Submission
from simrun.scheduler.execution import scheduled_run_id
from simrun.store.launch_plans import LaunchPlanStore
from simrun.store.runs import RunStore
from tests.scenario.scheduling import Host, Order, hosted
from tests.scheduler.world import at
from tests.scheduler.year import BEGIN, Shape, expected, schedules
from tests.service.world import PLAIN, submission

ONE: Submission = submission(
    {"only": {"type": "plain"}}, {"plain": {**PLAIN, "inputs": []}}, group="lab"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosted(tmp_path_factory.mktemp("lives") / "log") as found:
        yield found


@dataclass
class Place:
    """A store, and lives of schedulers over it."""

    host: Host
    root: Path
    lives: int = 0
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def plans(self) -> LaunchPlanStore:
        return LaunchPlanStore(self.root)

    @property
    def store(self) -> RunStore:
        return RunStore(self.root)

    @property
    def snapshot(self) -> Path:
        return self.root / "scheduler" / "snapshot.json"

    def make(self, name: str = "nightly", version: str = "1", **schedule: Any) -> None:
        """Make a version of a plan."""
        given = schedule or {"cron": "*/5 * * * *"}
        plan = LaunchPlan(
            group="lab",
            name=name,
            version=version,
            submission=ONE,
            schedule=Schedule(**given),
            created_at=1.0,
            fingerprint=version,
        )
        self.plans.create(plan)

    def activate(self, when: str, name: str = "nightly", version: str = "1") -> None:
        self.plans.activate("lab", name, version, by="ana", now=at(when).timestamp())

    def order(self, begin: str | datetime, until: str | datetime, **how: Any) -> Order:
        self.lives += 1
        times = [at(item) if isinstance(item, str) else item for item in (begin, until)]
        return Order(
            store=str(self.root),
            begin=times[0].isoformat(),
            until=times[1].isoformat(),
            result=str(self.root.parent / f"life-{self.lives}.json"),
            **how,
        )

    def live(self, begin: str | datetime, until: str | datetime, **how: Any) -> dict[str, Any]:
        """Let a process be the scheduler from one time to another; what it came to."""
        (found,) = self.host.live(self.order(begin, until, **how))
        return found

    def clock(self) -> datetime:
        """How far the clock of the last life had come."""
        return datetime.fromisoformat(
            (self.root.parent / f"life-{self.lives}.json.clock").read_text()
        )

    def runs(self) -> list[str]:
        """The instants of all runs; that of each once."""
        store = self.store
        records = [store.read(run_id) for run_id in store.run_ids() if store.exists(run_id)]
        found = [(record.name, record.labels[INSTANT_LABEL]) for record in records]
        assert len(set(found)) == len(found)
        return sorted(instant[11:16] for _, instant in found)


@pytest.fixture
def place(host: Host, tmp_path: Path) -> Place:
    return Place(host, tmp_path / "store")


def test_a_schedule_is_active_and_its_launch_plan_is_not(place: Place) -> None:
    """What an activation leaves that came half through elsewhere: active.json names what is not there."""
    place.make()
    place.make("good")
    place.activate("09:58")
    place.activate("09:58", "good")
    version = place.root / "launch-plans/lab/nightly/1.json"
    kept = version.read_bytes()
    version.unlink()
    came = place.live("09:58", "10:06")
    assert place.runs() == ["10:00", "10:05"]  # of the other
    assert "no version '1'" in came["trouble"]["lab.nightly"]
    version.write_bytes(kept)
    place.activate("10:06")
    place.live("10:06", "10:11")
    assert place.runs() == ["10:00", "10:05", "10:10", "10:10"]


def test_b_an_instant_fails_and_a_later_one_gets_its_run_first(place: Place) -> None:
    place.make()
    place.activate("09:58")
    # A file where the directory of the run should be: whatever is tried, it fails
    first = scheduled_run_id("lab", "nightly", "1", at("10:00"))
    place.store.open()
    (place.root / "runs" / first).write_text("in the way")
    came = place.live("09:58", "10:06")
    assert place.runs() == ["10:05"]
    assert (came["created"], came["failed"]) == (1, 0)
    assert came["failed_tries"] > 3
    came = place.live("10:06", "11:01")
    assert came["failed"] == 1  # thirty tries, and no more
    (failure,) = came["failures"]
    assert (failure["run"], failure["tries"]) == (first, 30)
    (place.root / "runs" / first).unlink()
    assert place.live("11:01", "11:02")["created"] == 0  # given up for good; a backfill may


def test_c_the_scheduler_was_down_and_catches_up(place: Place) -> None:
    place.make()
    place.activate("09:58")
    place.live("09:58", "10:02")
    came = place.live("10:21:30", "10:22")
    assert place.runs() == ["10:00", "10:05", "10:10", "10:15", "10:20"]
    assert (came["created"], came["exists"]) == (4, 0)


def test_d_the_snapshot_is_older_than_the_last_run(place: Place) -> None:
    place.make()
    place.activate("09:58")
    place.live("09:58", "10:02")
    assert place.live("10:02", "10:30", kill_after=3) == {}
    assert place.runs() == ["10:00", "10:05", "10:10", "10:15"]
    came = place.live("10:17", "10:21")
    assert place.runs() == ["10:00", "10:05", "10:10", "10:15", "10:20"]
    assert (came["created"], came["exists"]) == (1, 3)


def test_e_the_schedule_was_deactivated_while_the_scheduler_was_down(place: Place) -> None:
    place.make()
    place.activate("09:58")
    place.live("09:58", "10:02")
    for _ in range(3):
        place.plans.deactivate("lab", "nightly", by="ana", now=at("10:07").timestamp())
        place.activate("10:08")
    place.plans.deactivate("lab", "nightly", by="ana", now=at("10:09").timestamp())
    place.live("10:21:30", "10:40")
    assert place.runs() == ["10:00"]


def test_f_a_schedule_was_activated_while_the_scheduler_was_down(place: Place) -> None:
    place.make()
    place.live("09:58", "10:02")
    for when in ("10:03", "10:08", "10:11"):
        place.plans.deactivate("lab", "nightly", by="ana", now=at(when).timestamp())
        place.activate(when)
    place.live("10:21:30", "10:26")
    assert place.runs() == ["10:15", "10:20", "10:25"]


def test_g_two_schedulers_make_a_hundred_runs_of_a_hundred_instants(place: Place) -> None:
    place.make(cron="* * * * *")
    place.activate("09:59:30")
    begin, end = at("09:59:30"), at("09:59:30") + timedelta(minutes=100)
    one, two = place.host.live(place.order(begin, end), place.order(begin, end))
    assert len(place.runs()) == 100
    assert one["created"] + one["exists"] == two["created"] + two["exists"] == 100
    assert one["failed"] == two["failed"] == 0
    # Both may believe that a run is theirs which they made at one moment; the store has it once
    assert one["created"] + two["created"] >= 100


@pytest.mark.parametrize("variant", ["running", "finished", "finished and its workflow deleted"])
def test_a_kill_between_the_run_and_the_snapshot_makes_no_second_run(
    place: Place, variant: str
) -> None:
    place.make()
    place.activate("09:58")
    assert place.live("09:58", "10:02", kill_after=1) == {}
    (run_id,) = place.store.run_ids()
    record = place.store.read(run_id)
    if variant != "running":
        ended = record.changed(state=RunState.SUCCEEDED, workflow_name=None)
        if variant == "finished":
            ended = ended.changed(workflow_name=record.workflow_name)
        assert place.store.write_if_unchanged(record, ended)
        record = place.store.read(run_id)
    came = place.live("10:02", "10:04")
    assert (came["created"], came["exists"]) == (0, 1)
    assert place.store.run_ids() == [run_id]
    assert place.store.read(run_id) == record


def test_a_snapshot_that_is_lost_cut_older_or_newer_changes_no_run(place: Place) -> None:
    place.make()
    place.activate("09:58")
    place.live("09:58", "10:06")
    older = place.snapshot.read_bytes()
    place.live("10:06", "10:21")
    whole = place.snapshot.read_bytes()
    wanted = place.runs()
    assert wanted == ["10:00", "10:05", "10:10", "10:15", "10:20"]
    newer = whole.replace(b'"schema":1', b'"schema":2')
    for content, asked in ((None, 5), (whole[:-20], 5), (older, 3), (newer, 5), (whole, 0)):
        place.snapshot.unlink()
        if content is not None:
            place.snapshot.write_bytes(content)
        came = place.live("10:21", "10:22")
        assert (came["created"], came["exists"]) == (0, asked)
    assert place.runs() == wanted
    assert newer in {item.read_bytes() for item in (place.root / "damaged").iterdir()}


# --- many ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def in_memory(host: Host) -> Iterator[Place]:
    """A store on a file system in memory: what is tried here is many, and not disks."""
    root = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="simrun-schedules-"))
    try:
        yield Place(host, root / "store")
    finally:
        shutil.rmtree(root)


@pytest.mark.timeout(240)
def test_the_first_2000_instants_of_the_year_on_a_real_store_with_kill_9(
    in_memory: Place,
) -> None:
    """The year of tests/scheduler/year.py with real files and real deaths: a process is killed each few hundred runs."""
    place, chance, shape = in_memory, random.Random(2026), Shape()
    planned = schedules(chance, shape, BEGIN + timedelta(days=shape.days))
    wanted = sorted(expected(planned, BEGIN + timedelta(days=10)), key=lambda item: item[1])
    wanted = wanted[:2000]
    until = wanted[-1][1]
    assert len(wanted) == 2000
    for item in planned:
        given = {"cron": item.text, "timezone": item.zone} if item.fields else {"every": item.text}
        place.make(item.name, "0", **given)
        place.activate(instant_text(item.spans[0][0]), item.name, "0")
    deaths, now = 0, BEGIN + timedelta(days=1)  # when all of them are active
    while not (
        came := place.live(now, until, kill_after=chance.randrange(100, 500), save_every=80)
    ):
        deaths += 1
        now = place.clock()
    assert deaths > 3
    there = made(place)
    assert came["exists"] > 0
    assert len(set(there)) == len(there)
    assert sorted(set(wanted) - set(there))[:3] == []
    # At the very last instant there may be more than the first 2000 have
    assert sorted(item for item in set(there) - set(wanted) if item[1] < until)[:3] == []


def made(place: Place) -> list[tuple[str, datetime]]:
    """What there are runs of: plan and instant."""
    store = place.store
    records = [store.read(run_id) for run_id in store.run_ids() if store.exists(run_id)]
    return [
        (record.name, datetime.fromisoformat(record.labels[INSTANT_LABEL])) for record in records
    ]
