"""What single expressions mean, and the edges of time."""

from __future__ import annotations

import itertools
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simrun.scheduler.cron import Cron, CronError, Every, check_activation, parse
from tests.scheduler.walk import specs

VECTORS = json.loads((Path(__file__).parent / "data" / "cron_vectors.json").read_text())
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def first(expression, after, zone=None, number=5):
    instants = parse(expression, zone).instants(at(after))
    return [
        instant.strftime("%Y-%m-%dT%H:%M:%SZ") for instant in itertools.islice(instants, number)
    ]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector):
    if vector.get("error"):
        with pytest.raises(CronError):
            parse(vector["expr"], vector["tz"])
        return
    assert first(vector["expr"], vector["after"], vector["tz"]) == vector["next"]
    assert parse(vector["expr"], vector["tz"]).never == bool(vector.get("never"))


def test_all_vectors_are_here():
    assert len(VECTORS) == 93


def test_c01_a_time_in_the_missing_hour_waits_for_the_next_day_and_is_told():
    nightly = parse("30 2 * * *", "America/New_York")
    begin = at("2026-03-07T00:00-05:00")

    assert first("30 2 * * *", "2026-03-07T00:00-05:00", "America/New_York") == [
        "2026-03-07T07:30:00Z",
        "2026-03-09T06:30:00Z",
        "2026-03-10T06:30:00Z",
        "2026-03-11T06:30:00Z",
        "2026-03-12T06:30:00Z",
    ]
    assert nightly.next_after(at("2026-03-07T07:30Z")) == at("2026-03-09T06:30Z")
    (missing,) = nightly.missing_times(begin, begin + timedelta(days=30))
    assert missing.local.isoformat() == "2026-03-08T02:30:00"
    assert missing.change == at("2026-03-08T07:00Z")


@pytest.mark.parametrize("expression", ["*/30 * * * *", "@hourly", "15 0-23 * * *"])
def test_what_runs_at_all_hours_misses_nothing_when_clocks_change(expression):
    timetable = parse(expression, "America/New_York")
    for begin in (at("2026-03-08T00:00Z"), at("2026-11-01T00:00Z")):
        end = begin + timedelta(days=1)
        instants = list(timetable.instants(begin, end))
        steps = {after - before for before, after in itertools.pairwise(instants)}
        assert len(steps) == 1
        assert list(timetable.missing_times(begin, end)) == []


def test_c03_a_time_in_the_repeated_hour_fires_at_both_instants():
    assert first("0 1 * * *", "2026-10-31T12:00-04:00", "America/New_York") == [
        "2026-11-01T05:00:00Z",
        "2026-11-01T06:00:00Z",
        "2026-11-02T06:00:00Z",
        "2026-11-03T06:00:00Z",
        "2026-11-04T06:00:00Z",
    ]
    assert first("30 1 1 11 *", "2026-11-01T01:45-04:00", "America/New_York") == [
        "2026-11-01T06:30:00Z",
        "2027-11-01T05:30:00Z",
        "2028-11-01T05:30:00Z",
        "2029-11-01T05:30:00Z",
        "2030-11-01T05:30:00Z",
    ]


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30 feb ?"])
def test_c05_a_date_that_never_comes_is_inert_and_refused_on_activation(expression):
    never = parse(expression, "Europe/Berlin")

    assert never.never
    assert never.next_after(NEW_YEAR) is None
    assert never.previous_before(NEW_YEAR) is None
    assert list(never.instants(NEW_YEAR)) == []
    assert never.count(NEW_YEAR, at("2200-01-01T00:00Z")) == 0
    assert list(never.missing_times(NEW_YEAR, at("2030-01-01T00:00Z"))) == []
    with pytest.raises(
        CronError, match=r"never fires: there is no day 3[01] in February"
    ) as caught:
        check_activation(never)
    assert expression in str(caught.value)
    assert (caught.value.fault.field, caught.value.fault.column) == (2, 5)


def test_c05_a_weekday_beside_a_date_that_never_comes_fires_on_the_weekday():
    mondays = parse("0 0 30 2 1")
    check_activation(mondays)
    assert first("0 0 30 2 1", "2026-01-01T00:00Z") == [
        "2026-02-02T00:00:00Z",
        "2026-02-09T00:00:00Z",
        "2026-02-16T00:00:00Z",
        "2026-02-23T00:00:00Z",
        "2027-02-01T00:00:00Z",
    ]


def test_c07_two_day_fields_mean_either_and_are_described_so():
    assert first("0 10 1-7 * 1", "2026-03-01T12:00Z") == [
        f"2026-03-0{day}T10:00:00Z" for day in (2, 3, 4, 5, 6)
    ]
    assert "on days 1 to 7 of the month or on Mondays" in parse("0 10 1-7 * 1").describe()


