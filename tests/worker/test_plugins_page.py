"""The example of docs/reference/plugins.md does what the page says, and the page names what plugins are given."""

from __future__ import annotations

import re
from pathlib import Path

from simrun.worker import call
from tests.worker.campaign import Campaign, ref

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "plugins.md").read_text()

REQUEST = {
    "params": {},
    "index": 0,
    "key": "",
    "seed": 1,
    "seed31": 1,
    "inputs": {},
    "out": "/out",
    "scratch": "/scratch",
    "cpus": None,
    "memory_gb": None,
    "result": None,
    "reason": "",
    "units": [],
    "failed": [],
}


def example() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_runs(campaign: Campaign) -> None:
    campaign.make(
        example(),
        params={"steps": 20, "drifts": [0.0, 5.0]},
        units={"kind": "plugin", "plugin": ref("directions")},
        merge={"plugin": ref("summarise")},
        outputs={"summary": "summary.csv"},
        plugin={"file": "code/plugin.py", "function": "walk"},
    )
    ended = campaign.run()
    assert ended.code == 0, ended.output
    lines = (campaign.dir.out / "summary.csv").read_text().splitlines()
    assert lines[0] == "drift,distance"
    assert [line.split(",")[0] for line in lines[1:]] == ["0.0", "5.0"]
    assert "drift=5.0: ended at " in ended.output


def test_every_attribute_is_on_the_page() -> None:
    for name in vars(call.Unit(REQUEST)):
        assert f"`unit.{name}`" in PAGE
    for name in vars(call.Merge(REQUEST)):
        assert f"`merge.{name}`" in PAGE
    units, failed = PAGE.split("`merge.units`")[1].split("`merge.failed`")
    for name in vars(call.DoneUnit(REQUEST)):
        assert f"`.{name}`" in units
    for name in vars(call.FailedUnit(REQUEST)):
        assert f"`.{name}`" in failed.split("`merge.params`")[0]
