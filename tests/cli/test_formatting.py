"""Text for people."""

from __future__ import annotations

import pytest

from simrun.cli.formatting import clean, cut, cut_middle, duration, pad, table, width_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-1, "0.0s"),
        (0.44, "0.4s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (200, "3m20s"),
        (7500, "2h05m"),
        (273600, "3d04h"),
    ],
)
def test_durations_have_two_parts_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_control_characters_never_reach_the_terminal() -> None:
    assert clean("a\x1b[31mb\x07\n\tc\u202e") == "a\ufffd[31mb\ufffd  c\ufffd"


def test_text_is_cut_by_the_columns_that_it_takes() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert width_of(cut("轨道轨道轨道", 6)) <= 6
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""
    assert pad("轨", 4) == "轨  "


def test_names_are_cut_in_the_middle_since_they_differ_at_their_ends() -> None:
    assert cut_middle("sweep-over-all-masses-17", 12) == "sweep…ses-17"


def test_a_table_aligns_its_columns_and_sets_numbers_flush_right() -> None:
    assert table(("name", "n"), [("a", "1"), ("longer", "100")], right=(1,)).splitlines() == [
        "NAME      N",
        "a         1",
        "longer  100",
    ]
