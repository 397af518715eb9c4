"""What the scheduler costs; prints JSON.

    python -m benchmarks scheduler
    python benchmarks/bench_scheduler.py --peers     APScheduler and robfig/cron (Go) beside it, fetched into a temporary directory

start      20,000 active schedules in a run store: read and parsed, up to live timers; the pages are in memory, as after a restart
tick       what a minute with nothing due costs the event loop: 60 ticks, the watch of the store, two snapshots
minute     200 schedules due at one instant, over a whole session with a scripted backend on this disk: lateness of the runs
outage     43,200 missed instants of one schedule on a file system in memory: the time, the memory, the loop
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from simrun.aio.lag import LagProbe
from simrun.aio.threads import Pool
from simrun.backends.scripted import ScriptedBackend
from simrun.model.launchplan import Active, LaunchPlan, Schedule
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Task, Workflow
from simrun.scheduler.scheduler import Scheduler, SchedulerSettings
from simrun.service.opening import open_session
from simrun.service.schedules import Schedules
from simrun.service.session import Session
from simrun.store import codec
from simrun.store.launch_plans import LaunchPlanStore

SCHEDULES = 20_000
FIRES = 200
MISSED = 43_200
START_S, TICK_MS, LATE_S = 5.0, 20.0, 3.0
GO = """
package main

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	c := cron.New(cron.WithLocation(time.UTC))
	began := time.Now()
	for n := 0; n < 20000; n++ {
		if _, err := c.AddFunc(fmt.Sprintf("%d %d * * *", n%60, n/60%24), func() {}); err != nil {
			panic(err)
		}
	}
	c.Start()
	fmt.Println(time.Since(began).Seconds())
}
"""
APSCHEDULER = """
import time
from datetime import timezone
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
began = time.perf_counter()
scheduler = BackgroundScheduler(timezone=timezone.utc)
for n in range(20000):
    trigger = CronTrigger.from_crontab(f"{n % 60} {n // 60 % 24} * * *", "UTC")
    scheduler.add_job(print, trigger, id=str(n))
scheduler.start()
print(time.perf_counter() - began)
scheduler.shutdown(wait=False)
"""


class Offset:
    """The clocks of this machine, the wall clock set."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def wall(self) -> float:
        return time.time() + self.seconds

    def monotonic(self) -> float:
        return time.monotonic()


def plan(name: str, cron: str, **schedule: object) -> LaunchPlan:
    submission = Submission(
        workflow=Workflow(tasks={"only": Task(type="t")}),
        types={"t": TaskType(command=["true"], image="image")},
        request=RunRequest(group="lab"),
    )
    return LaunchPlan(
        group="lab",
        name=name,
        version="1",
        submission=submission,
        schedule=Schedule.model_validate({"cron": cron, **schedule}),
        created_at=1.0,
        fingerprint="f",
    )


def fill(root: Path, number: int, activated: float) -> None:
    """Write active plans as the store has them, without its fsyncs."""
    active = codec.encode(Active(version="1", activated_at=activated, by="bench"))
    for index in range(number):
        place = root / "launch-plans" / "lab" / f"plan-{index}"
        place.mkdir(parents=True)
        # Once a day, away from what is measured
        item = plan(f"plan-{index}", f"{index % 60} {index // 60 % 24} * * *")
        (place / "1.json").write_bytes(codec.encode(item))
        (place / "active.json").write_bytes(active)


@contextlib.contextmanager
def directory(where: str | None = None) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="simrun-bench-", dir=where))
    try:
        yield made
    finally:
        shutil.rmtree(made)


def scripted(root: Path, clock: Offset | None = None) -> contextlib.AbstractAsyncContextManager:
    backend = ScriptedBackend()
    return open_session(root, lambda _store, _pool: backend, clock=clock or Offset())


def scheduler_of(session: Session, clock: Offset, settings: SchedulerSettings) -> Schedules:
    return Schedules(session, Pool("files", 8), clock, settings)


# --- start and tick ----------------------------------------------------------------------------------------------------------


async def start_and_tick() -> dict[str, object]:
    with directory() as top:
        clock = Offset()
        async with scripted(top / "store", clock) as session:
            # None of the instants between now and half an hour ago was missed
            fill(top / "store", SCHEDULES, clock.wall() - 1)
            schedules = scheduler_of(session, clock, SchedulerSettings())
            scheduler = schedules.scheduler
            gc.collect()
            before = memory()
            began, busy = time.perf_counter(), time.process_time()
            await scheduler.start()
            took, busy = time.perf_counter() - began, time.process_time() - busy
            await scheduler.save()
            after = memory()
            # A minute in which nothing comes due: the timers of this one are of the day's other minutes
            ticks = await cost_ms(scheduler.tick, 60)
            watch = await cost_ms(scheduler.notify_all, 12)
            saves = await cost_ms(scheduler.save, 2)
            assert scheduler.statistics.schedules == SCHEDULES
            cost = ticks + watch + saves
            return {
                "start_s": round(took, 2),
                "start_cpu_s": round(busy, 2),
                "start_within": took <= START_S,
                "memory_mb": round(after - before),
                "minute_ms": round(cost, 2),
                "minute_within": cost <= TICK_MS,
                "ticks_ms": round(ticks, 2),
                "watch_ms": round(watch, 2),
                "snapshots_ms": round(saves, 2),
            }


