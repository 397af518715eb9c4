"""The scheduler over plans, runs and notes in memory, in time that the tests move."""

from __future__ import annotations

import asyncio

import pytest

from simrun.base.errors import Conflict
from simrun.scheduler.firing import RETRYING_AT_MOST, TRIES, wait_s
from simrun.scheduler.history import Why
from simrun.scheduler.ports import PlanUnfit
from simrun.scheduler.scheduler import SchedulerSettings
from tests.scheduler.world import World, at, plan, told

EVERY_5 = "*/5 * * * *"


async def start_stop(world: World, until: str) -> None:
    """A scheduler that starts now, works until an instant, and stops with a snapshot."""
    async with world.working() as scheduler:
        await world.until(scheduler, until)
        await scheduler.save()


# --- firing ------------------------------------------------------------------------------------------------------------


async def test_each_instant_gets_its_run_when_it_comes() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:11")
    assert told(world.runs.instants()) == ["10:00", "10:05", "10:10"]
    assert [made.at - made.instant for made in world.runs.made.values()] == pytest.approx(
        [made.at - made.at for made in world.runs.made.values()], abs=at("00:00:01") - at("00:00")
    )


async def test_the_id_of_a_run_is_that_of_the_reference() -> None:
    world = World("2026-03-08T07:29:00Z")
    world.plans.put(
        plan("nightly", "30 7 * * *", activated=at("2026-03-08T00:00:00Z"), group="sim")
    )
    async with world.working() as scheduler:
        await world.until(scheduler, at("2026-03-08T07:31:00Z"))
    from simrun.scheduler.execution import execution_id

    assert list(world.runs.made) == [
        execution_id("sim", "simrun", "nightly", "1", at("2026-03-08T07:30:00Z"))
    ]


async def test_a_plan_that_is_activated_while_the_scheduler_runs_fires_from_then_on() -> None:
    world = World("10:01")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:07:30")
        world.plans.put(plan(cron=EVERY_5, activated=at("10:07:30")))
        await scheduler.notify("lab.nightly")
        await world.until(scheduler, "10:16")
    assert told(world.runs.instants()) == ["10:10", "10:15"]


async def test_a_plan_that_another_process_activated_is_found_and_fires_from_its_activation() -> (
    None
):
    world = World("10:01")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:02")
        world.plans.put(plan(cron="* * * * *", activated=at("10:02:10")))
        await world.until(scheduler, "10:05:30")
        assert not world.runs.made
        await scheduler.notify_all()
        await world.until(scheduler, "10:06:30")
    assert told(world.runs.instants()) == ["10:03", "10:04", "10:05", "10:06"]


