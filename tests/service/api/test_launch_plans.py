"""Launch plans and schedules over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simrun.model.launchplan import instant_of, instant_text
from simrun.model.workflow import Submission
from tests.service.api.guarded import guarded
from tests.service.api.serving import Served
from tests.service.world import submission

PLANS = "/api/v1/launch-plans"
TYPE = {"command": ["true"], "params": {"depth": 1, "when": ""}}
ONE = submission({"only": {"type": "plain"}}, {"plain": TYPE}, group="lab")


FIVE_LABELS = ONE.request.model_copy(update={"labels": dict.fromkeys("abcde", "")})


def body(name: str = "nightly", *, submission: Submission = ONE, **plan: Any) -> dict[str, Any]:
    plan.setdefault("schedule", {"cron": "*/5 * * * *"})
    given = {key: value for key, value in plan.items() if value is not None}
    return {"plan": {"name": name, **given}, "submission": submission.model_dump(mode="json")}


async def make(served: Served, name: str = "nightly", *, status: int = 201, **plan: Any) -> Any:
    got, answer, _ = await served.ask("POST", PLANS, json=body(name, **plan))
    assert got == status, answer
    return answer


async def test_a_plan_is_made_shown_activated_and_deactivated(served: Served) -> None:
    made = await make(served, description="each five minutes")
    assert (made["version"], made["group"]) == ("1", "lab")
    await make(served, status=200, description="each five minutes")
    await make(served, description="other")
    status, shown, _ = await served.ask("GET", f"{PLANS}/nightly?group=lab")
    assert status == 200
    assert [item["version"] for item in shown["versions"]] == ["1", "2"]
    assert shown["active"] is None
    status, active, _ = await served.ask("POST", f"{PLANS}/nightly/versions/2/activate?group=lab")
    assert (status, active["version"]) == (200, "2")
    _, again, _ = await served.ask("POST", f"{PLANS}/nightly/versions/2/activate?group=lab")
    assert again["activated_at"] == active["activated_at"]
    _, listed, _ = await served.ask("GET", PLANS)
    (item,) = listed["plans"]
    assert (item["name"], item["version"], item["active"]) == ("nightly", "2", True)
    assert item["next"].endswith(":00Z")
    status, problem, _ = await served.ask("DELETE", f"{PLANS}/nightly/versions/2?group=lab")
    assert status == 409
    assert "is active" in problem["detail"]
    _, off, _ = await served.ask("POST", f"{PLANS}/nightly/deactivate?group=lab")
    assert off["version"] is None
    for version in ("1", "2"):
        status, _, _ = await served.ask("DELETE", f"{PLANS}/nightly/versions/{version}?group=lab")
        assert status == 204
    assert (await served.ask("GET", f"{PLANS}/nightly?group=lab"))[0] == 404
    assert (await served.ask("GET", PLANS))[1]["plans"] == []


async def test_versions_are_compared_place_by_place(served: Served) -> None:
    await make(served, defaults={"only": {"depth": 2}})
    await make(served, schedule={"cron": "@daily", "timezone": "Europe/Berlin"})
    status, diff, _ = await served.ask("GET", f"{PLANS}/nightly/diff?group=lab")
    assert status == 200
    assert (diff["before"], diff["after"]) == ("1", "2")
    assert [(item["path"], item["only"]) for item in diff["differences"]] == [
        ("defaults", "before"),
        ("schedule.cron", None),
        ("schedule.timezone", "after"),
    ]
    status, problem, _ = await served.ask("GET", f"{PLANS}/nightly/diff?group=lab&after=1")
    assert status == 400
    assert problem["errors"][0]["field"] == "before"


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"schedule": {"cron": "0 0 31 2 *"}}, "schedule.cron"),
        ({"schedule": {"every": "30s"}}, "schedule.every"),
        ({"schedule": {"cron": "0 0 * * *", "timezone": "Mars/Olympus"}}, "schedule.cron"),
        ({"schedule": {}}, "plan.schedule"),
        ({"schedule": {"cron": "@daily", "time_param": "only.wehn"}}, "schedule.time_param"),
        ({"defaults": {"nobody": {"x": 1}}}, "defaults.nobody"),
        ({"version": "active"}, "plan.version"),
        ({"nmae": "x"}, "plan.nmae"),
    ],
)
async def test_what_is_wrong_is_refused_at_its_field(
    served: Served, plan: dict[str, Any], field: str
) -> None:
    status, problem, _ = await served.ask("POST", PLANS, json=body(**plan))
    assert status == 422
    assert field in [item["field"] for item in problem["errors"]]


async def test_a_launch_runs_the_active_version_with_settings_over_its_defaults(
    served: Served,
) -> None:
    await make(served, defaults={"only": {"depth": 2}}, fixed={"only": {"when": "now"}})
    path = f"{PLANS}/nightly/launch?group=lab"
    status, problem, _ = await served.ask("POST", path)
    assert status == 404
    assert "no active version" in problem["detail"]
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    status, run, _ = await served.ask("POST", path, json={"settings": {"only": {"depth": 7}}})
    assert status == 201
    assert run["labels"]["simrun/launch-plan"] == "nightly"
    made = await served.session.submission(run["id"])
    assert made.workflow.tasks["only"].params == {"depth": 7, "when": "now"}
    status, problem, _ = await served.ask("POST", path, json={"settings": {"only": {"when": "x"}}})
    assert status == 422
    assert problem["errors"][0]["field"] == "settings.only.when"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"settings": {"only": {"depth": NaN}}}', "settings.only"),
        ('{"settings": {"only": {"depth": %s}}}' % ("[" * 120 + "]" * 120), "settings.only"),
        (json.dumps({"name": "n" * 201}), "name"),
        (json.dumps({"labels": {"key": "v" * 501}}), "labels.key"),
        (json.dumps({"labels": {str(number): "" for number in range(60)}}), "labels"),
        (json.dumps({"id": ""}), "id"),
    ],
)
async def test_a_launch_that_no_run_could_come_of_is_refused(
    served: Served, text: str, field: str
) -> None:
    await make(served, submission=ONE.model_copy(update={"request": FIVE_LABELS}))
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    path, headers = f"{PLANS}/nightly/launch?group=lab", {"Content-Type": "application/json"}
    status, problem, _ = await served.ask("POST", path, data=text, headers=headers)
    assert status == 422
    assert problem["errors"][0]["field"].startswith(field)
    assert (await served.ask("GET", "/api/v1/runs"))[1]["runs"] == []


async def test_as_many_labels_as_a_run_may_have_leave_room_for_those_of_its_plan(
    served: Served,
) -> None:
    await make(served, submission=ONE.model_copy(update={"request": FIVE_LABELS}))
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    labels = {f"more-{number}": "" for number in range(59)}
    path = f"{PLANS}/nightly/launch?group=lab"
    status, run, _ = await served.ask("POST", path, json={"labels": labels, "id": "many"})
    assert (status, len(run["labels"])) == (201, 66)
    assert (await served.ask("GET", "/api/v1/runs/many/submission"))[0] == 200


async def test_what_is_no_part_of_a_plan_is_refused(served: Served) -> None:
    status, problem, _ = await served.ask("POST", PLANS, json={**body(), "plann": {}})
    assert (status, problem["errors"][0]["field"]) == (422, "plann")


async def test_files_of_a_plan_go_into_each_of_its_runs(served: Served, tmp_path: Path) -> None:
    plugin = submission(
        {"only": {"type": "mine"}}, {"mine": {"plugin": "work.py:main"}}, group="lab"
    )
    form = aiohttp.FormData(default_to_multipart=True, quote_fields=False)
    form.add_field("submission", plugin.model_dump_json(), content_type="application/json")
    form.add_field("plan", '{"name": "nightly"}', content_type="application/json")
    form.add_field("file", b"def main(): pass\n", filename="code/work.py")
    status, made, _ = await served.ask("POST", PLANS, data=form)
    assert status == 201, made
    assert list(made["files"]) == ["code/work.py"]
    for _ in range(2):
        status, run, _ = await served.ask(
            "POST", f"{PLANS}/nightly/launch?group=lab", json={"version": "1"}
        )
        assert status == 201, run
        code = served.session.store.layout.run(run["id"]).code
        assert (code / "work.py").read_text() == "def main(): pass\n"


async def test_a_schedule_tells_its_next_and_last_instants_with_lateness(served: Served) -> None:
    await make(served, schedule={"every": "1m"})
    now = served.session.now()
    plans = served.session.schedules.plans
    # As a service that was away for three minutes finds it
    plans.activate("lab", "nightly", "1", by="ana", now=now - 200)
    await served.session.schedules.scheduler.notify("lab.nightly")
    path = f"{PLANS}/nightly/schedule?group=lab"
    while True:
        status, shown, _ = await served.ask("GET", path)
        assert status == 200
        if [item["state"] in ("running", "submitting") for item in shown["last"]] == [True] * 3:
            break
        await asyncio.sleep(0.02)
    assert len(shown["next"]) == 5
    assert shown["next"][0] > instant_text(instant_of(now))
    assert shown["last"][0]["lateness_s"] >= 0
    assert shown["last"][2]["lateness_s"] > 100
    assert shown["counts"]["created"] == 3
    assert shown["description"] == "every minute, counted in real time"


async def test_a_plan_that_can_not_be_run_says_so_before_it_is_to_fire(served: Served) -> None:
    await make(served)
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    file = served.session.store.layout.launch_plan("lab", "nightly").version("1")
    file.write_text(file.read_text().replace('"type":"plain"', '"type":"gone"'))
    _, shown, _ = await served.ask("GET", f"{PLANS}/nightly/schedule?group=lab")
    assert "can't be run" in shown["trouble"]


async def test_one_and_all_are_paused_and_resumed(served: Served) -> None:
    await make(served)
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    status, paused, _ = await served.ask("POST", f"{PLANS}/nightly/pause?group=lab")
    assert (status, paused["paused"]) == (200, True)
    _, shown, _ = await served.ask("GET", f"{PLANS}/nightly/schedule?group=lab")
    assert shown["paused"].startswith("paused")
    assert (await served.ask("GET", PLANS))[1]["plans"][0]["paused"]
    await served.ask("POST", f"{PLANS}/nightly/resume?group=lab")
    assert not (await served.ask("GET", PLANS))[1]["plans"][0]["paused"]
    await served.ask("POST", "/api/v1/schedules/pause")
    _, state, _ = await served.ask("GET", "/api/v1/schedules")
    assert (state["running"], state["paused"], state["all_paused"]["paused"]) == (True, 1, True)
    await served.ask("POST", "/api/v1/schedules/resume")
    assert (await served.ask("GET", "/api/v1/schedules"))[1]["paused"] == 0


async def test_a_backfill_goes_page_by_page_and_may_be_repeated(served: Served) -> None:
    await make(served, schedule={"cron": "0 * * * *"})
    path = f"{PLANS}/nightly/backfill?group=lab"
    wanted: dict[str, Any] = {
        "first": "2026-03-02T00:00:00Z",
        "last": "2026-03-02T05:30:00Z",
        "limit": 4,
    }
    assert (await served.ask("POST", path, json=wanted))[0] == 409
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    await served.ask("POST", f"{PLANS}/nightly/pause?group=lab")  # nothing beside the backfill
    _, dry, _ = await served.ask("POST", path, json={**wanted, "dry_run": True})
    assert [item["state"] for item in dry["items"]] == ["missing"] * 4
    assert (dry["next"], dry["left"]) == ("2026-03-02T04:00:00Z", 2)
    assert served.session.store.run_ids() == []
    _, done, _ = await served.ask("POST", path, json=wanted)
    assert [item["state"] for item in done["items"]] == ["created"] * 4
    only = {**wanted, "only_missing": True}
    _, rest, _ = await served.ask("POST", path, json=only)
    assert [(item["instant"][11:16], item["state"]) for item in rest["items"]] == [
        ("04:00", "created"),
        ("05:00", "created"),
    ]
    _, again, _ = await served.ask("POST", path, json=only)
    assert (again["items"], again["next"]) == ([], None)
    assert len(served.session.store.run_ids()) == 6
    status, problem, _ = await served.ask(
        "POST", path, json={**wanted, "last": "2999-01-01T00:00Z"}
    )
    assert status == 422
    assert "in the future" in problem["errors"][0]["message"]


async def test_a_preview_needs_no_plan(served: Served) -> None:
    path = "/api/v1/schedules/preview"
    query = "?expression=30+2+*+*+*&timezone=America/New_York&after=2026-03-07T00:00-05:00&count=2"
    status, shown, _ = await served.ask("GET", path + query)
    assert status == 200
    assert shown["instants"] == ["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z"]
    status, problem, _ = await served.ask("GET", f"{path}?expression=0+0+31+2+*")
    assert status == 400
    assert "never fires" in problem["errors"][0]["message"]


async def test_a_page_of_plans_goes_on_where_it_ended(served: Served) -> None:
    for number in range(5):
        await make(served, f"plan-{number}")
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        _, page, _ = await served.ask("GET", f"{PLANS}?limit=2{cursor and '&cursor=' + cursor}")
        seen += [item["name"] for item in page["plans"]]
        cursor = page["cursor"]
    assert seen == [f"plan-{number}" for number in range(5)]


async def test_a_group_sees_its_own_plans_only(tmp_path: Path) -> None:
    who = {
        "ana": {"scope": "run", "groups": ["lab"]},
        "bob": {"scope": "run", "groups": ["other"]},
    }
    async with guarded(tmp_path, who) as served:
        assert (await served.ask("POST", PLANS, json=body(), who="bob")).status == 403
        assert (await served.ask("POST", PLANS, json=body(), who="ana")).status == 201
        for path in ("", "/schedule", "/versions/1", "/diff"):
            url = f"{PLANS}/nightly{path}?group=lab"
            assert (await served.ask("GET", url, who="bob")).status == 404
        for path in ("/deactivate", "/pause", "/launch", "/versions/1/activate"):
            url = f"{PLANS}/nightly{path}?group=lab"
            assert (await served.ask("POST", url, who="bob")).status == 404
        assert (await served.ask("GET", PLANS, who="bob")).body["plans"] == []
        made = await served.ask("GET", f"{PLANS}/nightly", who="ana")  # her only group is meant
        assert (made.status, made.body["versions"][0]["created_by"]) == (200, "ana")
        assert (await served.ask("POST", "/api/v1/schedules/pause", who="ana")).status == 403


async def test_a_month_of_minutes_that_was_missed_stops_neither_the_api_nor_other_schedules(
    served: Served,
) -> None:
    minutely = {"cron": "* * * * *", "catch_up_cap": 100_000}
    await make(served, schedule=minutely)
    await make(served, "other", schedule=minutely)
    plans, scheduler = served.session.schedules.plans, served.session.schedules.scheduler
    now = served.session.now()
    plans.activate("lab", "nightly", "1", by="ana", now=now - 30 * 86400)
    await scheduler.notify("lab.nightly")
    path = f"{PLANS}/nightly/schedule?group=lab&last=1"
    while True:
        status, shown, _ = await served.ask("GET", path)
        assert status == 200
        if shown["counts"].get("created", 0) >= 30:
            break
    assert shown["backlog"] > 43_000
    plans.activate("lab", "other", "1", by="ana", now=now - 90)
    await scheduler.notify("lab.other")
    while not (other := scheduler.state("lab.other")) or not other.history.counts["created"]:
        await asyncio.sleep(0.01)  # it has its turn, though the first has far to go
    lane = scheduler._lanes.by_key["lab.nightly"]
    assert len(lane.windows) == 1  # a span, not a list
    await served.ask("POST", f"{PLANS}/nightly/deactivate?group=lab")
    made = lane.history.counts["created"]
    await scheduler.drain()
    assert lane.history.counts["created"] <= made + 1
    assert (await served.ask("GET", "/api/v1/schedules"))[1]["backlog"] == 0


async def test_a_ticker_that_is_stuck_is_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = served.session.schedules.scheduler
    while not scheduler.statistics.ticks:
        await asyncio.sleep(0.01)

    async def stuck() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(scheduler, "tick", stuck)
    scheduler.statistics.last_tick_monotonic -= 100
    status, body, _ = await served.ask("GET", "/readyz")
    assert status == 503
    assert any("has not ticked" in reason for reason in body["reasons"])
    monkeypatch.undo()
    while (await served.ask("GET", "/readyz"))[0] != 200:
        await asyncio.sleep(0.05)


async def test_a_time_that_clocks_skip_is_told(served: Served) -> None:
    # Whatever day it is: clocks there go forward over half past two once a year
    await make(served, schedule={"cron": "30 2 * 3 *", "timezone": "America/New_York"})
    await served.ask("POST", f"{PLANS}/nightly/versions/1/activate?group=lab")
    _, shown, _ = await served.ask("GET", f"{PLANS}/nightly/schedule?group=lab&next=32")
    assert shown["skipped"]
    for text in shown["skipped"]:
        assert text[4:8] == "-03-"
        assert text.endswith("T02:30")
