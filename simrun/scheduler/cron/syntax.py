"""The whole of an expression: prefix for the zone, descriptor or five fields."""

from __future__ import annotations

import re
from typing import Final
from zoneinfo import ZoneInfo

from simrun.scheduler.cron.errors import FIELD_NAMES, CronError, CronFault
from simrun.scheduler.cron.every import Every, parse_every
from simrun.scheduler.cron.fields import KINDS, Field, Refused, parse_field
from simrun.scheduler.cron.timetable import Cron
from simrun.scheduler.cron.zones import load_zone

Timetable = Cron | Every
"""What an expression becomes. Both have next_after, previous_before, instants, count, describe, never and text."""

DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST = 1000
"""Characters of an expression. All values of all fields written out are 470."""
_PREFIX = re.compile(r"[ \t]*(?P<word>CRON_TZ|TZ)=(?P<zone>[^ \t]*)")
_WORD = re.compile(r"[^ \t]+")


def parse(expression: str, zone: str | None = None) -> Timetable:
    """Parse an expression; raise CronError, which says what is refused, where, and what to write instead.

    `zone` is an IANA name and UTC when not given. A prefix `CRON_TZ=Zone` or `TZ=Zone` sets it too; both are refused when they
    name two zones, since whichever won would surprise somebody.
    """
    if len(expression) > _LONGEST:
        reason = f"the expression has {len(expression)} characters, at most {_LONGEST} are taken"
        raise CronError(expression, CronFault(reason))
    begin, where = _prefix(expression, zone)
    words = list(_WORD.finditer(expression, begin))
    if not words:
        reason = "nothing follows the time zone" if begin else "the expression is empty"
        remedy = "write five fields, or a descriptor such as @daily"
        raise CronError(expression, CronFault(reason, column=len(expression) + 1, remedy=remedy))
    if words[0][0][0] == "@":
        return _descriptor(expression, words, where)
    if len(words) != len(KINDS):
        raise _wrong_number(expression, words)
    return Cron(expression, _fields(expression, words), where)


def field_place(expression: str, index: int) -> tuple[int, str]:
    """Give column and text of a field of an expression that has five."""
    match = _PREFIX.match(expression)
    word = list(_WORD.finditer(expression, match.end() if match else 0))[index]
    return word.start() + 1, word[0]


def _prefix(expression: str, zone: str | None) -> tuple[int, ZoneInfo]:
    """Give where the expression goes on after a prefix, and its zone."""
    match = _PREFIX.match(expression)
    if match and zone is not None and match["zone"] != zone:
        raise CronError(
            expression,
            CronFault(
                f"the expression names the time zone {match['zone']}, the schedule {zone}",
                column=match.start("zone") + 1,
                text=match["zone"],
                remedy="keep one of the two",
            ),
        )
    name = match["zone"] if match else zone
    try:
        where = load_zone("UTC" if name is None else name)
    except ValueError as error:
        column = match.start("zone") + 1 if match else 1
        remedy = "names are those of the IANA data base, e.g. Europe/Berlin"
        fault = CronFault(str(error), column=column, remedy=remedy)
        raise CronError(expression, fault) from None
    return match.end() if match else 0, where


def _descriptor(expression: str, words: list[re.Match[str]], zone: ZoneInfo) -> Timetable:
    name, rest = words[0][0], words[1:]
    column = words[0].start() + 1
    if name == "@every":
        if len(rest) > 1:
            reason = "a duration is written without blanks"
            at = rest[1].start() + 1
            raise CronError(expression, CronFault(reason, column=at, text=rest[1][0]))
        duration, begin = (rest[0][0], rest[0].start()) if rest else ("", len(expression))
        return parse_every(expression, duration, begin)
    fields = DESCRIPTORS.get(name)
    if fields is None:
        known = ", ".join([*DESCRIPTORS, "@every"])
        near = name.lower() in DESCRIPTORS or name.lower() == "@every"
        remedy = f"write {name.lower()}" if near else f"there are {known}"
        raise CronError(expression, CronFault("unknown descriptor", None, column, name, remedy))
    if rest:
        at = rest[0].start() + 1
        reason = f"nothing may follow {name}"
        raise CronError(expression, CronFault(reason, column=at, text=rest[0][0]))
    values = tuple(parse_field(index, text) for index, text in enumerate(fields.split()))
    return Cron(expression, values, zone)


def _wrong_number(expression: str, words: list[re.Match[str]]) -> CronError:
    order = f"the order is {', '.join(FIELD_NAMES)}"
    if len(words) > len(KINDS):
        surplus = words[len(KINDS)]
        reason = f"has {len(words)} fields instead of 5"
        remedy = f"{order}; seconds and years are not taken"
        fault = CronFault(reason, None, surplus.start() + 1, surplus[0], remedy)
    else:
        number = len(words)
        reason = f"has {number} field{'s' if number > 1 else ''} instead of 5"
        fault = CronFault(reason, None, words[-1].end() + 1, "", order)
    return CronError(expression, fault)


def _fields(expression: str, words: list[re.Match[str]]) -> tuple[Field, ...]:
    fields, faults = [], []
    for index, word in enumerate(words):
        try:
            fields.append(parse_field(index, word[0]))
        except Refused as fault:
            column = word.start() + fault.offset + 1
            faults.append(CronFault(fault.reason, index, column, fault.text, fault.remedy))
    if faults:
        raise CronError(expression, *faults)
    return tuple(fields)