@pytest.mark.parametrize("expression", ["0 0 * * 7", "0 0 * * 0,7", "0 0 * * 7-7", "0 0 * * sun"])
def test_c09_sunday_may_be_written_7_and_fires_once(expression):
    assert first(expression, "2026-03-01T00:00Z") == [
        "2026-03-08T00:00:00Z",
        "2026-03-15T00:00:00Z",
        "2026-03-22T00:00:00Z",
        "2026-03-29T00:00:00Z",
        "2026-04-05T00:00:00Z",
    ]


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("5-7", {5, 6, 0}),
        ("0-7", {0, 1, 2, 3, 4, 5, 6}),
        ("1-7/2", {1, 3, 5, 0}),
        ("1/2", {1, 3, 5}),
        ("*/7", {0}),
        ("fri-7", {5, 6, 0}),
        ("SAT,sUn", {6, 0}),
    ],
)
def test_weekdays(field, days):
    instants = parse(f"0 0 * * {field}").instants(at("2026-03-01T00:00Z"), at("2026-03-08T00:00Z"))
    assert {instant.isoweekday() % 7 for instant in instants} == days


@pytest.mark.parametrize("star", ["*", "?", "*/1", "?/1", "*,5", "3,*"])
def test_a_day_field_that_takes_everything_does_not_restrict(star):
    assert first(f"0 0 {star} * 5", "2026-03-01T00:00Z", number=2) == [
        "2026-03-06T00:00:00Z",
        "2026-03-13T00:00:00Z",
    ]
    assert first(f"0 0 5 * {star}", "2026-03-01T00:00Z", number=2) == [
        "2026-03-05T00:00:00Z",
        "2026-04-05T00:00:00Z",
    ]


@pytest.mark.parametrize("full", ["1-31", "1/1", "*/2,2/2"])
def test_a_written_out_full_range_restricts(full):
    assert first(f"0 0 {full} * 5", "2026-03-01T00:00Z", number=2) == [
        "2026-03-02T00:00:00Z",
        "2026-03-03T00:00:00Z",
    ]


def test_next_is_strictly_after_to_the_microsecond():
    ten = parse("0 10 * * *")
    assert ten.next_after(at("2026-03-01T09:59:59.5Z")) == at("2026-03-01T10:00Z")
    assert ten.next_after(at("2026-03-01T10:00Z")) == at("2026-03-02T10:00Z")
    assert ten.next_after(at("2026-03-01T09:59:59.999999Z")) == at("2026-03-01T10:00Z")
    assert ten.previous_before(at("2026-03-01T10:00Z")) == at("2026-02-28T10:00Z")
    assert ten.previous_before(at("2026-03-01T10:00:00.000001Z")) == at("2026-03-01T10:00Z")
    assert ten.previous_before(at("2026-03-01T10:00:01Z")) == at("2026-03-01T10:00Z")


@pytest.mark.parametrize(
    "edge",
    [
        "2026-03-08T07:00Z",  # forwards
        "2026-11-01T06:00Z",  # back
        "2026-01-27T00:00Z",  # where one block of 2**17 minutes ends and the next begins
    ],
)
def test_no_minute_is_lost_where_stretches_meet(edge):
    every_minute = parse("* * * * *", "America/New_York")
    begin = at(edge) - timedelta(minutes=3)
    minutes = [begin + number * timedelta(minutes=1) for number in range(7)]
    assert list(every_minute.instants(minutes[0], minutes[-1])) == minutes[1:]
    assert [every_minute.previous_before(minute) for minute in minutes[1:]] == minutes[:-1]


def test_instants_are_taken_in_any_zone_and_given_in_utc():
    east = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=9)))
    following = parse("0 * * * *").next_after(east)
    assert following == at("2026-03-01T04:00Z")
    assert following.tzinfo is UTC


def test_an_instant_without_zone_is_an_error():
    with pytest.raises(TypeError):
        parse("0 * * * *").next_after(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("expression", ["CRON_TZ=Asia/Tokyo 0 9 * * *", "TZ=Asia/Tokyo  0 9 * * *"])
def test_a_prefix_sets_the_zone(expression):
    assert first(expression, "2026-03-01T00:30Z", number=1) == ["2026-03-02T00:00:00Z"]
    assert parse(expression).zone == "Asia/Tokyo"
    assert parse(expression, "Asia/Tokyo").text == expression


def test_a_prefix_before_a_descriptor_or_a_rate():
    assert first("TZ=Asia/Tokyo @daily", "2026-03-01T00:00Z", number=1) == ["2026-03-01T15:00:00Z"]
    assert parse("TZ=Asia/Tokyo @every 2h").seconds == 7200


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_descriptors(one, other):
    assert first(one, "2026-03-05T10:11Z", "Asia/Kolkata") == first(
        other, "2026-03-05T10:11Z", "Asia/Kolkata"
    )


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5h", 1800),
        ("1.h", 3600),
        ("90s", 90),
        ("1m1m", 120),
        ("59.999s", 59),
        ("1500ms", 1),
        ("999999us", 1),
        ("1ns", 1),
        ("1000000µs", 1),
        ("2000000μs", 2),
        ("0h1m", 60),
        ("2562047h", 2562047 * 3600),
        ("0.1000000000000000000000000000000h", 360),
    ],
)
def test_durations(duration, seconds):
    assert parse(f"@every {duration}") == Every(f"@every {duration}", seconds)


