"""Merges: the kinds, the plugin and the command, the marker, and merges that were killed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from simrun.worker.merge import ranges
from tests.worker.campaign import TASK, Campaign, ref

COMPUTE = """
def compute(unit):
    if unit.params["x"] < 0:
        raise ValueError("x must not be negative")
    (unit.out / "value.txt").write_text(str(unit.params["x"]))
    return {"y": unit.params["x"] / 2, "hits": unit.params["x"], "word": "w", "good": True}
"""
ROWS = [{"x": 1}, {"x": -1}, {"x": 3}]
ONE_MAY_FAIL = {"failures_allowed": 1, "unit_tries": 1}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_has_a_row_for_every_unit_failed_ones_too(campaign: Campaign) -> None:
    campaign.split(ROWS, COMPUTE, **ONE_MAY_FAIL)
    assert campaign.run().code == 0
    rows = table(campaign.dir.out / "table.csv")
    assert [(row["unit"], row["key"], row["x"], row["state"], row["y"]) for row in rows] == [
        ("0", "x=1", "1", "done", "0.5"),
        ("1", "x=-1", "-1", "failed", ""),
        ("2", "x=3", "3", "done", "1.5"),
    ]
    assert rows[1]["reason"].endswith("x must not be negative")
    text = (campaign.dir.out / "table.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[2] == {
        "unit": 2,
        "key": "x=3",
        "x": 3,
        "state": "done",
        "reason": None,
        "y": 1.5,
        "hits": 3,
        "word": "w",
        "good": True,
    }


def test_names_that_are_taken_get_their_origin_in_front(campaign: Campaign) -> None:
    source = "def compute(unit):\n    return {'x': 5, 'state': 'hot'}\n"
    campaign.split([{"x": 1, "key": "k", "list": [1, None]}], source)
    assert campaign.run().code == 0
    (row,) = table(campaign.dir.out / "table.csv")
    assert (row["x"], row["result.x"]) == ("1", "5")
    assert (row["state"], row["result.state"]) == ("done", "hot")
    assert row["params.key"] == "k"
    assert row["list"] == "[1, null]"


def test_sums_add_the_numbers_of_the_results_and_say_how_many(campaign: Campaign) -> None:
    campaign.split(ROWS, COMPUTE, merge={"kind": "sum"}, **ONE_MAY_FAIL)
    assert campaign.run().code == 0
    assert json.loads((campaign.dir.out / "sum.json").read_text()) == {
        "n": 2,
        "failed": 1,
        "sum": {"y": 2.0, "hits": 4, "good": 2},
        "counted": {"y": 2, "hits": 2, "good": 2},
    }


def test_a_merge_plugin_sees_units_in_order_and_failed_ones_with_their_reason(
    campaign: Campaign,
) -> None:
    merge = """
def merge(merge):
    assert merge.out.exists() and list(merge.out.iterdir()) == []
    texts = [f"{u.index} {u.key} {u.params['x']} {u.params['scale']} {u.result['hits']} {(u.out / 'value.txt').read_text()} {u.seed > 0}"
             for u in merge.units]
    texts += [f"{u.index} {u.params['x']} {u.reason.rsplit(': ')[-1]}" for u in merge.failed]
    (merge.out / "all.txt").write_text("\\n".join(texts) + merge.params["scale"] + merge.inputs["mesh"].read_text())
    return {"n": len(merge.units)}
