"""Cron by brute force: every minute of UTC is looked at on the wall clock. Shares no code with what it judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun"]


@dataclass(frozen=True)
class Part:
    """A field as text, and what it means."""

    text: str
    values: frozenset[int]
    star: bool


@dataclass(frozen=True)
class Spec:
    """An expression as text, and what it means."""

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return " ".join(part.text for part in self.parts)

    def has_day(self, day: date) -> bool:
        _, _, of_month, month, of_week = self.parts
        if day.month not in month.values:
            return False
        in_month, in_week = day.day in of_month.values, day.isoweekday() % 7 in of_week.values
        if of_month.star or of_week.star:
            return in_month and in_week
        return in_month or in_week

    def has(self, wall: datetime) -> bool:
        minute, hour = self.parts[:2]
        return (
            wall.minute in minute.values and wall.hour in hour.values and self.has_day(wall.date())
        )

    def fires(self, zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[datetime]:
        """Give the fires in (after, until]."""
        instant = after.replace(second=0, microsecond=0) + MINUTE
        while instant <= until:
            if self.has(instant.astimezone(zone)):
                yield instant
            instant += MINUTE

    def missing(self, zone: ZoneInfo, first: datetime, last: datetime) -> Iterator[datetime]:
        """Give the naive local minutes in [first, last) that match and that the zone's clocks never show."""
        wall = first
        while wall < last:
            back = wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None)
            if back != wall and self.has(wall):
                yield wall
            wall += MINUTE


@st.composite
def _items(draw: st.DrawFn, index: int) -> Part:
    """One item of a list: `*`, `?`, `N`, `N-M`, each perhaps with a step."""
    low, top = LIMITS[index]
    high = 7 if index == 4 else top
    form = draw(st.sampled_from(["star", "one", "range", "open"]))
    step = draw(st.integers(1, top + 5)) if form != "one" and draw(st.booleans()) else None
    if form == "star":
        text, first, last = draw(st.sampled_from("*?")), low, top
    else:
        first = draw(st.integers(low, top if form == "open" else high))
        last = draw(st.integers(first, high)) if form == "range" else first
        text = _written(draw, index, first)
        if form == "range":
            text += "-" + _written(draw, index, last)
        if form == "open":
            step, last = step or 1, top
    if step is not None:
        text += f"/{step}"
    values = {0 if value > top else value for value in range(first, last + 1, step or 1)}
    return Part(text, frozenset(values), form == "star" and step in (None, 1))


def _written(draw: st.DrawFn, index: int, value: int) -> str:
    names = {3: ["", *MONTHS], 4: WEEKDAYS}.get(index)
    # the name of Sunday is 0, also where 7 is meant
    if names is None or (index == 4 and value == 7) or draw(st.booleans()):
        return draw(st.sampled_from(["", "0"])) + str(value)
    return draw(st.sampled_from([str.lower, str.upper, str.title]))(names[value])


def _fields(index: int) -> st.SearchStrategy[Part]:
    def joined(items: list[Part]) -> Part:
        return Part(
            ",".join(item.text for item in items),
            frozenset[int]().union(*(item.values for item in items)),
            any(item.star for item in items),
        )

    every = st.just(Part("*", frozenset(range(LIMITS[index][0], LIMITS[index][1] + 1)), True))
    lists = st.lists(_items(index), min_size=1, max_size=3).map(joined)
    # half of the fields unrestricted, or hardly anything would ever fire
    return every | lists


specs = st.tuples(*(_fields(index) for index in range(5))).map(Spec)