async def cost_ms(act: Callable[[], Awaitable[None]], times: int) -> float:
    """Give the processor time of doing something so many times, threads included: waiting for a thread costs nothing."""
    began = time.process_time()
    for _ in range(times):
        await act()
    return (time.process_time() - began) * 1e3


# --- one minute --------------------------------------------------------------------------------------------------------------


async def one_minute() -> dict[str, object]:
    with directory() as top:
        clock = Offset()
        clock.seconds = 60 - clock.wall() % 60 - 3  # three seconds before a minute begins
        async with scripted(top / "store", clock) as session:
            fill(top / "store", 0, 0)
            plans = LaunchPlanStore(top / "store")
            for index in range(FIRES):
                plans.create(plan(f"plan-{index}", "* * * * *"))
                plans.activate("lab", f"plan-{index}", "1", by="bench", now=clock.wall())
            clock.seconds += 60 - clock.wall() % 60 - 1
            schedules = scheduler_of(session, clock, SchedulerSettings())
            # What the setting up took was not missed: only the instant to come counts
            scheduler = schedules.scheduler
            async with running(scheduler):
                await until(lambda: scheduler.statistics.live)
                begun = scheduler.statistics.created
                instant = clock.wall() // 60 * 60 + 60
                await until(lambda: scheduler.statistics.created >= begun + FIRES)
            store = session.store
            late = sorted(
                record.times.created - instant
                for record in map(store.read, store.run_ids())
                if record.labels["simrun/scheduled-at"]
                == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))
            )
            assert len(late) == FIRES
            return {
                "p50_s": round(late[FIRES // 2], 2),
                "p99_s": round(late[int(FIRES * 0.99)], 2),
                "within": late[int(FIRES * 0.99)] <= LATE_S,
            }


# --- a month that was missed -------------------------------------------------------------------------------------------------


async def outage() -> dict[str, object]:
    with directory("/dev/shm") as top:
        clock = Offset()
        async with scripted(top / "store", clock) as session, LagProbe() as lag:
            # The runs are made, not run
            session._controller.start_submission = lambda *_: None  # noqa: SLF001
            plans = LaunchPlanStore(top / "store")
            plans.create(plan("minutely", "* * * * *", catch_up_cap=100_000))
            plans.activate("lab", "minutely", "1", by="b", now=clock.wall() - MISSED * 60 - 30)
            settings = SchedulerSettings(rate=float("inf"))
            scheduler = scheduler_of(session, clock, settings).scheduler
            async with running(scheduler):
                await until(lambda: scheduler.statistics.created >= 2_000, 0.05)
                gc.collect()
                early, began = memory(), time.perf_counter()
                await until(lambda: scheduler.statistics.created >= MISSED, 0.2)
                took = time.perf_counter() - began
                gc.collect()
                late = memory()
            return {
                "runs": scheduler.statistics.created,
                "per_second": round((MISSED - 2_000) / took),
                "memory_after_2000_mb": round(early),
                "memory_at_the_end_mb": round(late),
                "loop_p99_ms": round(lag.statistics().p99_s * 1e3, 1),
            }


@contextlib.asynccontextmanager
async def running(scheduler: Scheduler) -> AsyncIterator[None]:
    """Let a scheduler run for as long as this lasts."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scheduler.run())
        try:
            yield
        finally:
            task.cancel()


async def until(condition: Callable[[], bool], every_s: float = 0.01) -> None:
    """Look again and again."""
    for _ in itertools.count():
        if condition():
            return
        await asyncio.sleep(every_s)


def memory() -> float:
    """Give the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# --- peers -------------------------------------------------------------------------------------------------------------------


def peers() -> dict[str, object]:
    """Give the seconds that others take to know 20,000 schedules; they read no store."""
    with directory() as top:
        return {"apscheduler_s": apscheduler(top), "robfig_s": robfig(top)}


def apscheduler(top: Path) -> float | str:
    target = str(top / "python")
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", target, "apscheduler<4"]
    if subprocess.run(command, check=False).returncode:
        return "can't be installed"
    environment = {**os.environ, "PYTHONPATH": target}
    done = subprocess.run(
        [sys.executable, "-c", APSCHEDULER],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return round(float(done.stdout.split()[-1]), 2)


def robfig(top: Path) -> float | str:
    if shutil.which("go") is None:
        return "there is no Go here"
    (top / "main.go").write_text(GO)
    (top / "go.mod").write_text(
        "module bench\n\ngo 1.21\n\nrequire github.com/robfig/cron/v3 v3.0.1\n"
    )
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "bench", "."]):
        done = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    done = subprocess.run([top / "bench"], capture_output=True, text=True, check=True)
    return round(float(done.stdout), 3)


def main() -> int:
    logging.disable(logging.CRITICAL)
    found: dict[str, object] = {
        "20000_schedules": asyncio.run(start_and_tick()),
        "200_fires": asyncio.run(one_minute()),
    }
    if "--quick" not in sys.argv:
        found["43200_missed"] = asyncio.run(outage())
    if "--peers" in sys.argv:
        found["peers"] = peers()
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
