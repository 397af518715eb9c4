"""simrun schedule preview, without a server."""

from __future__ import annotations

import json

import pytest

from tests.cli.store import simrun


def preview(*arguments: str) -> list[str]:
    result = simrun("schedule", "preview", *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: list[str] = json.loads(result.stdout)
    return found


def test_a_preview_is_a_list_of_utc_instants_after_the_given_one() -> None:
    assert preview(
        "30 2 * * *",
        "--tz",
        "America/New_York",
        "--after",
        "2026-03-07T00:00-05:00",
        "--count",
        "3",
    ) == ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
    assert preview("*/5 * * * *", "--after", "2026-03-07T10:00Z", "--count", "1") == [
        "2026-03-07T10:05:00Z"
    ]
    assert preview("@every 90s", "--after", "2026-03-07", "--count", "2") == [
        "2026-03-07T00:01:30Z",
        "2026-03-07T00:03:00Z",
    ]


def test_without_an_instant_it_begins_now() -> None:
    assert len(preview("* * * * *")) == 5


def test_a_table_shows_the_clocks_of_the_zone() -> None:
    result = simrun(
        "schedule",
        "preview",
        "0 1 * * *",
        "--tz",
        "America/New_York",
        "--after",
        "2026-11-01T04:00Z",
        "--count",
        "2",
    )
    assert result.exit_code == 0
    assert "2026-11-01T05:00:00Z  Sun 2026-11-01 01:00 EDT" in result.stdout
    assert "2026-11-01T06:00:00Z  Sun 2026-11-01 01:00 EST" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["0 0 31 2 *"], "never fires"),
        (["61 * * * *"], "minute"),
        (["* * * * * *"], "6 fields"),
        (["@every -1m"], "no sign"),
        (["@daily", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["@daily", "--after", "tomorrow"], "no instant"),
        (["@daily", "--count", "0"], "0"),
    ],
)
def test_what_is_refused_or_never_fires_ends_with_2_and_the_reason(
    arguments: list[str], reason: str
) -> None:
    result = simrun("schedule", "preview", *arguments, "-o", "json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert reason in json.loads(result.stderr)["message"]


def test_one_plan_or_all_are_paused_and_not_neither() -> None:
    for what in ("pause", "resume"):
        assert simrun("schedule", what).exit_code == 2
        assert simrun("schedule", what, "nightly", "--all").exit_code == 2
