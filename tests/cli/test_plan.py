"""Launch plans and schedules from the command line, against a `simrun serve`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.cli.served import Served

T = TypeVar("T")

WORKFLOW = """
tasks:
  only:
    command: "echo {params.depth} {params.when} > {outputs.text}"
    params: {depth: 1, when: never}
    outputs: {text: text.txt}
    resources: {memory: 64Mi}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("plans") / "store") as found:
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "workflow.yaml"
    path.write_text(WORKFLOW)
    return path


def said(served: Served, *arguments: str | Path, code: int = 0) -> Any:
    """Call a command with -o json, and give what it printed."""
    result = served.simrun(*arguments, "-o", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if result.stdout else json.loads(result.stderr)


def test_a_plan_from_its_first_version_to_its_last_run(served: Served, file: Path) -> None:
    daily = ("--cron", "0 12 1 1 *", "--tz", "Europe/Berlin", "--time-param", "only.when")
    made = said(served, "plan", "create", "nightly", file, *daily, "--param", "only.depth=3")
    assert made["version"] == "1"
    made = said(
        served, "plan", "create", "nightly", file, *daily, "--fixed", "only.depth=4", "--activate"
    )
    assert made["version"] == "2"

    shown = said(served, "plan", "show", "nightly")
    assert [head["version"] for head in shown["versions"]] == ["1", "2"]
    assert shown["active"]["version"] == "2"
    diff = said(served, "plan", "diff", "nightly")
    assert [item["path"] for item in diff["differences"]] == ["defaults", "fixed"]
    assert said(served, "plan", "list")[0]["name"] == "nightly"
    assert said(served, "schedule", "list")[0]["next"].endswith("-01-01T11:00:00Z")
    schedule = said(served, "schedule", "show", "nightly", "--next", "2")
    assert len(schedule["next"]) == 2
    assert "12:00" in schedule["description"]

    assert said(served, "schedule", "pause", "nightly")["paused"]
    assert "paused" in served.simrun("schedule", "show", "nightly").stdout
    assert not said(served, "schedule", "resume", "nightly")["paused"]
    assert said(served, "schedule", "pause", "--all")["paused"]
    assert "all schedules are paused" in served.simrun("schedule", "list").stderr
    assert not said(served, "schedule", "resume", "--all")["paused"]

    span = ("schedule", "backfill", "nightly", "--from", "2024-01-01", "--to", "2026-01-02")
    dry = said(served, *span, "--dry-run")
    assert [item["state"] for item in dry] == ["missing"] * 3
    done = said(served, *span, "--only-missing", "--limit", "2")
    assert [item["state"] for item in done] == ["created"] * 2
    assert [item["state"] for item in said(served, *span)] == ["exists", "exists", "created"]
    assert said(served, *span, "--only-missing") == []

    run = said(served, "wait", done[0]["run"])
    assert run["state"] == "succeeded"
    output = served.store / "runs" / done[0]["run"] / "tasks/only/out/text.txt"
    assert output.read_text() == "4 2024-01-01T11:00:00Z\n"

    launched = said(served, "plan", "launch", "nightly")
    assert launched["labels"]["simrun/launch-plan"] == "nightly"
    refused = said(served, "plan", "launch", "nightly", "--param", "only.depth=9", code=2)
    assert "is fixed" in refused["message"]

    assert served.simrun("plan", "delete", "nightly", "2").exit_code == 1
    assert said(served, "plan", "deactivate", "nightly")["version"] is None
    assert served.simrun("plan", "delete", "nightly", "--all").stdout.count("deleted") == 2
    assert said(served, "plan", "show", "nightly", code=6)["error"] == "not_found"


def test_a_plan_that_never_fires_is_refused_with_2(served: Served, file: Path) -> None:
    answer = said(served, "plan", "create", "never", file, "--cron", "0 0 31 2 *", code=2)
    assert "never fires" in answer["message"]
    answer = said(
        served, "plan", "create", "both", file, "--every", "1h", "--cron", "@daily", code=2
    )
    assert "exactly one of cron and every" in answer["message"]
    answer = said(served, "plan", "create", "zone", file, "--every", "1h", "--tz", "UTC", code=2)
    assert answer["problems"][0]["field"] == "--tz"


def test_what_a_schedule_missed_is_made_up_for_once_by_the_serves_after_it(
    file: Path, served: Served
) -> None:
    said(served, "plan", "create", "minutely", file, "--every", "1m", "--activate")
    active = served.store / "launch-plans/default/minutely/active.json"
    was = json.loads(active.read_text())
    served.kill()
    (served.store / "scheduler/pauses/all.json").unlink(missing_ok=True)  # its end would count
    # As if it had been activated, and the machine been off, for three minutes and a half
    active.write_text(json.dumps({**was, "activated_at": was["activated_at"] - 210}))
    served.start()
    shown = until(lambda: last_three(served), lambda last: states(last) == ["succeeded"] * 3)
    assert all(item["lateness_s"] > 20 for item in shown)
    assert (
        served.simrun("schedule", "show", "minutely", "--last", "3").stdout.count("succeeded") == 3
    )
    runs = {item["run"]: record_of(served, item["run"]) for item in shown}

    served.kill()
    for left in (served.store / "scheduler").iterdir():  # no snapshot, no notes
        if left.is_file():
            left.unlink()
    served.start()
    until(
        lambda: said(served, "schedule", "show", "minutely"),
        lambda view: view["counts"].get("exists", 0) >= 3,
    )
    assert {run: record_of(served, run) for run in runs} == runs


def last_three(served: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said(served, "schedule", "show", "minutely", "--last", "3")[
        "last"
    ]
    return found


def states(last: list[dict[str, Any]]) -> list[str]:
    return [item["state"] for item in last]


def record_of(served: Served, run: str) -> bytes:
    return (served.store / "runs" / run / "run.json").read_bytes()


def until(look: Callable[[], T], good: Callable[[T], bool]) -> T:
    """Look again and again until it is good, for half a minute at the most."""
    end = time.monotonic() + 30
    while not good(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found