async def test_deactivation_stops_what_was_not_begun() -> None:
    world = World("10:01")
    world.plans.put(plan(cron=EVERY_5, activated=at("10:00")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:06")
        world.plans.remove("lab.nightly")
        await world.until(scheduler, "10:20")  # nobody told it: active.json is asked at each fire
        await scheduler.tick()
        assert scheduler.state("lab.nightly") is None
    assert told(world.runs.instants()) == ["10:05"]


async def test_another_version_takes_over_without_doubling_an_instant() -> None:
    world = World("10:01")
    world.plans.put(plan(cron=EVERY_5, activated=at("10:00")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:06")
        world.plans.put(plan(cron="*/2 * * * *", activated=at("10:06"), version="2"))
        await scheduler.notify("lab.nightly")
        await world.until(scheduler, "10:11")
    assert told(world.runs.instants()) == ["10:05", "10:08", "10:10"]
    assert [made.plan.version for made in world.runs.made.values()] == ["1", "2", "2"]


async def test_instants_before_and_after_the_validity_do_not_count() -> None:
    world = World("09:58")
    world.plans.put(
        plan(
            cron=EVERY_5,
            activated=at("09:57"),
            not_before=at("10:05"),
            not_after=at("10:15"),
        )
    )
    async with world.working() as scheduler:
        await world.until(scheduler, "11:00")
        state = scheduler.state("lab.nightly")
    assert told(world.runs.instants()) == ["10:05", "10:10", "10:15"]
    assert state is not None
    assert state.next is None


async def test_a_catch_up_minds_the_validity_too() -> None:
    world = World("12:00")
    world.plans.put(
        plan(cron=EVERY_5, activated=at("09:57"), not_before=at("10:05"), not_after=at("10:15"))
    )
    async with world.working() as scheduler:
        await world.until(scheduler, "12:01")
    assert told(world.runs.instants()) == ["10:05", "10:10", "10:15"]


# --- catch-up ----------------------------------------------------------------------------------------------------------


async def test_what_was_missed_is_fired_in_order_and_only_that() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    await start_stop(world, "10:02")
    world.time.advance((at("10:21:30") - at("10:02")).total_seconds())
    async with world.working() as scheduler:
        await scheduler.drain()
        assert told(world.runs.instants()) == ["10:00", "10:05", "10:10", "10:15", "10:20"]
        await world.until(scheduler, "10:26")
    assert told(world.runs.instants())[5:] == ["10:25"]


async def test_an_instant_at_the_very_start_is_fired_once() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    await start_stop(world, "10:02")
    world.time.advance((at("10:20") - at("10:02")).total_seconds())
    async with world.working() as scheduler:
        await world.until(scheduler, "10:22")
    assert told(world.runs.instants()) == ["10:00", "10:05", "10:10", "10:15", "10:20"]
    assert [instant for _, instant in world.runs.asked].count(at("10:20")) == 1


async def test_a_fixed_rate_keeps_its_grid_through_restarts() -> None:
    world = World("07:00")
    world.plans.put(plan(every="1h", activated=at("07:00")))
    await start_stop(world, "10:10")
    for restart in ("10:50", "10:55"):
        world.time.advance(at(restart).timestamp() - world.time.wall())
        async with world.working() as scheduler:
            state = scheduler.state("lab.nightly")
            assert state is not None
            assert state.next == at("11:00")
            await scheduler.save()
    async with world.working() as scheduler:
        await world.until(scheduler, "11:01")
    assert told(world.runs.instants()) == ["08:00", "09:00", "10:00", "11:00"]


async def test_a_fixed_rate_catches_up_on_its_grid() -> None:
    world = World("09:50")
    world.plans.put(plan(every="10m", activated=at("09:50")))
    await start_stop(world, "10:05")
    world.time.advance((at("10:47") - at("10:05")).total_seconds())
    async with world.working() as scheduler:
        await world.until(scheduler, "10:51")
    assert told(world.runs.instants())[1:] == ["10:10", "10:20", "10:30", "10:40", "10:50"]


@pytest.mark.parametrize(
    ("policy", "fired", "dropped"),
    [
        ("all", ["10:05", "10:10", "10:15", "10:20", "10:25"], 0),
        ("latest", ["10:20", "10:25"], 3),
        ("none", ["10:25"], 4),
    ],
)
async def test_each_policy_fires_what_it_says_and_tells_what_it_drops(
    policy: str, fired: list[str], dropped: int
) -> None:
    world = World("10:01")
    world.plans.put(plan(cron=EVERY_5, activated=at("10:00"), catch_up=policy))
    await start_stop(world, "10:02")
    world.time.advance((at("10:21:30") - at("10:02")).total_seconds())
    async with world.working() as scheduler:
        await world.until(scheduler, "10:26")
        history = scheduler.history("lab.nightly")
        assert scheduler.statistics.lost.get(Why.POLICY, 0) == dropped
    assert told(world.runs.instants()) == fired
    assert history is not None
    assert sum(loss.count for loss in history.losses) == dropped
    if dropped:
        assert told([history.losses[0].first]) == ["10:05"]


async def test_the_cap_keeps_the_latest_and_the_rest_is_told_as_a_range() -> None:
    world = World("2026-03-05T00:00:30Z")
    world.plans.put(plan(cron="* * * * *", activated=at("2026-03-02T00:00:30Z"), catch_up_cap=1000))
    async with world.working() as scheduler:
        await scheduler.drain()
        history = scheduler.history("lab.nightly")
    assert len(world.runs.made) == 1000
    assert world.runs.instants()[-1] == at("2026-03-05T00:00:00Z")
    assert history is not None
    (loss,) = history.losses
    assert (loss.why, loss.count) == (Why.POLICY, 3 * 1440 - 1000)
    assert loss.first == at("2026-03-02T00:01:00Z")


async def test_live_timers_wait_for_every_catch_up_and_fire_what_fell_due_meanwhile() -> None:
    world = World("11:00:30")
    world.plans.put(
        plan("slow", EVERY_5, activated=at("10:50")),
        plan("quick", "1,2,3 * * * *", activated=at("11:00"), catch_up="none"),
    )
    world.runs.gate = asyncio.Event()
    async with world.working() as scheduler:
        await asyncio.sleep(0)
        world.time.advance((at("11:03:30") - at("11:00:30")).total_seconds())
        await scheduler.tick()
        await scheduler.save()
        assert not scheduler.statistics.live
        assert world.notes.snapshot is None  # it would deny what is still to do
        world.runs.gate.set()
        await world.until(scheduler, "11:03:40")
        assert scheduler.statistics.live
        await scheduler.save()
    assert told(world.runs.instants("slow")) == ["10:55", "11:00"]
    assert told(world.runs.instants("quick")) == ["11:01", "11:02", "11:03"]
    assert world.notes.snapshot is not None


async def test_a_catch_up_that_was_killed_goes_on_where_it_was() -> None:
    world = World("12:00:30")
    world.plans.put(plan(cron="* * * * *", activated=at("10:00:30"), catch_up_cap=50))
    async with world.working(workers=1) as scheduler:
        while len(world.runs.made) < 20:
            await asyncio.sleep(0)
        await scheduler.save_progress()
        while len(world.runs.made) < 25:
            await asyncio.sleep(0)
    first = len(world.runs.asked)
    world.time.advance(60)
    async with world.working() as scheduler:
        await scheduler.drain()
        await scheduler.save()
        history = scheduler.history("lab.nightly")
    assert len(world.runs.made) == 51
    assert len(world.runs.asked) - first <= 32
    assert history is not None
    assert [loss.count for loss in history.losses] == [
        70
    ]  # told once, by the start that dropped them
    assert not world.notes.progress


async def test_a_deactivation_stops_the_rest_of_a_catch_up() -> None:
    world = World("12:00:30")
    world.plans.put(plan(cron="* * * * *", activated=at("02:00:30")))
    async with world.working(workers=1) as scheduler:
        while len(world.runs.made) < 20:
            await asyncio.sleep(0)
        world.plans.remove("lab.nightly")
        await scheduler.notify("lab.nightly")
        await world.until(scheduler, "12:10")
        assert scheduler.statistics.live
    assert 20 <= len(world.runs.made) <= 21


async def test_an_endless_backlog_is_gone_through_one_at_a_time() -> None:
    world = World("2200-01-01T00:00:30Z")
    world.plans.put(
        plan(cron="* * * * *", activated=at("2026-03-02T00:00:30Z"), catch_up_cap=1_000_000)
    )
    async with world.working(workers=1) as scheduler:
        while len(world.runs.made) < 5:
            await asyncio.sleep(0)
        assert scheduler.statistics.backlog > 999_000
        world.plans.remove("lab.nightly")
        await scheduler.notify("lab.nightly")


# --- tries -------------------------------------------------------------------------------------------------------------


async def test_an_instant_that_fails_is_tried_again_and_holds_up_no_other() -> None:
    world = World("09:58")
    world.plans.put(
        plan(cron=EVERY_5, activated=at("09:57")), plan("other", EVERY_5, activated=at("09:57"))
    )
    world.runs.failing[at("10:00")] = OSError("the store does not answer")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:06")
        state = scheduler.state("lab.nightly")
        assert state is not None
        (waiting,) = state.waiting
        assert (waiting.instant, waiting.error) == (at("10:00"), "the store does not answer")
        assert told(world.runs.instants()) == ["10:05"]
        del world.runs.failing[at("10:00")]
        await world.until(scheduler, "10:09")
    assert told(world.runs.instants()) == ["10:05", "10:00"]  # T2 before T1
    assert told(world.runs.instants("other")) == ["10:05", "10:00"]


async def test_thirty_tries_and_the_instant_is_given_up_counted_and_kept() -> None:
    world = World("09:58")
    world.plans.put(plan(cron="0 10 * * *", activated=at("09:57")))
    world.runs.failing[at("10:00")] = OSError("the store does not answer")
    async with world.working() as scheduler:
        await world.until(scheduler, "11:00")
        assert scheduler.statistics.failed == 1
        assert scheduler.statistics.failed_tries == TRIES
        await scheduler.save()
    assert len(world.runs.asked) == TRIES == 30
    async with world.working() as scheduler:
        history = scheduler.history("lab.nightly")
        await scheduler.drain()
    assert len(world.runs.asked) == TRIES  # not again after the restart
    assert history is not None
    (failure,) = history.failures
    assert (failure.instant, failure.tries) == (at("10:00"), 30)
    assert "does not answer" in failure.error


def test_waits_grow_and_are_spread() -> None:
    waits = [wait_s(tries, 0.5) for tries in range(1, TRIES)]
    assert waits == sorted(waits)
    assert 20 * 60 < sum(waits) < 40 * 60
    assert wait_s(5, 0.0) * 3 == pytest.approx(wait_s(5, 1.0))


async def test_an_instant_in_retry_survives_a_crash_though_later_ones_have_their_runs() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    world.runs.failing[at("10:00")] = OSError("the store does not answer")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:11")
        await scheduler.save()
    world.runs.failing.clear()
    async with world.working() as scheduler:
        await scheduler.drain()
    assert sorted(told(world.runs.instants())) == ["10:00", "10:05", "10:10"]


async def test_what_was_begun_goes_on_when_its_schedule_is_removed() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    world.runs.failing[at("10:00")] = OSError("the store does not answer")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:01")
        world.plans.remove("lab.nightly")
        await scheduler.notify("lab.nightly")
        world.runs.failing.clear()
        await world.until(scheduler, "10:10")
    assert told(world.runs.instants()) == ["10:00"]


async def test_a_conflict_is_given_up_at_once_and_stops_nothing_else() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    world.runs.failing[at("10:00")] = Conflict("run f00 exists with another submission")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:06")
        history = scheduler.history("lab.nightly")
    assert told(world.runs.instants()) == ["10:05"]
    assert history is not None
    assert [failure.tries for failure in history.failures] == [1]


async def test_a_schedule_whose_every_fire_fails_does_not_hold_up_the_others() -> None:
    world = World("12:00:30")
    world.plans.put(
        plan("bad", "* * * * *", activated=at("02:00:30")),
        plan("good", "* * * * *", activated=at("11:55:30")),
    )
    world.runs.failing_plans["lab.bad"] = RuntimeError("something unexpected")
    async with world.working() as scheduler:
        await scheduler.tick()
        await scheduler.drain()
        assert scheduler.statistics.live
        assert scheduler.statistics.retrying == RETRYING_AT_MOST
        await world.until(scheduler, "12:01:30")
        assert told(world.runs.instants("good"))[-2:] == ["12:00", "12:01"]
        await scheduler.save()
        world.runs.failing_plans.clear()
        await world.until(scheduler, "12:06")
    assert len(world.runs.instants("bad")) == 606


# --- overlap -----------------------------------------------------------------------------------------------------------


async def test_skip_skips_while_an_earlier_run_is_going() -> None:
    world = World("09:58")
    world.plans.put(plan(cron="*/10 * * * *", activated=at("09:57"), overlap="skip"))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:25")
        world.runs.ended.update(world.runs.made)
        await world.until(scheduler, "10:41")
        history = scheduler.history("lab.nightly")
    assert told(world.runs.instants()) == ["10:00", "10:30"]
    assert history is not None
    assert [(loss.why, loss.count, *told([loss.first, loss.last])) for loss in history.losses] == [
        (Why.OVERLAP, 2, "10:10", "10:20"),
        (Why.OVERLAP, 1, "10:40", "10:40"),
    ]


async def test_queue_waits_for_the_end_and_fires_one_after_the_other() -> None:
    world = World("09:58")
    world.plans.put(plan(cron="*/10 * * * *", activated=at("09:57"), overlap="queue"))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:25")
        assert told(world.runs.instants()) == ["10:00"]
        assert scheduler.statistics.backlog == 2
        world.runs.ended.update(world.runs.made)
        await world.until(scheduler, "10:26")
        assert told(world.runs.instants()) == ["10:00", "10:10"]
        world.runs.ended.update(world.runs.made)
        await world.until(scheduler, "10:27")
    assert told(world.runs.instants()) == ["10:00", "10:10", "10:20"]


async def test_cancel_ends_the_earlier_run_first() -> None:
    world = World("09:58")
    world.plans.put(plan(cron="*/10 * * * *", activated=at("09:57"), overlap="cancel"))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:11")
    assert told(world.runs.instants()) == ["10:00", "10:10"]
    assert world.runs.cancelled == [next(iter(world.runs.made))]


async def test_an_instant_that_has_its_run_is_not_skipped_for_its_own_sake() -> None:
    world = World("09:58")
    world.plans.put(plan(cron="*/10 * * * *", activated=at("09:57"), overlap="skip"))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:01")
    async with world.working() as scheduler:  # the snapshot was lost
        await scheduler.drain()
        assert scheduler.statistics.exists == 1
        assert not scheduler.statistics.lost


# --- pauses and plans that can't be run ----------------------------------------------------------------------------------


async def test_paused_time_never_counts_as_missed() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:01")
        world.plans.change("lab.nightly", paused="paused by ana")
        await scheduler.notify("lab.nightly")
        await world.until(scheduler, "10:17")
        state = scheduler.state("lab.nightly")
        assert state is not None
        assert state.next is None
        world.plans.change("lab.nightly", paused="", since=at("10:17"))
        await scheduler.notify("lab.nightly")
        await world.until(scheduler, "10:21")
        history = scheduler.history("lab.nightly")
    assert told(world.runs.instants()) == ["10:00", "10:20"]
    assert history is not None
    assert [(loss.why, loss.count) for loss in history.losses] == [(Why.PAUSED, 3)]


async def test_paused_time_does_not_count_after_a_restart_without_snapshot_either() -> None:
    world = World("10:17")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    world.plans.change("lab.nightly", since=at("10:12"))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:21")
    assert told(world.runs.instants()) == ["10:15", "10:20"]


async def test_a_plan_that_can_not_be_run_fires_nothing_says_so_and_heals_by_activation() -> None:
    world = World("09:58")
    world.plans.put(
        plan(cron=EVERY_5, activated=at("09:57")), plan("good", EVERY_5, activated=at("09:57"))
    )
    world.runs.failing_plans["lab.nightly"] = PlanUnfit("its workflow has no type 'x'")
    async with world.working() as scheduler:
        await world.until(scheduler, "10:11")
        state = scheduler.state("lab.nightly")
        assert state is not None
        assert "no type 'x'" in state.plan.trouble
        assert scheduler.statistics.unfit == 1
        assert len([key for key, _ in world.runs.asked if key == "lab.nightly"]) == 1
        world.runs.failing_plans.clear()
        world.time.advance(30)
        await scheduler.notify("lab.nightly")  # what an activation does
        await world.until(scheduler, "10:16")
        history = scheduler.history("lab.nightly")
    assert told(world.runs.instants()) == ["10:15"]
    assert told(world.runs.instants("good")) == ["10:00", "10:05", "10:10", "10:15"]
    assert history is not None
    assert sum(loss.count for loss in history.losses if loss.why is Why.UNFIT) == 3


# --- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [3600.0, 30 * 86400.0])
async def test_a_clock_that_was_ahead_and_is_set_back_loses_and_doubles_nothing(
    seconds: float,
) -> None:
    world = World("09:58")
    world.plans.put(
        plan(cron="7 * * * *", activated=at("09:57"), catch_up="latest"),
        plan("all", "7 * * * *", activated=at("09:57")),
    )
    async with world.working() as scheduler:
        await world.until(scheduler, "10:10")
        world.time.step(seconds)
        await scheduler.tick()
        await scheduler.drain()
        world.time.step(-seconds)
        await world.until(scheduler, "14:10")
    for name in ("nightly", "all"):
        instants = world.runs.instants(name)
        assert len(set(instants)) == len(instants)
        wanted = {"10:07", "11:07", "12:07", "13:07", "14:07"}
        assert wanted <= {*told(i for i in instants if i.day == 2)}


async def test_a_clock_that_goes_forward_for_good_catches_up() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:57")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:01")
        world.time.step(3600)
        await world.until(scheduler, "11:06")
    assert len(world.runs.made) == 14


# --- several -----------------------------------------------------------------------------------------------------------


async def test_two_schedulers_make_each_run_once() -> None:
    world = World("09:59:30")
    world.plans.put(plan(cron="* * * * *", activated=at("09:59:30")))
    async with world.working() as one, world.working() as two:
        for minute in range(100):
            await world.until(one, at("10:00") + minute * (at("10:01") - at("10:00")))
            await two.tick()
            await two.drain()
        assert one.statistics.created + two.statistics.created == 100
        assert one.statistics.exists + two.statistics.exists == 100
    assert len(world.runs.made) == 100


async def test_a_store_that_can_not_be_read_at_the_start_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = asyncio.sleep

    async def soon(_seconds: float) -> None:
        await real(0)

    world = World("09:59")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:50")))
    world.plans.broken = 3
    monkeypatch.setattr("simrun.scheduler.scheduler.asyncio.sleep", soon)
    scheduler = world.scheduler()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(scheduler.run())
        while not world.runs.made:
            await real(0)
        task.cancel()
    assert told(world.runs.instants()) == ["09:55"]
    assert world.notes.snapshot is not None


async def test_no_more_runs_begin_in_a_second_than_the_rate_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def noted(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    world = World("12:00:30", SchedulerSettings(rate=10.0, burst=20))
    world.plans.put(plan(cron="* * * * *", activated=at("11:20:30")))
    monkeypatch.setattr("simrun.scheduler.limiter.asyncio.sleep", noted)
    async with world.working(workers=1) as scheduler:
        await scheduler.drain()
    assert len(world.runs.made) == 40
    assert max(waits) == pytest.approx(2.0)  # 20 more than the burst, at 10 a second


async def test_a_ticker_that_does_not_tick_is_told() -> None:
    world = World("09:58")
    async with world.working() as scheduler:
        await scheduler.tick()
        assert scheduler.trouble() == []
        world.time.advance(90)
        assert "has not ticked for 90 s" in scheduler.trouble()[0]


async def test_a_fire_that_hangs_is_told() -> None:
    world = World("09:58")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:50")))
    world.runs.gate = asyncio.Event()
    async with world.working() as scheduler:
        while not world.runs.asked:
            await asyncio.sleep(0)
        world.time.advance(200)
        await scheduler.tick()
        assert "not come to its end for 200 s" in scheduler.trouble()[0]
        world.runs.gate.set()
        await scheduler.drain()
        assert scheduler.trouble() == []


async def test_lateness_is_counted_for_what_was_not_missed() -> None:
    world = World("10:02")
    world.plans.put(plan(cron=EVERY_5, activated=at("09:50")))
    async with world.working() as scheduler:
        await world.until(scheduler, "10:04:59")
        world.time.advance(3)
        await world.until(scheduler, "10:06")
        counts, seconds = scheduler.statistics.lateness.snapshot()
    assert (counts[-1], seconds) == (1, pytest.approx(2.0))
    assert scheduler.statistics.created == 3