def test_a_rate_without_anchor_counts_from_the_instant_asked_about():
    hourly = parse("@every 1h")
    assert hourly.next_after(at("2026-03-01T10:50:30.7Z")) == at("2026-03-01T11:50:30Z")
    assert hourly.previous_before(at("2026-03-01T10:50:30Z")) == at("2026-03-01T09:50:30Z")
    assert hourly.count(at("2026-03-01T10:00Z"), at("2026-03-01T13:00Z")) == 3


@given(
    st.integers(1, 10**6),
    st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.datetimes(datetime(2000, 1, 1), datetime(2050, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_an_anchored_rate_is_a_grid(seconds, anchor, instant):
    grid = Every("", seconds).anchored(anchor)
    following, step = grid.next_after(instant), timedelta(seconds=seconds)

    assert (following - anchor.replace(microsecond=0)) % step == timedelta(0)
    assert instant < following <= instant + step
    previous = grid.previous_before(instant)
    assert (previous - anchor.replace(microsecond=0)) % step == timedelta(0)
    assert instant - step <= previous < instant
    assert grid.previous_before(following + timedelta(microseconds=1)) == following
    end = instant + 7 * step
    assert grid.count(instant, end) == len(list(grid.instants(instant, end))) == 7


@pytest.mark.parametrize(("rate", "fine"), [("59s", False), ("500ms", False), ("60s", True)])
def test_activation_refuses_periods_under_a_minute(rate, fine):
    timetable = parse(f"@every {rate}")
    if fine:
        check_activation(timetable)
        return
    with pytest.raises(CronError, match="shorter than a minute"):
        check_activation(timetable)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 1 1 *", "@every 1h"])
def test_the_ends_of_the_calendar_are_no_errors(zone, expression):
    timetable = parse(expression, zone)
    last, earliest = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    years = timedelta(days=800)

    assert timetable.next_after(last) is None
    assert timetable.previous_before(earliest) is None
    assert timetable.next_after(earliest) > earliest
    assert timetable.previous_before(last) < last
    assert timetable.count(earliest, earliest + years) >= 2
    assert timetable.count(last - years, last) >= 2


def test_counting_two_centuries_of_minutes_does_not_walk_them():
    begin, end = at("2026-01-01T00:00Z"), at("2200-01-01T00:00Z")
    minutes = (end - begin) // timedelta(minutes=1)
    assert parse("* * * * *", "Europe/Berlin").count(begin, end) == minutes
    assert parse("@every 1m").anchored(begin).count(begin, end) == minutes


def test_29_february_skips_the_century_that_has_none():
    assert parse("0 0 29 2 *").next_after(at("2096-03-01T00:00Z")) == at("2104-02-29T00:00Z")
    assert parse("0 0 29 2 *").previous_before(at("2104-02-01T00:00Z")) == at("2096-02-29T00:00Z")
    assert parse("0 0 29 2 *").next_after(at("1999-01-01T00:00Z")) == at("2000-02-29T00:00Z")


def test_a_timetable_says_what_it_is():
    timetable = parse("0 9 * * *", "Asia/Tokyo")
    assert isinstance(timetable, Cron)
    assert repr(timetable) == "<Cron '0 9 * * *' Asia/Tokyo>"


@given(st.text(max_size=30) | st.text("0123456789*?/,-@ \tTZ=CRON_everyhmsLW#.", max_size=30))
def test_any_text_is_a_timetable_or_refused_with_a_place(text):
    faults = ()
    try:
        parse(text)
    except CronError as error:
        faults = error.faults
    for fault in faults:
        assert 1 <= fault.column <= len(text) + 1
        assert fault.reason


def test_an_error_survives_the_way_between_processes():
    with pytest.raises(CronError) as caught:
        parse("61 * * * *")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.faults, str(copy)) == (caught.value.faults, str(caught.value))


@given(specs)
def test_texts_of_the_grammar_are_taken(spec):
    assert parse(f"\t{spec.text}  ").next_after(NEW_YEAR) != NEW_YEAR
