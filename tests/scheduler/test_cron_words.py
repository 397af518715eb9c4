"""What people read about an expression."""

from __future__ import annotations

import pytest

from simrun.scheduler.cron import parse


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/40 * * * *", "at minutes 0 and 40 of every hour"),
        ("5 * * * *", "at minute 5 of every hour"),
        ("@hourly", "every hour"),
        ("0 */6 * * *", "every 6 hours from 00:00"),
        ("0 */12 * * mon-fri", "every 12 hours from 00:00 from Monday to Friday"),
        ("0 */5 * * *", "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day"),
        ("*/10 9-17 * * *", "every 10 minutes in hours 9 to 17"),
        ("* 3 * * *", "every minute in hour 3"),
        ("1,2,3,30 8-10,20 * * *", "at minutes 1 to 3 and 30 of hours 8 to 10 and 20"),
        ("30 2 * * *", "at 02:30 every day"),
        ("30 2,14 * * *", "at 02:30 and 14:30 every day"),
        ("0 9 * * mon-fri", "at 09:00 from Monday to Friday"),
        ("0 9 * * 5-7", "at 09:00 from Friday to Sunday"),
        ("0 9 * * 0,6", "at 09:00 on Saturdays and Sundays"),
        ("0 9 * * 1-3,6", "at 09:00 on Monday to Wednesday and Saturdays"),
        ("0 10 1-7 * 1", "at 10:00 on days 1 to 7 of the month or on Mondays"),
        ("@monthly", "at 00:00 on day 1 of the month"),
        ("@yearly", "at 00:00 on day 1 of January"),
        ("0 0 1,15 jan,jul *", "at 00:00 on days 1 and 15 of January and July"),
        ("0 0 30 2 1", "at 00:00 on day 30 of February or on Mondays in February"),
        ("0 6 * 3-5 *", "at 06:00 every day in March to May"),
        ("* * * 12 *", "every minute every day in December"),
        ("0 0 1-31 * 1", "at 00:00 on days 1 to 31 of the month or on Mondays"),
    ],
)
def test_words(expression, words):
    assert parse(expression, "Asia/Tokyo").describe() == f"{words}, Asia/Tokyo"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("@every 1h", "every hour, counted in real time"),
        ("@every 90m", "every 1 hour 30 minutes, counted in real time"),
        ("@every 48h", "every 48 hours, counted in real time"),
        ("@every 61s", "every 1 minute 1 second, counted in real time"),
    ],
)
def test_words_of_a_rate(expression, words):
    assert parse(expression).describe() == words
