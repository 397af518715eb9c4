"""What is refused, why, and where: the field (0 to 4), the column (from 1)."""

from __future__ import annotations

import pytest

from simrun.base.errors import InvalidInput
from simrun.scheduler.cron import CronError, parse

REFUSED = [
    ("60 * * * *", 0, 1, "must be 0 to 59"),
    ("* 24 * * *", 1, 3, "must be 0 to 23"),
    ("* * 0 * *", 2, 5, "must be 1 to 31"),
    ("* * 32 * *", 2, 5, "must be 1 to 31"),
    ("* * * 13 *", 3, 7, "must be 1 to 12"),
    ("* * * * 8", 4, 9, "must be 0 to 7"),
    ("* * * * 1-8", 4, 11, "must be 0 to 7"),
    ("0 0 1,2,40 * *", 2, 9, "must be 1 to 31"),
    (f"{'9' * 900} * * * *", 0, 1, "must be 0 to 59"),
    ("*/0 * * * *", 0, 3, "step of zero"),
    ("5/ * * * *", 0, 3, "step is missing"),
    ("/5 * * * *", 0, 1, "counts from is missing"),
    ("*/a * * * *", 0, 3, "whole number above zero"),
    ("1/2/3 * * * *", 0, 4, "more than one step"),
    ("* * * 1/feb *", 3, 9, "whole number above zero"),
    ("5-1 * * * *", 0, 1, "runs backwards, from 5 to 1"),
    ("* * * * sat-sun", 4, 9, "Sunday at the end of a range is 7: sat-7"),
    ("* * * * 7-2", 4, 9, "Sunday at the beginning of a range is 0"),
    ("* * * * 7/2", 4, 9, "Sunday at the beginning of a range is 0"),
    ("* * * * fri-mon", 4, 9, "write it as fri-sat,sun-mon"),
    ("* * * nov-feb *", 3, 7, "write it as nov-dec,jan-feb"),
    ("* 22-4 * * *", 1, 3, "write it as 22-23,0-4"),
    ("1-2-3 * * * *", 0, 4, "one beginning and one end"),
    ("1- * * * *", 0, 3, "end of the range is missing"),
    ("-5 * * * *", 0, 1, "can't be negative"),
    ("+5 * * * *", 0, 1, "numbers have no sign"),
    ("*-5 * * * *", 0, 1, "can't begin a range"),
    ("? ?-3 * * *", 1, 3, "can't begin a range"),
    (", * * * *", 0, 1, "item of the list is empty"),
    ("1,,2 * * * *", 0, 3, "item of the list is empty"),
    ("1, * * * *", 0, 3, "item of the list is empty"),
    ("1.5 * * * *", 0, 2, "whole numbers"),
    ("1_0 * * * *", 0, 2, "no separators"),
    ("0x1 * * * *", 0, 1, "no value of this field"),
    ("1e1 * * * *", 0, 1, "no value of this field"),
    ("*5 * * * *", 0, 1, "no value of this field"),
    ("٣ * * * *", 0, 1, "only the digits 0 to 9"),
    ("1² * * * *", 0, 2, "only the digits 0 to 9"),
    ("１ * * * *", 0, 1, "only the digits 0 to 9"),  # noqa: RUF001 - full-width
    ("* * jan * *", 2, 5, "a name of the field 'month'"),
    ("* * * mon *", 3, 7, "a name of the field 'day of week'"),
    ("* * * * Monday", 4, 9, "write mon"),
    ("* * * * tues", 4, 9, "write tue"),
    ("* * * * MON#1", 4, 12, "'#' has no meaning"),
    ("0 0 L * *", 2, 5, "other cron dialects"),
    ("0 0 15W * *", 2, 5, "other cron dialects"),
    ("0 0 L-3 * *", 2, 5, "other cron dialects"),
    ("0 0 * * 5L", 4, 9, "other cron dialects"),
    ("H * * * *", 0, 1, "other cron dialects"),
    ("0 0 * *\n1 *", 3, 8, "no meaning"),
    ("* * * *\u00a0* *", 3, 8, "no meaning"),
    ("* * * *", None, 8, "has 4 fields instead of 5"),
    ("5", None, 2, "has 1 field instead of 5"),
    ("0 0 12 * * ? 2026", None, 12, "seconds and years are not taken"),
    ("", None, 1, "expression is empty"),
    (" \t ", None, 4, "expression is empty"),
    (" " * 1001, None, 1, "at most 1000"),
    ("@reboot", None, 1, "unknown descriptor"),
    (" @Daily", None, 2, "write @daily"),
    ("@", None, 1, "unknown descriptor"),
    ("@daily 5", None, 8, "nothing may follow @daily"),
    ("@every", None, 7, "duration is missing"),
    ("@every ", None, 8, "duration is missing"),
    ("@every -30s", None, 8, "no sign"),
    ("@every +30s", None, 8, "no sign"),
    ("@every 1w", None, 9, "'w' is no unit"),
    ("@every 1d", None, 9, "a day is 24h"),
    ("@every 1H", None, 9, "'H' is no unit"),
    ("@every 1h30", None, 12, "unit is missing"),
    ("@every 1h 30m", None, 11, "without blanks"),
    ("@every 0", None, 9, "unit is missing"),
    ("@every 0s", None, 8, "zero has no next time"),
    ("@every 0h0m", None, 8, "zero has no next time"),
    ("@every .s", None, 8, "a number is expected"),
    ("@every h", None, 8, "a number is expected"),
    ("@every 1e3s", None, 9, "'e' is no unit"),
    ("@every infs", None, 8, "a number is expected"),
    ("@every ٣s", None, 8, "a number is expected"),
    ("@every 1h,", None, 10, "a number is expected"),
    ("@every 2562048h", None, 8, "longer than 292 years"),
    (f"@every {'1' * 50}h", None, 8, "too long"),
    ("TZ=UTC", None, 7, "nothing follows the time zone"),
    ("CRON_TZ=UTC ", None, 13, "nothing follows the time zone"),
    ("TZ= 0 0 * * *", None, 4, "time zone is empty"),
    ("TZ=Europe/Belrin 0 0 * * *", None, 4, "no time zone 'Europe/Belrin'"),
    ("tz=UTC 0 0 * * *", None, 16, "has 6 fields instead of 5"),
]


