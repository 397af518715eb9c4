"""kill -9 of the service before and after everything that it does to last, enumerated; crashing.py says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenario.crash_runs import SCENARIOS

ROOT = Path(__file__).parents[2]

LIVES = os.environ.get("SIMRUN_TEST_LIVES", "1")
"""2: the next start dies too, at what only a start after a crash does (make test-crash)."""

LEAST = {"split": 70, "bare": 60}
"""Points that there must be at least: an enumeration that has become empty would show nothing."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_kill_9_at_any_point_the_end_is_the_same_nothing_is_done_twice_and_nothing_lost(
    scenario: str, record_property: pytest.RecordProperty
) -> None:
    command = [sys.executable, "-m", "tests.scenario.crashing", scenario, "--lives", LIVES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    record_property("points", found["points"])
    assert found["problems"] == {}
    assert found["points"] >= LEAST.get(scenario, 5)
    # Whether two changes are one write depends on time, so some points come in some runs only; most must come
    missed = [point for point in found["missed"] if ", then " not in point]
    assert len(missed) <= found["points"] // 4
