"""What is due, with the clock and the past as arguments."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.scheduler.cron import CronError, parse
from simrun.scheduler.execution import scheduled_run_id
from simrun.scheduler.plan import (
    CATCH_UP_CAP,
    CatchUp,
    Dropped,
    Overlap,
    Policy,
    Verdict,
    between,
    considered,
    due,
    next_due,
    timetable_of,
    verdict,
)

MINUTE = timedelta(minutes=1)
RESOLUTION = timedelta(microseconds=1)
DAY = datetime(2026, 3, 2, tzinfo=UTC)


def clock(text):
    """Give a time of the day that all of these tests play on."""
    return datetime.fromisoformat(f"2026-03-02T{text}+00:00")


def times(instants):
    return [instant.strftime("%H:%M") for instant in instants]


FIVE = parse("*/5 * * * *")


def test_c11_catch_up_is_exact():
    found = due(FIVE, mark=clock("10:00:00"), since=clock("09:00:00"), now=clock("10:21:30"))
    assert times(found) == ["10:05", "10:10", "10:15", "10:20"]
    assert (found.count, found.dropped) == (4, None)
    after = next_due(FIVE, mark=clock("10:21:30"), since=clock("09:00:00"), now=clock("10:21:30"))
    assert after == clock("10:25:00")


def test_c11_an_instant_equal_to_the_boot_belongs_to_the_catch_up_and_to_nothing_else():
    boot = clock("10:20:00")
    found = due(FIVE, mark=clock("10:00:00"), since=clock("09:00:00"), now=boot)
    assert times(found) == ["10:05", "10:10", "10:15", "10:20"]
    assert next_due(FIVE, mark=boot, since=clock("09:00:00"), now=boot) == clock("10:25:00")
    assert times(due(FIVE, mark=boot, since=clock("09:00:00"), now=clock("10:24:59"))) == []


def test_an_activation_while_nothing_ran_catches_up_from_the_activation():
    found = due(FIVE, mark=clock("09:00:00"), since=clock("10:12:00"), now=clock("10:21:30"))
    assert times(found) == ["10:15", "10:20"]
    assert times(due(FIVE, mark=None, since=clock("10:12:00"), now=clock("10:21:30"))) == [
        "10:15",
        "10:20",
    ]


def test_an_activation_at_a_fire_time_does_not_fire_for_it():
    found = due(FIVE, mark=None, since=clock("10:15:00"), now=clock("10:21:30"))
    assert times(found) == ["10:20"]


def test_c01_c03_the_catch_up_over_a_change_of_clocks_has_the_real_instants():
    nightly = timetable_of("30 2 * * *", zone="America/New_York", activated=DAY)
    begin, end = datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC)
    assert [instant.day for instant in due(nightly, mark=begin, since=DAY, now=end)] == [7, 9]
    autumn = timetable_of("0 1 * * *", zone="America/New_York", activated=DAY)
    begin, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    assert times(due(autumn, mark=begin, since=DAY, now=end)) == ["05:00", "06:00"]


def test_c05_a_date_that_never_comes_is_never_due():
    never = parse("0 0 31 2 *")
    found = due(never, mark=None, since=DAY, now=datetime(2200, 1, 1, tzinfo=UTC))
    assert (list(found), found.count, found.dropped) == ([], 0, None)
    assert next_due(never, mark=None, since=DAY, now=DAY) is None


def test_c07_c09_days_by_either_field_and_sunday_as_7_are_caught_up_once_each():
    week = DAY + timedelta(days=7)
    either = parse("0 10 1-7 * 1")
    assert [instant.day for instant in due(either, mark=DAY, since=DAY, now=week)] == list(
        range(2, 8)
    )
    sunday = parse("0 0 * * 0,7")
    assert due(sunday, mark=DAY, since=DAY, now=week).count == 1


def test_c13_a_repeated_catch_up_arrives_at_the_same_ids():
    first = due(FIVE, mark=clock("10:00:00"), since=clock("09:00:00"), now=clock("10:21:30"))
    again = due(FIVE, mark=clock("09:30:00"), since=clock("09:00:00"), now=clock("10:26:00"))
    ids = {scheduled_run_id("g", "n", "v1", instant) for instant in first}
    assert ids < {scheduled_run_id("g", "n", "v1", instant) for instant in again}


def test_c15_restarts_do_not_move_a_fixed_rate():
    hourly = timetable_of("@every 1h", activated=clock("07:00:00"))
    for restart in ("10:50:00", "10:55:00"):
        after = next_due(
            hourly, mark=clock("10:00:00"), since=clock("07:00:00"), now=clock(restart)
        )
        assert after == clock("11:00:00")


def test_c15_the_catch_up_of_a_fixed_rate_keeps_its_phase():
    rate = timetable_of("@every 10m", activated=clock("08:00:00"))
    found = due(rate, mark=clock("10:00:00"), since=clock("08:00:00"), now=clock("10:47:00"))
    assert times(found) == ["10:10", "10:20", "10:30", "10:40"]
    after = next_due(rate, mark=clock("10:47:00"), since=clock("08:00:00"), now=clock("10:47:00"))
    assert after == clock("10:50:00")


def test_a_fixed_rate_begins_one_period_after_its_activation():
    rate = timetable_of("@every 10m", activated=clock("08:03:07.5"))
    assert next_due(rate, mark=None, since=clock("08:03:07.5"), now=clock("08:04:00")) == clock(
        "08:13:07"
    )


def test_an_anchor_sets_the_phase_of_a_fixed_rate():
    rate = timetable_of("@every 24h", activated=clock("08:00:00"), anchor=clock("06:30:00"))
    after = next_due(rate, mark=None, since=clock("08:00:00"), now=clock("08:00:00"))
    assert after == clock("06:30:00") + timedelta(days=1)


def test_an_unanchored_rate_is_an_error():
    with pytest.raises(ValueError, match="has no anchor"):
        due(parse("@every 1h"), mark=None, since=DAY, now=DAY)


def test_a_wrong_expression_is_refused_when_a_schedule_is_made():
    with pytest.raises(CronError):
        timetable_of("0 0 * * 8", activated=DAY)


def test_c17_43200_missed_minutes_are_given_one_at_a_time():
    every_minute = parse("* * * * *")
    now = DAY + timedelta(days=30)
    list(due(every_minute, mark=DAY, since=DAY, now=now, policy=Policy(cap=50_000)))  # warm caches
    tracemalloc.start()
    try:
        found = due(every_minute, mark=DAY, since=DAY, now=now, policy=Policy(cap=50_000))
        number = sum(1 for _ in found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert number == found.count == 43_200
    assert found.dropped is None
    assert peak < 20_000


def test_c17_of_more_than_the_cap_the_latest_are_fired_and_the_rest_is_a_range():
    now = DAY + timedelta(days=30)
    found = due(parse("* * * * *"), mark=DAY, since=DAY, now=now)
    instants = list(found)
    assert len(instants) == found.count == CATCH_UP_CAP == 1000
    assert instants[-1] == now
    assert all(after - before == MINUTE for before, after in pairwise(instants))
    assert found.dropped == Dropped(42_200, DAY + MINUTE, instants[0] - MINUTE)


def test_c17_a_catch_up_goes_on_where_it_was_killed():
    every_minute, now = parse("* * * * *"), DAY + timedelta(days=2)
    policy = Policy(cap=10_000)
    done = list(islice(due(every_minute, mark=DAY, since=DAY, now=now, policy=policy), 1500))
    rest = list(due(every_minute, mark=done[-1], since=DAY, now=now + MINUTE, policy=policy))
    assert done + rest == [DAY + number * MINUTE for number in range(1, 2882)]


@pytest.mark.parametrize("expression", ["* * * * *", "@every 1m", "30 2 * * *"])
def test_c17_a_clock_in_the_year_2200_has_the_same_bounds(expression):
    timetable = timetable_of(expression, zone="America/New_York", activated=DAY)
    now = datetime(2200, 1, 1, tzinfo=UTC)
    found = due(timetable, mark=clock("10:00:00"), since=DAY, now=now)
    instants = list(found)
    assert len(instants) == 1000
    assert instants[-1] > now - timedelta(days=2)
    assert found.dropped.last == timetable.previous_before(instants[0])
    assert found.dropped.count + 1000 == timetable.count(clock("10:00:00"), now)


def test_c17_after_the_clock_came_back_from_2200_the_schedule_goes_on_at_once():
    wrong, now = datetime(2200, 1, 1, tzinfo=UTC), clock("10:21:30")
    assert list(due(FIVE, mark=wrong, since=clock("09:00:00"), now=now)) == []
    assert next_due(FIVE, mark=wrong, since=clock("09:00:00"), now=now) == clock("10:25:00")
    # activated while the clock was wrong
    assert next_due(FIVE, mark=None, since=wrong, now=now) == clock("10:25:00")
    assert times(due(FIVE, mark=clock("10:12:00"), since=wrong, now=now)) == ["10:15", "10:20"]


def test_a_snapshot_newer_than_the_activation_wins_and_the_other_way_round():
    early, late, now = clock("09:00:00"), clock("10:00:00"), clock("11:00:00")
    assert considered(early, late, now) == late
    assert considered(late, early, now) == late


def test_catch_up_latest_fires_one():
    policy = Policy(catch_up=CatchUp.LATEST)
    found = due(
        FIVE, mark=clock("10:00:00"), since=clock("09:00:00"), now=clock("10:21:30"), policy=policy
    )
    assert times(found) == ["10:20"]
    assert found.dropped == Dropped(3, clock("10:05:00"), clock("10:15:00"))


def test_catch_up_none_fires_what_is_due_now_and_nothing_that_was_missed():
    policy = Policy(catch_up=CatchUp.NONE)
    mark, since = clock("10:00:00"), clock("09:00:00")
    found = due(FIVE, mark=mark, since=since, now=clock("10:21:30"), policy=policy)
    assert times(found) == []
    assert found.dropped == Dropped(4, clock("10:05:00"), clock("10:20:00"))
    found = due(FIVE, mark=mark, since=since, now=clock("10:20:00"), policy=policy)
    assert times(found) == ["10:20"]
    assert found.dropped.count == 3


def test_instants_that_are_barely_late_are_not_missed():
    policy = Policy(catch_up=CatchUp.NONE, on_time=timedelta(seconds=90))
    mark, since = clock("10:00:00"), clock("09:00:00")
    for now, expected in (("10:21:30", ["10:20"]), ("10:21:30.000001", [])):
        found = due(FIVE, mark=mark, since=since, now=clock(now), policy=policy)
        assert times(found) == expected


def test_a_cap_below_one_is_an_error():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        Policy(cap=0)


@given(
    expression=st.sampled_from(["*/7 * * * *", "0 */3 * * *", "30 1,2 * * *", "@every 17m"]),
    missed=st.integers(0, 200_000),
    cap=st.integers(1, 40),
    catch_up=st.sampled_from(CatchUp),
)
@settings(deadline=None)
def test_what_is_fired_and_what_is_dropped_is_what_was_missed(expression, missed, cap, catch_up):
    begin = datetime(2026, 10, 30, 3, 4, 5, tzinfo=UTC)
    timetable = timetable_of(expression, zone="America/New_York", activated=begin)
    now = begin + timedelta(seconds=missed)
    found = due(
        timetable, mark=None, since=begin, now=now, policy=Policy(catch_up=catch_up, cap=cap)
    )
    fired = list(found)
    everything = list(between(timetable, begin + RESOLUTION, now))
    assert len(fired) == found.count
    dropped = everything[: len(everything) - len(fired)]
    assert dropped + fired == everything
    assert found.dropped == (Dropped(len(dropped), dropped[0], dropped[-1]) if dropped else None)
    if catch_up is CatchUp.ALL:
        assert len(fired) == min(cap, len(everything))


_moves = st.lists(
    st.tuples(
        st.sampled_from(["tick", "step", "crash"]),
        st.integers(-30 * 86_400, 30 * 86_400),
    ),
    min_size=1,
    max_size=12,
)


@given(expression=st.sampled_from(["0 */2 * * *", "30 2 * * *", "@every 5h"]), moves=_moves)
@settings(deadline=None)
def test_no_instant_is_lost_or_doubled_by_crashes_and_clock_steps(expression, moves):
    """Marks are saved at every other tick only, clocks step by up to 30 days, and ids tell what exists."""
    activated = now = seen = datetime(2026, 10, 1, 12, tzinfo=UTC)
    timetable = timetable_of(expression, zone="Europe/Berlin", activated=activated)
    policy = Policy(cap=100_000)
    runs = {}
    mark = saved = None
    for number, (kind, seconds) in enumerate([*moves, ("tick", 60 * 86_400)]):
        now = max(activated, now + timedelta(seconds=seconds if kind == "step" else abs(seconds)))
        seen = max(seen, now)
        if kind == "crash":
            mark = saved
        for instant in due(timetable, mark=mark, since=activated, now=now, policy=policy):
            runs.setdefault(scheduled_run_id("g", "n", "v", instant), instant)
        mark = now
        if number % 2:
            saved = mark
    assert sorted(runs.values()) == list(between(timetable, activated + RESOLUTION, seen))


def test_a_backfill_includes_both_ends():
    assert times(between(FIVE, clock("10:05:00"), clock("10:15:00"))) == ["10:05", "10:10", "10:15"]


@pytest.mark.parametrize(
    ("overlap", "exists", "running", "expected"),
    [
        (Overlap.ALLOW, False, True, Verdict.FIRE),
        (Overlap.ALLOW, False, False, Verdict.FIRE),
        (Overlap.SKIP, False, True, Verdict.SKIP),
        (Overlap.SKIP, False, False, Verdict.FIRE),
        (Overlap.SKIP, True, True, Verdict.EXISTS),
        (Overlap.ALLOW, True, False, Verdict.EXISTS),
    ],
)
def test_overlap(overlap, exists, running, expected):
    assert verdict(overlap, exists=exists, earlier_is_running=running) is expected
