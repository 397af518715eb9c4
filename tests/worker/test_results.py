from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simrun.worker import files, results

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats()


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), SCALARS, max_size=5))
def test_a_flat_result_survives_but_for_numbers_json_cannot_say(value: dict[str, Any]) -> None:
    plain = results.flat(value)
    files.encode(plain)  # refuses NaN
    lost = set(results.lost_numbers(value))
    assert plain == {name: None if name in lost else item for name, item in value.items()}
    assert all(not math.isfinite(value[name]) for name in lost)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "an object of named values, not list"),
        ({"a": [1]}, "result 'a' must be text, a number, true, false or null, not list"),
        ({"a": {}}, "not dict"),
        ({"a": "x" * 300_000}, "at most 262144 bytes"),
    ],
)
def test_what_is_not_flat_is_refused_by_name(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        results.flat(value)


def test_a_result_file_is_read_where_there_is_one(tmp_path: Path) -> None:
    assert results.read(tmp_path) is None
    (tmp_path / "result.json").write_text('{"a": 1, "b": NaN}')
    assert results.read(tmp_path) == {"a": 1, "b": None}


def test_a_result_file_that_is_cut_huge_or_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"a": ')
    with pytest.raises(ValueError, match="is no JSON"):
        results.read(tmp_path)
    path.write_text('{"a": "' + "x" * 300_000 + '"}')
    with pytest.raises(ValueError, match="keep arrays in files of their own"):
        results.read(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="regular file"):
        results.read(tmp_path)
