"""The HTTP API over a real server on loopback, through the client that ships."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from simrun.backends.base import Attempt, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.base.errors import Conflict, InvalidInput, NotFound, Unreachable
from simrun.client import AsyncClient
from simrun.model.record import RunState
from simrun.service.api.app import make_app
from simrun.service.attachments import attachments_of
from simrun.service.main import AddressTaken, listen
from simrun.service.opening import open_session
from tests.service.api.serving import Served
from tests.service.world import submission

ONE = submission({"only": {"type": "plain"}}, {"plain": {"command": ["true"]}})


async def test_a_run_is_submitted_watched_and_listed(served: Served) -> None:
    record = await served.client.submit(ONE, run_id="mine")
    assert record.id == "mine"
    name = await served.running("mine")
    states: list[str] = []

    async def watch() -> None:
        async for event in served.client.events("mine"):
            states.append(event.state)
            if event.state == "running":
                served.backend.succeed(name, "only")

    async with asyncio.timeout(20):
        await watch()

    assert states[-1] == "succeeded"
    assert (await served.client.run("mine")).state is RunState.SUCCEEDED
    page = await served.client.runs()
    assert [(row.id, row.state) for row in page.runs] == [("mine", "succeeded")]
    assert page.cursor is None


async def test_the_same_submission_twice_is_one_run_and_another_under_its_id_a_conflict(
    served: Served,
) -> None:
    await served.client.submit(ONE, run_id="mine")
    again = await served.client.submit(ONE, run_id="mine")
    assert again.id == "mine"
    other = submission({"other": {"type": "plain"}}, {"plain": {"command": ["true"]}})

    with pytest.raises(Conflict, match="another submission"):
        await served.client.submit(other, run_id="mine")


async def test_local_files_travel_with_the_submission(served: Served, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "code.py").write_text("import helper\n")
    (home / "helper.py").write_text("")
    (home / "data" / "mesh.txt").write_text("mesh")
    what = submission(
        {"a": {"type": "t", "inputs": {"data": "./data"}}},
        {"t": {"plugin": "code.py:run", "inputs": ["data"]}},
    )

    record = await served.client.submit(what, attachments_of(what, home))

    run = served.session.store.layout.run(record.id)
    assert (run.code / "helper.py").exists()
    assert (run.task("a").inputs / "data" / "mesh.txt").read_text() == "mesh"


async def test_a_file_that_was_not_uploaded_is_named_and_no_file_of_the_server_is_read(
    served: Served,
) -> None:
    what = submission(
        {"a": {"type": "t", "inputs": {"data": "/etc/hostname"}}},
        {"t": {"command": ["true"], "inputs": ["data"]}},
    )

    with pytest.raises(InvalidInput, match="was not uploaded") as caught:
        await served.client.submit(what)

    assert caught.value.problems[0].field == "tasks.a.inputs.data"


async def test_cancel_and_retry(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    await served.running("mine")

    record = await served.client.cancel("mine")
    assert record.state is RunState.CANCELLED
    again = await served.client.retry("mine")

    assert again.round == 1
    name = await served.running("mine")
    assert name == "simrun-mine-r1"


async def test_logs_are_followed_to_the_end_of_the_task(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    name = await served.running("mine")
    log = served.session.store.layout.run("mine").task("only").logs / "only-0.log"
    log.write_bytes(b"one\n\x80\n")
    running = Attempt(n=0, phase=Phase.RUNNING, pod_uid="uid")
    served.backend.attempt(name, "only", running)
    got = b""

    async with asyncio.timeout(20):
        async for chunk in served.client.logs("mine", "only", follow=True):
            got += chunk
            if got == b"one\n\x80\n":
                log.write_bytes(b"one\n\x80\ntwo\n")
                served.backend.succeed(name, "only")

    assert got == b"one\n\x80\ntwo\n"
    tail = [chunk async for chunk in served.client.logs("mine", "only", tail=4)]
    assert b"".join(tail) == b"two\n"


async def test_a_link_out_of_the_run_is_never_followed(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    await served.running("mine")
    logs = served.session.store.layout.run("mine").task("only").logs
    (logs / "only-0.log").symlink_to("/etc/passwd")

    with pytest.raises((NotFound, aiohttp.ClientError, Unreachable)):
        assert not b"".join([chunk async for chunk in served.client.logs("mine", "only")])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/runs/nobody", 404),
        ("GET", "/api/v1/runs/nobody/events", 404),
        ("GET", "/api/v1/runs/..%2f..%2fetc", 404),
        ("GET", "/api/v1/runs/%2e%2e", 404),
        ("GET", "/api/v1/runs?limit=0", 400),
        ("GET", "/api/v1/runs?limit=abc", 400),
        ("GET", "/api/v1/runs?state=odd", 400),
        ("POST", "/api/v1/runs", 422),
        ("DELETE", "/api/v1/runs", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
    ],
)
async def test_bad_requests_are_answered_with_a_problem_document(
    served: Served, method: str, path: str, status: int
) -> None:
    from yarl import URL

    async with (
        aiohttp.ClientSession() as http,
        http.request(method, URL(served.url + path, encoded=True)) as answer,
    ):
        body = await answer.json(content_type=None)
    assert answer.status == status
    if status >= 400:
        assert answer.content_type == "application/problem+json"
        assert body["status"] == status
        assert body["title"]


async def test_a_submission_that_does_not_fit_together_is_refused_with_all_that_is_wrong(
    served: Served,
) -> None:
    what = submission(
        {
            "a": {"type": "plain", "after": ["b", "nobody"]},
            "b": {"type": "plain", "inputs": {"x": "a.y"}, "after": ["a"]},
        },
        {"plain": {"command": ["true"]}},
    )

    with pytest.raises(InvalidInput) as caught:
        await served.client.submit(what)

    text = str(caught.value)
    assert {problem.field for problem in caught.value.problems} >= {"tasks.a.after[1]", "tasks.a"}
    assert "no such task: 'nobody'" in text
    assert "waits for itself" in text
    assert (await served.client.runs()).runs == ()


async def test_types_that_are_not_there_are_told_with_what_was_meant(served: Served) -> None:
    body = ONE.model_dump(mode="json", by_alias=True)
    body["workflow"]["tasks"]["only"]["type"] = "plaim"
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{served.url}/api/v1/runs", json={"submission": body}) as answer,
    ):
        (error,) = (await answer.json(content_type=None))["errors"]

    assert answer.status == 422
    assert (error["field"], error["remedy"]) == ("tasks.only.type", "did you mean 'plain'?")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "elsewhere.example"},
        {"Host": "127.0.0.1.elsewhere.example:8642"},
    ],
)
async def test_a_page_of_another_origin_can_not_use_the_server(
    served: Served, headers: dict[str, str]
) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.post(f"{served.url}/api/v1/runs", data=b"x", headers=headers) as answer:
            assert answer.status == 403
            assert answer.content_type == "application/problem+json"
        own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
        async with http.get(f"{served.url}/api/v1/runs", headers=own) as answer:
            assert answer.status == 200


async def test_a_server_says_which_store_it_has(served: Served) -> None:
    about = await served.client.server()

    assert (about["store"], about["pid"]) == (str(served.root), os.getpid())


async def test_logs_are_chosen_by_attempt_and_cut_to_their_last_lines(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    await served.running("mine")
    logs = served.session.store.layout.run("mine").task("only").logs
    (logs / "only-0.log").write_bytes(b"a\nb\n")
    (logs / "only-1.log").write_bytes(b"c\nd\n")

    async def read(**how: Any) -> bytes:
        return b"".join([chunk async for chunk in served.client.logs("mine", "only", **how)])

    assert await read() == b"a\nb\nc\nd\n"
    assert await read(attempt="last") == b"c\nd\n"
    assert await read(attempt="0", lines=1) == b"b\n"
    assert await read(lines=1) == b"b\nd\n"
    with pytest.raises(InvalidInput, match="must be a number, last or all"):
        await read(attempt="x")


async def test_streams_are_cut_when_the_process_stops_and_hold_nothing_up(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend()
    async with (
        open_session(tmp_path / "store", lambda _store, _pool: backend) as session,
        asyncio.timeout(30),
    ):
        runner = web.AppRunner(make_app(session), shutdown_timeout=300)
        await runner.setup()
        listening = listen("127.0.0.1", 0)
        await web.SockSite(runner, listening).start()
        async with AsyncClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            await client.submit(ONE, run_id="mine")
            kinds = client._stream("/api/v1/runs/mine/events")
            assert (await anext(kinds))[0] == "run"

            await runner.cleanup()

            with pytest.raises(aiohttp.ClientPayloadError):
                async for _ in kinds:
                    pass


async def test_a_stream_that_ends_too_early_again_and_again_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    async def events(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=": nothing\n\n", content_type="text/event-stream")

    app = web.Application()
    app.router.add_get("/api/v1/runs/mine/events", events)
    monkeypatch.setattr("simrun.client.events.TRIES", 2)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = listen("127.0.0.1", 0)
    await web.SockSite(runner, listening).start()
    async with AsyncClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
        with pytest.raises(Unreachable, match="has ended before the run"):
            async for _ in client.events("mine"):
                pass
    await runner.cleanup()
    assert asked == 2


async def test_nobody_there_is_told_as_unreachable() -> None:
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    listening.close()
    async with AsyncClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(Unreachable):
            await client.run("x")


def test_an_address_that_is_taken_is_told_with_the_remedy() -> None:
    listening = listen("127.0.0.1", 0)
    with pytest.raises(AddressTaken, match="--port"):
        listen("127.0.0.1", listening.getsockname()[1])
    listening.close()
