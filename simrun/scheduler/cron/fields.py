"""One field of a cron expression: its text becomes a set of values.

What is taken is narrow on purpose. Cron dialects differ in `L`, `W`, `#`, `H`, in backwards ranges and in words; whoever
writes one of these means something that simrun would not do, so each is refused with what to write instead. `str.isdigit`
and `int` take digits of other scripts, signs and `_`; the patterns here are ASCII and do not.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simrun.scheduler.cron.errors import FIELD_NAMES

_ITEM = re.compile(
    r"(?:(?P<star>[*?])|(?P<first>[A-Za-z]+|[0-9]+)(?:-(?P<last>[A-Za-z]+|[0-9]+))?)(?:/(?P<step>[0-9]+))?"
)
_OTHER_DIALECTS = re.compile(r"[LWH]|LW|L-[0-9]{1,2}|[0-9]{1,2}[LW]")
_ENOUGH_DIGITS = 9
"""No value has more digits; int() of thousands of them is slow, and refused by Python with another error."""
_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAY_NAMES = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What one of the five fields may hold.

    `top` is where `*` and `N/step` end, `high` the greatest value that may be written: only the day of the week, where 7 is a
    second word for Sunday, tells them apart.
    """

    index: int
    low: int
    top: int
    high: int
    names: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def full(self) -> int:
        """Give the set of all values, as bits."""
        return (1 << self.top + 1) - (1 << self.low)


KINDS: Final = (
    Kind(0, 0, 59, 59),
    Kind(1, 0, 23, 23),
    Kind(2, 1, 31, 31),
    Kind(3, 1, 12, 12, {name: number for number, name in enumerate(_MONTH_NAMES, 1)}),
    Kind(4, 0, 6, 7, {name: number for number, name in enumerate(_DAY_NAMES)}),
)


class Field(NamedTuple):
    """The values of a field: bit n of `values` stands for the value n. `star` says that the field does not restrict."""

    values: int
    star: bool


class Refused(Exception):  # noqa: N818 - a message between two modules, turned into a CronError there
    """Raised when a field is refused; `offset` counts characters of the field from 0."""

    def __init__(self, reason: str, offset: int, text: str, remedy: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.offset, self.text, self.remedy = reason, offset, text, remedy


@functools.lru_cache(maxsize=4096)
def parse_field(index: int, text: str) -> Field:
    """Parse the text of field `index`; raise Refused. Thousands of schedules share a few dozen texts, hence the cache."""
    kind = KINDS[index]
    values, star, offset = 0, False, 0
    for item in text.split(","):
        if not item:
            raise Refused(
                "an item of the list is empty", offset, text, "take out the comma that is too many"
            )
        match = _ITEM.fullmatch(item)
        if match is None:
            raise Refused(*_diagnosis(kind, item, offset))
        step = _step(match, offset)
        if match["star"]:
            first, last = kind.low, kind.top
            star = star or step == 1
        else:
            first, last = _range(kind, match, offset)
        for value in range(first, last + 1, step):
            values |= 1 << (0 if value > kind.top else value)
        offset += len(item) + 1
    return Field(values, star)


def _step(match: re.Match[str], offset: int) -> int:
    if match["step"] is None:
        return 1
    step = _number(match["step"])
    if step == 0:
        raise Refused(
            "a step of zero leads nowhere",
            offset + match.start("step"),
            match[0],
            "the least step is 1",
        )
    return step


def _range(kind: Kind, match: re.Match[str], offset: int) -> tuple[int, int]:
    """Give the first and last value of `N`, `N-M` or, with a step, `N` to the top of the field."""
    first = _value(kind, match["first"], offset)
    if match["last"] is not None:
        last = _value(kind, match["last"], offset + match.start("last"))
    else:
        last = first if match["step"] is None else kind.top
    if first > last:
        top, low = (
            _written(kind, kind.top, match["first"]),
            _written(kind, kind.low, match["first"]),
        )
        remedy = f"write it as {match['first']}-{top},{low}-{match['last']}"
        if first > kind.top:
            remedy = "Sunday at the beginning of a range is 0"
        elif kind.index == 4 and last == 0:
            remedy = f"Sunday at the end of a range is 7: {match['first']}-7"
        raise Refused(f"the range runs backwards, from {first} to {last}", offset, match[0], remedy)
    return first, last


def _written(kind: Kind, value: int, like: str) -> str:
    """Give `value` as a name where its neighbour in the range is one, so that a remedy can be copied."""
    named = {number: name for name, number in kind.names.items()}
    return named.get(value, str(value)) if like.isalpha() else str(value)


def _value(kind: Kind, text: str, offset: int) -> int:
    if text[0] in "0123456789":
        number = _number(text)
        if not kind.low <= number <= kind.high:
            raise Refused(f"must be {kind.low} to {kind.high}", offset, text)
        return number
    name = text.lower()
    if name in kind.names:
        return kind.names[name]
    raise Refused(*_strange_word(kind, text, offset))


def _number(digits: str) -> int:
    significant = digits.lstrip("0")
    return int((significant or "0") if len(significant) <= _ENOUGH_DIGITS else "9" * _ENOUGH_DIGITS)


def _strange_word(kind: Kind, text: str, offset: int) -> tuple[str, int, str, str | None]:
    name = text.lower()
    for other in KINDS:
        if name in other.names:
            reason = f"is a name of the field {FIELD_NAMES[other.index]!r}"
            return (
                reason,
                offset,
                text,
                "the order is minute, hour, day of month, month, day of week",
            )
    if name[:3] in kind.names and len(name) > 3:
        return "names have three letters", offset, text, f"write {name[:3]}"
    if _OTHER_DIALECTS.fullmatch(text):
        return (
            "L, W and H are of other cron dialects",
            offset,
            text,
            "only numbers say days and times",
        )
    words = f"numbers {kind.low} to {kind.high}" + (" and three-letter names" if kind.names else "")
    return "is no value of this field", offset, text, f"it takes {words}"


def _diagnosis(kind: Kind, item: str, offset: int) -> tuple[str, int, str, str | None]:
    """Say what is wrong with an item that has none of the forms."""
    for position, sign in enumerate(item):
        if not sign.isascii() and sign.isdigit():
            return "only the digits 0 to 9 are taken", offset + position, item, None
    if found := re.search(r"[^0-9A-Za-z*?/-]", item):
        sign = found[0]
        remedy = {
            "#": "the n-th weekday of a month can't be said in cron; use a day range and check the weekday in the workflow",
            "+": "numbers have no sign",
            ".": "values are whole numbers",
            "_": "numbers have no separators",
        }.get(sign)
        return f"the character {sign!r} has no meaning here", offset + found.start(), item, remedy
    if "/" in item:
        base, _, step = item.partition("/")
        if not base:
            return "what the step counts from is missing", offset, item, f"write *{item}"
        if not step.isdigit():
            return _step_diagnosis(step, offset + len(base) + 1, item)
        item = base
    if item[0] == "-":
        return "values can't be negative", offset, item, None
    if item[0] in "*?" and item[1:2] == "-":
        return f"{item[0]} is all values and can't begin a range", offset, item, None
    if item.count("-") > 1:
        return "a range has one beginning and one end", offset + item.rindex("-"), item, None
    if item.endswith("-"):
        return "the end of the range is missing", offset + len(item), item, None
    return _strange_word(kind, item, offset)


def _step_diagnosis(step: str, offset: int, item: str) -> tuple[str, int, str, str | None]:
    if not step:
        return "the step is missing", offset, item, None
    if "/" in step:
        return "has more than one step", offset + step.rindex("/"), item, None
    return "a step is a whole number above zero", offset, item, None
