"""Tasks, attempts, units, types, queues and observations over HTTP; submissions with a key; deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simrun.base.errors import Conflict, NotFound
from simrun.model.record import RunState
from simrun.model.report import AttemptEvidence, Observation, WorkerReport
from simrun.store import codec
from simrun.store.resources import ResourceStore
from simrun.worker import files
from simrun.worker.claims import Claim, Holder, Token, TokenFile
from simrun.worker.ledger import failure_record
from tests.service.api.serving import Served
from tests.service.world import submission

ONE = submission({"only": {"type": "plain"}}, {"plain": {"command": ["true"]}})
SWEEP = submission(
    {"sweep": {"type": "split"}, "plot": {"type": "plain", "after": ["sweep"]}},
    {
        "split": {
            "command": ["true"],
            "split": {"workers": 2, "units": {"grid": {"a": [1, 2, 3, 4]}}},
        },
        "plain": {"command": ["true"]},
    },
)


async def submit_one(served: Served, run_id: str) -> str:
    await served.client.submit(ONE, run_id=run_id)
    return await served.running(run_id)


# --- tasks, attempts, units ---------------------------------------------------------------------------------------------


async def test_tasks_are_listed_in_the_order_of_the_workflow_with_plan_and_progress(
    served: Served,
) -> None:
    await served.client.submit(SWEEP, run_id="mine")
    await served.running("mine")

    _, body, _ = await served.ask("GET", "/api/v1/runs/mine/tasks")
    status, one, _ = await served.ask("GET", "/api/v1/runs/mine/tasks/plot")

    first, second = body["tasks"]
    assert (first["task"], first["type"], first["plan"]["pods"]) == ("sweep", "split", 2)
    assert first["progress"]["total"] == 4
    assert (status, one) == (200, second)
    assert second["needs"] == ["sweep"]
    assert (await served.ask("GET", "/api/v1/runs/mine/tasks/none"))[0] == 404


async def test_attempts_tell_what_was_seen_of_them(served: Served) -> None:
    await submit_one(served, "mine")
    seen = AttemptEvidence(worker="only", attempt=0, reason="oom", oom=True, memory=2**20)
    served.session.store.keep_evidence("mine", "only", seen)

    _, body, _ = await served.ask("GET", "/api/v1/runs/mine/tasks/only/attempts")

    (attempt,) = body["attempts"]
    assert (attempt["worker"], attempt["attempt"], attempt["report"]) == ("only", 0, None)
    assert (attempt["evidence"]["reason"], attempt["evidence"]["memory"]) == ("oom", 2**20)


async def test_two_pods_of_one_number_have_each_their_own_report(served: Served) -> None:
    await submit_one(served, "mine")
    store = served.session.store
    reports = store.layout.run("mine").task("only").reports
    for uid, name in (("first", "only-0"), ("second", "only-0.second")):
        store.keep_evidence(
            "mine", "only", AttemptEvidence(worker="only", attempt=0, reason="lost", pod_uid=uid)
        )
        report = WorkerReport(
            run="mine",
            task="only",
            worker="only",
            attempt=0,
            pod_uid=uid,
            exit_code=0,
            reason="completed",
            started=1.0,
            ended=2.0,
        )
        files.make_directory(reports)
        files.create(reports / f"{name}.json", codec.encode(report))

    _, body, _ = await served.ask("GET", "/api/v1/runs/mine/tasks/only/attempts")

    pairs = [(one["evidence"]["pod_uid"], one["report"]["pod_uid"]) for one in body["attempts"]]
    assert sorted(pairs) == [("first", "first"), ("second", "second")]


async def test_units_tell_what_became_of_them_page_by_page(served: Served) -> None:
    await served.client.submit(SWEEP, run_id="mine")
    await served.running("mine")
    task = served.session.store.layout.run("mine").task("sweep")
    for directory in (task.claims, task.done, task.failed):
        files.make_directory(directory)
    token = TokenFile(task.claims, Token(Holder("sweep-w0", 0, "uid")))
    for unit in (0, 1, 2):
        assert token.link(Claim(unit, 1))
    (task.done / "0").write_bytes(b"{}")
    record = failure_record(Claim(1, 1), "a=2", "error", "exit code 3")
    (task.failed / "1.1").write_bytes(files.encode(record))

    async def units(query: str) -> Any:
        return (await served.ask("GET", f"/api/v1/runs/mine/tasks/sweep/units{query}"))[1]

    body = await units("")
    assert [one["state"] for one in body["units"]] == ["done", "failed", "held", "waiting"]
    assert [one["params"]["a"] for one in body["units"]] == [1, 2, 3, 4]
    assert body["units"][1]["message"] == "exit code 3"
    assert body["units"][2]["worker"] == "sweep-w0"
    assert (body["total"], body["after"]) == (4, None)

    first = await units("?limit=3")
    assert ([one["i"] for one in first["units"]], first["after"]) == ([0, 1, 2], 2)
    rest = await units(f"?limit=3&after={first['after']}")
    assert ([one["i"] for one in rest["units"]], rest["after"]) == ([3], None)
    assert [one["i"] for one in (await units("?state=held"))["units"]] == [2]


# --- what is known beside runs -------------------------------------------------------------------------------------------


async def test_types_and_observations_tell_what_attempts_used(served: Served) -> None:
    await submit_one(served, "mine")
    store = ResourceStore(served.root)
    for attempt, oom in ((0, True), (1, False)):
        observation = Observation(
            type="a type",
            run="mine",
            task="only",
            worker="only",
            attempt=attempt,
            given_memory=100 * (attempt + 1),
            peak_memory=90 * (attempt + 1),
            oom=oom,
            at=float(attempt),
        )
        store.record(observation)

    _, types, _ = await served.ask("GET", "/api/v1/types")
    _, listed, _ = await served.ask("GET", "/api/v1/observations?type=a+type")

    (one,) = types["types"]
    assert (one["type"], one["observations"], one["oom"]) == ("a type", 2, 1)
    assert (one["peak_memory"], one["given_memory"]) == (180, 200)
    assert [item["attempt"] for item in listed["observations"]] == [0, 1]


async def test_queues_are_told_as_the_backend_knows_them(served: Served) -> None:
    _, body, _ = await served.ask("GET", "/api/v1/queues")

    (queue,) = body["queues"]
    assert (queue["name"], queue["active"]) == ("scripted", True)
    assert queue["resources"]["cpu"] == {"given": None, "used": 0.0}


# --- submissions with a key, deletion --------------------------------------------------------------------------------------


async def post(served: Served, key: str, **request: Any) -> tuple[int, Any]:
    body = {"submission": ONE.model_dump(mode="json", by_alias=True)}
    body["submission"]["request"] = request
    headers = {"Idempotency-Key": key}
    status, answer, _ = await served.ask("POST", "/api/v1/runs", json=body, headers=headers)
    return status, answer


async def test_ten_submissions_with_one_key_at_once_are_one_run(served: Served) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(post(served, "the key")) for _ in range(10)]
    answers = [task.result() for task in tasks]

    assert {body["id"] for _, body in answers} == {answers[0][1]["id"]}
    assert {status for status, _ in answers} <= {200, 201}
    _, body, _ = await served.ask("GET", "/api/v1/runs")
    assert len(body["runs"]) == 1


async def test_a_key_with_another_submission_is_refused_and_another_groups_key_is_another_run(
    served: Served,
) -> None:
    _, first = await post(served, "key")
    status, refused = await post(served, "key", name="another")
    assert status == 409
    assert first["id"] in refused["detail"]
    assert "another submission" in refused["detail"]

    status, theirs = await post(served, "key", group="other")
    assert status == 201
    assert theirs["id"] != first["id"]


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_that_is_none_is_refused(served: Served, key: str) -> None:
    status, body = await post(served, key)
    assert status == 400
    assert body["errors"][0]["field"] == "Idempotency-Key"


async def test_an_ended_run_is_deleted_whole_and_its_key_is_not_used_again(served: Served) -> None:
    _, body = await post(served, "key")
    run_id = body["id"]
    name = await served.running(run_id)
    status, refused, _ = await served.ask("DELETE", f"/api/v1/runs/{run_id}")
    assert (status, "cancel it" in refused["detail"]) == (409, True)
    served.backend.succeed(name, "only")
    assert await served.ended(run_id) is RunState.SUCCEEDED

    assert (await served.ask("DELETE", f"/api/v1/runs/{run_id}"))[0] == 204

    assert not served.session.store.layout.run(run_id).root.exists()
    assert name not in served.backend.workflows
    assert (await served.ask("GET", f"/api/v1/runs/{run_id}"))[0] == 404
    assert (await served.ask("GET", "/api/v1/runs"))[1]["runs"] == []
    assert (await post(served, "key"))[0] == 410
    with pytest.raises(NotFound):
        await served.client.run(run_id)


async def test_what_was_submitted_is_given_back(served: Served) -> None:
    await submit_one(served, "mine")

    _, body, _ = await served.ask("GET", "/api/v1/runs/mine/submission")

    assert codec.encode(ONE) == codec.encode(type(ONE).model_validate(body))


async def test_an_id_that_is_taken_by_another_submission_is_a_conflict(served: Served) -> None:
    await submit_one(served, "mine")
    with pytest.raises(Conflict):
        await served.client.submit(SWEEP, run_id="mine")
