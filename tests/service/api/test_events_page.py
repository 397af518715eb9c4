"""docs/reference/events.md names what the API has, no more and no less."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from simrun.model.record import RunState
from simrun.service import events
from simrun.service.api import events as api_events
from simrun.service.api.runlist import PAGE as RUNS_OF_A_PAGE
from simrun.service.api.runlist import PAGE_MAX, RunQuery
from simrun.service.progress import RunProgress
from simrun.service.runrow import DAMAGED, RunRow

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "events.md").read_text()


def column(heading: str) -> set[str]:
    """Give the names in the first column of the first table under a heading."""
    table = PAGE.split(f"\n{heading}\n", 1)[1].split("\n|---", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_filters_are_those_of_the_list() -> None:
    assert column("## The list") == set(RunQuery.model_fields)
    assert f"1 to {PAGE_MAX}; {RUNS_OF_A_PAGE} where it is absent" in PAGE


def test_the_fields_of_a_row_and_of_progress_are_named() -> None:
    assert column("A row:") == {field.name for field in dataclasses.fields(RunRow)}
    row = json.loads(re.findall(r"^data: (\{.*\})$", PAGE, re.MULTILINE)[-1])
    assert list(row) == [field.name for field in dataclasses.fields(RunRow)]
    of_one = PAGE.split("### Of one run", 1)[1].split("\n\n", 2)[1]
    for field in dataclasses.fields(RunProgress):
        assert f"`{field.name}`" in of_one
    for state in (*RunState, DAMAGED):
        assert f"`{state}`" in PAGE


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"the last {events.RING:,} are kept" in PAGE
    assert f"ended in the last {events.KEPT_S / 60:.0f} minutes" in PAGE
    assert f"takes nothing for {api_events.STALLED_S:.0f} seconds" in PAGE
    for name in ("X-Accel-Buffering", "Cache-Control"):
        assert f"`{name}: {api_events.HEADERS[name]}`" in PAGE
