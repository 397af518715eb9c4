"""Metrics: all that the catalogue names and nothing else, and no series more however much was run (C59)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simrun.backends.base import Attempt, Phase
from simrun.backends.kubernetes.reflector import ReflectorStatistics
from simrun.base.histogram import Histogram
from simrun.model.plan import TaskPlan
from simrun.model.record import RunState, TaskState
from simrun.model.report import AttemptEvidence
from simrun.service import catalogue
from simrun.service.catalogue import PREFIX
from simrun.service.httptally import HttpTally
from simrun.service.metrics import Snapshot, families
from simrun.service.queue import WorkQueue
from simrun.service.statistics import ControllerStatistics, SessionStatistics
from simrun.service.tally import Tally
from tests.service.api.guarded import Guarded, guarded
from tests.service.world import SWEEP_THEN_PLOT, World

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
WHO = {"anna": {"scope": "run", "groups": ["orbits"]}, "prometheus": {"scope": "read"}}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, WHO) as made:
        yield made


async def scraped(served: Guarded) -> dict[str, float]:
    """Give every series and its value."""
    reply = await served.ask("GET", "/metrics", who="prometheus")
    assert reply.status == 200
    found = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            found[f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}"] = sample.value
    return found


async def test_a_server_exports_what_the_catalogue_names_and_no_more(served: Guarded) -> None:
    reply = await served.ask("GET", "/metrics", who="prometheus")

    families = {family.name: family for family in text_string_to_metric_families(reply.text)}
    own = {name for name in families if name.startswith(PREFIX)}
    assert own == {f"{PREFIX}{metric.name}" for metric in catalogue.ALL}
    assert "process_resident_memory_bytes" in families
    for metric in catalogue.ALL:
        family = families[f"{PREFIX}{metric.name}"]
        assert family.type == metric.kind
        assert {label for sample in family.samples for label in sample.labels} - {"le"} <= set(
            metric.labels
        )


def test_no_label_names_what_there_may_be_any_number_of() -> None:
    labels = {label for metric in catalogue.ALL for label in metric.labels}

    assert labels == {
        "cause", "kind", "limit", "method", "outcome", "place", "pool", "reason", "resource", "route", "state", "status", "version",
    }  # fmt: skip


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0", "*/*"])
async def test_it_is_given_in_the_form_that_is_asked_for(served: Guarded, accept: str) -> None:
    reply = await served.ask("GET", "/metrics", who="prometheus", headers={"Accept": accept})

    assert reply.headers["Content-Type"].startswith(
        accept.split(";", maxsplit=1)[0].replace("*/*", "") or "text/plain"
    )
    assert reply.text.endswith("# EOF\n") == ("openmetrics" in accept)


async def test_series_do_not_grow_with_what_is_run_and_asked(served: Guarded) -> None:
    async def use(number: int) -> None:
        group = "orbits"
        made = await served.submit(f"run-{number}", group, "anna", name=f"n{number}")
        assert made.status == 201, made.text
        await served.ask("GET", f"/api/v1/runs/run-{number}", who="anna")
        await served.ask("GET", f"/api/v1/runs/nobody-{number}", who="anna")
        await served.ask("GET", f"/nowhere/{number}", who="anna")
        await served.ask(("PATCH", "LOCK", "PROPFIND")[number % 3], "/healthz")
        await served.ask("POST", f"/api/v1/runs/run-{number}/cancel", who="anna")

    for number in range(3):
        await use(number)
    few = await scraped(served)
    for number in range(3, 30):
        await use(number)
    many = await scraped(served)

    assert set(many) == set(few)
    unknown = 'simrun_http_requests_total{"method": "OTHER", "route": "unknown", "status": "4xx"}'
    assert many[unknown] == 60
    assert many['simrun_runs{"state": "cancelled"}'] == 30
    assert "run-1" not in "".join(many)


async def test_requests_are_counted_by_the_pattern_of_their_route(served: Guarded) -> None:
    await served.ask("GET", "/api/v1/runs/nobody", who="anna")
    await served.ask("GET", "/api/v1/runs/nobody")

    found = await scraped(served)

    key = '{"method": "GET", "route": "/api/v1/runs/{run}", "status": "4xx"}'
    assert found[f"simrun_http_requests_total{key}"] == 2
    key = '{"method": "GET", "route": "/api/v1/runs/{run}"}'
    assert found[f"simrun_http_request_duration_seconds_count{key}"] == 2


async def test_a_stream_counts_while_it_is_open(served: Guarded) -> None:
    headers = {"Authorization": f"Bearer {served.tokens['anna']}"}
    route = 'simrun_event_streams{"route": "/api/v1/events"}'
    async with served.http.get(f"{served.url}/api/v1/events", headers=headers) as stream:
        assert await stream.content.readany()
        found = await scraped(served)
        assert found[route] == 1
        count = "simrun_http_request_duration_seconds_count"
        assert found[count + '{"method": "GET", "route": "/api/v1/events"}'] == 0


async def test_a_scrape_does_not_block_the_loop(
    served: Guarded, loop_guard: Callable[[], AbstractContextManager[None]]
) -> None:
    with loop_guard():
        reply = await served.ask("GET", "/metrics", who="prometheus")

    assert reply.status == 200, reply.text


async def test_metrics_want_a_token_of_any_group_or_none(served: Guarded) -> None:
    assert (await served.ask("GET", "/metrics")).status == 401
    assert (await served.ask("GET", "/metrics", who="anna")).status == 200


def test_the_page_describes_every_metric() -> None:
    """SIMRUN_GOLDEN=write writes its table."""
    text = PAGE.read_text()
    table = "| metric | kind | labels | what |\n|---|---|---|---|\n"
    for metric in catalogue.ALL:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        table += f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.text} |\n"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        text = re.sub(r"\| metric \|(.*\n)(\|.*\n)*", lambda _: table, text)
        PAGE.write_text(text)

    assert table in text


def test_watches_are_told_by_what_they_watch() -> None:
    pods = ReflectorStatistics(
        lists=2, watches=7, events=40, failures=3, expired=1, drift=1, age_s=12.5
    )
    queues = ReflectorStatistics()
    controller = ControllerStatistics(
        queue=WorkQueue().statistics(),
        waits=Histogram(),
        looks=Histogram(),
        drift=0,
        submissions=3,
        held_up=1,
        tally=Tally(),
    )
    session = SessionStatistics(
        controller=controller,
        pools=[],
        store={},
        watches={"pods": pods, "workloads": queues},
        age_s=12.5,
        events=0,
    )
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(Snapshot(session=session, http=HttpTally()))
        for sample in family.samples
    }

    assert found["simrun_watch_age_seconds", "pods"] == 12.5
    assert ("simrun_watch_age_seconds", "workloads") not in found  # never heard of
    assert found["simrun_watch_expired_total", "pods"] == 1
    assert found["simrun_watch_drift_total", "pods"] == 1
    assert found["simrun_watch_starts_total", "pods"] == 7
    assert found["simrun_watch_failures_total", "workloads"] == 0
    assert found["simrun_backend_age_seconds",] == 12.5
    assert found["simrun_submissions", "running"] == 2
    assert found["simrun_submissions", "held_up"] == 1


# --- counts --------------------------------------------------------------------------------------------------------------


def evidence(number: int, **fields: object) -> AttemptEvidence:
    return AttemptEvidence.model_validate({"worker": "w", "attempt": number, **fields})


def test_an_attempt_counts_once_however_often_it_is_told() -> None:
    tally, plan = Tally(), TaskPlan(memory=1000, cpus=2)
    runs = evidence(0, started=100.0)
    lost = evidence(0, started=100.0, ended=160.0, reason="evicted")
    next_ = evidence(1, started=170.0)
    seen = [Attempt(n=0, phase=Phase.FAILED, reason="evicted"), Attempt(n=1, phase=Phase.RUNNING)]

    tally.kept(None, runs, plan, seen[:1])
    tally.kept(runs, lost, plan, seen[:1])
    tally.kept(lost, lost, plan, seen)
    tally.kept(None, next_, plan, seen)
    tally.kept(next_, next_, plan, seen)

    assert tally.attempts["evicted"] == 1
    assert tally.lost_cpu_s["evicted"] == 120
    assert tally.lost_memory_byte_s["evicted"] == 60_000
    assert {cause: count for cause, count in tally.retries.items() if count} == {"evicted": 1}


def test_what_completed_is_not_lost() -> None:
    tally = Tally()
    tally.kept(
        None, evidence(0, started=1.0, ended=2.0, reason="completed"), TaskPlan(memory=1), ()
    )

    assert tally.attempts["completed"] == 1
    assert not any(tally.lost_cpu_s.values())
    assert not any(tally.retries.values())


async def test_a_run_is_counted_from_what_the_store_is_told(world: World) -> None:
    name = await world.start(SWEEP_THEN_PLOT)
    killed = Attempt(
        n=0, phase=Phase.FAILED, reason="evicted", pod_uid="a", started=10.0, ended=20.0
    )
    again = Attempt(n=1, phase=Phase.RUNNING, pod_uid="b", started=21.0)
    world.backend.attempt(name, "sweep-w0", killed)
    world.backend.attempt(name, "sweep-w0", again)
    await world.look()
    await world.look()
    world.merge("sweep")
    done = Attempt(
        n=1,
        phase=Phase.SUCCEEDED,
        reason="completed",
        exit_code=0,
        pod_uid="b",
        started=21.0,
        ended=50.0,
    )
    world.backend.attempt(name, "sweep-w0", done)
    world.backend.succeed(name, "sweep-w0")
    await world.look()

    tally = world.controller.statistics().tally
    assert tally.attempts["evicted"] == 1
    assert tally.retries["evicted"] == 1
    counts, total = tally.tasks[TaskState.DONE].snapshot()
    assert (counts[-1], total) == (1, 40.0)
    await world.controller.cancel("run1")
    counts, _ = tally.runs[RunState.CANCELLED].snapshot()
    assert counts[-1] == 1


def test_statuses_of_every_class_have_their_count() -> None:
    http = HttpTally([("GET", "/a")])
    for status in (200, 206, 304, 404, 499, 500, 503):
        http.answered("GET", "/a", status, 0.1)
    http.answered("GET", "/b", 200, 0.1)

    assert [http.answers["GET", "/a", status] for status in ("2xx", "4xx", "5xx")] == [3, 2, 2]
    assert http.answers["OTHER", "unknown", "2xx"] == 1
