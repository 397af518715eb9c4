"""The engine against a walk over every minute, around the changes of clocks that are known for being hard."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.scheduler.cron import Cron, parse
from tests.scheduler.walk import Part, Spec, specs

# Zone and a day about which clocks change, or something else is odd
HARD = (
    ("UTC", date(2026, 2, 28)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2028, 10, 29)),
    ("Europe/Dublin", date(2026, 10, 25)),  # winter is the time that is saved
    ("Africa/Casablanca", date(2024, 3, 10)),  # back for Ramadan
    ("Africa/Casablanca", date(2024, 4, 14)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),  # half an hour
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Antarctica/Troll", date(2026, 3, 29)),  # two hours
    ("America/Sao_Paulo", date(2018, 11, 4)),  # midnight is missing
    ("America/Havana", date(2024, 11, 3)),  # midnight comes twice
    ("America/St_Johns", date(2006, 4, 2)),  # a minute past midnight, and half-hour zone
    ("America/St_Johns", date(2006, 10, 29)),
    ("Asia/Amman", date(2021, 10, 29)),
    ("Asia/Gaza", date(2040, 10, 20)),  # two changes within a week
    ("Asia/Kolkata", date(2026, 3, 1)),
    ("Asia/Pyongyang", date(2018, 5, 4)),  # 23:30 became midnight
    ("Pacific/Apia", date(2011, 12, 30)),  # a day that was left out
    ("Pacific/Kwajalein", date(1993, 8, 21)),
    ("America/Juneau", date(1867, 10, 18)),  # a day that came twice, in local mean time
    ("Pacific/Chatham", date(2026, 4, 5)),
    ("Africa/Monrovia", date(1972, 1, 7)),  # an offset with seconds until then
    ("Europe/Amsterdam", date(1937, 7, 1)),  # seconds on both sides
    ("Africa/Freetown", date(1939, 9, 3)),  # four days of another time
)
FOUR_YEARS = [date(2024, 1, 1) + timedelta(days=number) for number in range(4 * 366)]
around = st.sampled_from(HARD).flatmap(
    lambda hard: st.builds(
        lambda hours, minutes, seconds: (
            hard[0],
            datetime(hard[1].year, hard[1].month, hard[1].day, tzinfo=UTC)
            + timedelta(hours=hours, minutes=minutes, seconds=seconds),
        ),
        st.integers(-40, 24),
        st.integers(0, 59),
        st.sampled_from([0, 0, 1, 59, 59.5]),
    )
)


def cron(text: str, zone: str) -> Cron:
    timetable = parse(text, zone)
    assert isinstance(timetable, Cron)
    return timetable


@given(spec=specs, where=around, hours=st.integers(1, 60))
@settings(deadline=None, max_examples=150)
def test_fires_are_the_minutes_whose_wall_clock_matches(
    spec: Spec, where: tuple[str, datetime], hours: int
) -> None:
    zone, after = where
    until = after + timedelta(hours=hours)
    timetable = cron(spec.text, zone)
    expected = list(spec.fires(ZoneInfo(zone), after, until))

    assert list(timetable.instants(after, until)) == expected
    assert timetable.count(after, until) == len(expected)
    following = timetable.next_after(after)
    if expected:
        assert following == expected[0]
        assert timetable.previous_before(until + timedelta(microseconds=1)) == expected[-1]
    else:
        assert following is None or following > until


@given(spec=specs, where=around)
@settings(deadline=None, max_examples=80)
def test_previous_is_the_inverse_of_next(spec: Spec, where: tuple[str, datetime]) -> None:
    zone, after = where
    timetable = cron(spec.text, zone)
    forwards = [instant for instant, _ in zip(timetable.instants(after), range(20), strict=False)]
    backwards: list[datetime] = []
    instant = forwards[-1] + timedelta(seconds=1) if forwards else None
    while instant is not None and len(backwards) < len(forwards):
        instant = timetable.previous_before(instant)
        assert instant is not None
        backwards.append(instant)
    assert backwards == forwards[::-1]
    if forwards:
        before = timetable.previous_before(forwards[0])
        assert before is None or before <= after


@given(spec=specs, begin=st.dates(date(1990, 1, 1), date(2100, 12, 31)))
@settings(deadline=None, max_examples=60)
def test_days_that_are_years_apart_are_found(spec: Spec, begin: date) -> None:
    once_a_day = Spec(
        (Part("30", frozenset([30]), False), Part("12", frozenset([12]), False), *spec.parts[2:])
    )
    days = [begin + timedelta(days=number) for number in range(1, 9 * 366)]
    expected = [day for day in days if once_a_day.has_day(day)]
    timetable = cron(once_a_day.text, "Europe/Berlin")
    noon = datetime(begin.year, begin.month, begin.day, 12, 30, tzinfo=ZoneInfo("Europe/Berlin"))

    found = [
        instant.date()
        for instant in takewhile(
            lambda instant: instant.date() <= days[-1], timetable.instants(noon)
        )
    ]
    assert found == expected
    assert timetable.never == (not expected)


@given(spec=specs, where=st.sampled_from(HARD))
@settings(deadline=None, max_examples=80)
def test_missing_times_are_the_ones_no_clock_shows(spec: Spec, where: tuple[str, date]) -> None:
    zone, day = where
    timetable = cron(spec.text, zone)
    middle = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    first, last = middle - timedelta(days=2), middle + timedelta(days=2)
    walls = [
        moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None, second=0) for moment in (first, last)
    ]
    expected = list(spec.missing(ZoneInfo(zone), *walls))
    if len(spec.parts[1].values) == 24 and all(map(spec.has_day, FOUR_YEARS)):
        expected = []  # goes on in the next hour

    found = list(timetable.missing_times(first, last))
    assert [missing.local for missing in found] == expected
    for missing in found:
        assert first < missing.change <= last
        assert timetable.next_after(missing.change - timedelta(seconds=1)) != missing.local