@pytest.mark.parametrize(("expression", "field", "column", "reason"), REFUSED)
def test_an_expression_is_refused_with_reason_and_place(expression, field, column, reason):
    with pytest.raises(CronError) as caught:
        parse(expression)
    fault = caught.value.fault
    assert (fault.field, fault.column) == (field, column)
    assert reason in str(caught.value)


def test_every_field_that_is_wrong_is_told_at_once():
    with pytest.raises(InvalidInput) as caught:
        parse("61 * 0 * Monday")
    assert str(caught.value).splitlines() == [
        "'61 * 0 * Monday' column 1: minute: must be 0 to 59 (got '61')",
        "'61 * 0 * Monday' column 6: day of month: must be 1 to 31 (got '0')",
        "'61 * 0 * Monday' column 10: day of week: names have three letters (got 'Monday'); write mon",
    ]


def test_a_long_expression_is_cut_in_its_error():
    with pytest.raises(CronError) as caught:
        parse("9" * 900)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Olympus",
        "Europe",
        "zone.tab",
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "right/UTC",
        "posix/UTC",
        "posixrules",
        "Factory",
        "Europe/Berlin ",
        "Europe/Berlin\0",
        "\ud800",
        "x" * 5000,
    ],
)
def test_a_zone_that_is_none_is_refused(zone):
    with pytest.raises(CronError, match="time zone"):
        parse("0 0 * * *", zone)


def test_two_zones_are_refused():
    with pytest.raises(
        CronError, match="names the time zone Asia/Tokyo, the schedule UTC"
    ) as caught:
        parse("TZ=Asia/Tokyo 0 0 * * *", "UTC")
    assert caught.value.fault.column == 4