"""
    campaign.split(
        ROWS,
        COMPUTE + merge,
        params={"scale": "log"},
        inputs={"mesh": {"run": "mesh"}},
        merge={"plugin": ref("merge")},
        outputs={"all": "all.txt"},
        **ONE_MAY_FAIL,
    )
    (campaign.run_dir / "mesh").write_text("points")
    assert campaign.run().code == 0
    assert (campaign.dir.out / "all.txt").read_text().splitlines() == [
        "0 x=1 1 log 1 1 True",
        "2 x=3 3 log 3 3 True",
        "1 -1 x must not be negativelogpoints",
    ]
    assert json.loads((campaign.dir.out / "result.json").read_text()) == {"n": 2}


def test_a_merge_command_reads_the_units_from_a_file(campaign: Campaign) -> None:
    script = (
        "import json, os; units = json.load(open(os.environ['SIMRUN_UNITS_JSON']));"
        "texts = [open(u['out'] + '/value.txt').read() for u in units['units']];"
        "open('{outputs.all}', 'w').write(','.join(texts) + str(len(units['failed'])) + '{params.scale}')"
    )
    campaign.split(
        ROWS,
        COMPUTE,
        params={"scale": "log"},
        outputs={"all": "all.txt"},
        merge={"command": ["python3", "-c", script]},
        **ONE_MAY_FAIL,
    )
    assert campaign.run().code == 0
    assert (campaign.dir.out / "all.txt").read_text() == "1,31log"


def test_the_marker_names_what_was_merged(campaign: Campaign) -> None:
    campaign.split(ROWS, COMPUTE, **ONE_MAY_FAIL)
    campaign.run()
    marker = campaign.marker()
    assert marker is not None
    assert (marker["units"], marker["done"], marker["failed"]) == (3, [[0, 0], [2, 2]], [[1, 1]])
    assert ranges([0, 1, 2, 5]) == [[0, 2], [5, 5]]
    assert ranges([]) == []


def test_what_stands_under_a_marker_is_left_alone(campaign: Campaign) -> None:
    campaign.split(ROWS[:1], COMPUTE)
    campaign.run()
    before = (campaign.dir.out / "table.csv").stat()
    marker = campaign.marker()
    again = campaign.run(attempt=1)
    assert (again.code, again.report.merged, again.report.units.done) == (0, True, 0)
    assert (campaign.dir.out / "table.csv").stat().st_ino == before.st_ino
    assert campaign.marker() == marker


def test_a_merge_that_was_killed_before_its_marker_is_done_again(campaign: Campaign) -> None:
    campaign.split(ROWS[:1], COMPUTE)
    campaign.run()
    (campaign.dir.out / ".simrun-merged").unlink()
    (campaign.dir.out / "table.csv").write_text("cut")
    (campaign.dir.out / "stray").touch()
    (campaign.dir.root / "out.tmp.somebody").mkdir()
    (campaign.dir.work / "0.7").mkdir()
    assert campaign.run(attempt=1).code == 0
    names = {path.name for path in campaign.dir.out.iterdir()}
    assert names == {"table.csv", "table.jsonl", ".simrun-merged"}
    assert len(table(campaign.dir.out / "table.csv")) == 1
    assert {path.name for path in campaign.dir.work.iterdir()} == {"0.1"}
    left = {path.name for path in campaign.dir.root.iterdir()}
    assert not any(name.startswith("out.tmp") for name in left)


def test_a_harness_killed_in_its_merge_leaves_no_output_and_the_next_attempt_merges(
    campaign: Campaign,
) -> None:
    merge = """
import os
def merge(merge):
    (merge.out / "part").write_text("x")
    if os.environ["SIMRUN_ATTEMPT"] == "0":
        os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
"""
    campaign.split(ROWS[:1], COMPUTE + merge, merge={"plugin": ref("merge")})
    campaign.start().process.communicate(timeout=50)
    assert not campaign.dir.out.exists()
    ended = campaign.run(attempt=1)
    assert (ended.code, ended.report.units.done) == (0, 0)
    assert {path.name for path in campaign.dir.out.iterdir()} == {"part", ".simrun-merged"}


def test_a_plugin_that_writes_the_marker_itself_does_not_make_the_task_merged(
    campaign: Campaign,
) -> None:
    merge = """
def merge(merge):
    (merge.out / ".simrun-merged").write_text("done")
    raise ValueError("not really")
"""
    campaign.split(ROWS[:1], COMPUTE + merge, merge={"plugin": ref("merge")})
    ended = campaign.run()
    assert ended.code == 3
    assert (
        "the merge failed: ended with exit code 1: ValueError: not really" in ended.report.message
    )
    assert campaign.marker() is None


def test_an_output_that_the_merge_did_not_write_fails_the_task(campaign: Campaign) -> None:
    campaign.split(ROWS[:1], COMPUTE, outputs={"map": "map.npy"})
    ended = campaign.run()
    assert ended.code == 3
    assert "output 'map' is missing" in ended.report.message
    assert campaign.marker() is None


def test_a_link_in_the_place_of_the_output_is_replaced_not_followed(
    campaign: Campaign, tmp_path: Path
) -> None:
    campaign.split(ROWS[:1], COMPUTE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    campaign.dir.out.symlink_to(elsewhere)
    assert campaign.run().code == 0
    assert not campaign.dir.out.is_symlink()
    assert {path.name for path in elsewhere.iterdir()} == {"precious"}


@pytest.mark.parametrize("kind", ["table", "sum"])
def test_kinds_do_nothing_to_the_units_own_output(campaign: Campaign, kind: str) -> None:
    campaign.split(ROWS[:1], COMPUTE, merge={"kind": kind})
    campaign.run(f"{TASK}-w0")
    assert (campaign.dir.work / "0.1" / "value.txt").read_text() == "1"
