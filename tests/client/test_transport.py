"""What the client tries again, and what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from simrun.base.errors import (
    BackendUnavailable,
    Exhausted,
    InvalidInput,
    NotFound,
    Unauthorized,
    Unreachable,
)
from simrun.client import AsyncClient, transport
from simrun.model.record import RunRecord, RunTimes
from tests.client.served import ONE, answering, listening

RUNS = "/api/v1/runs"
RUN = RunRecord(id="mine", times=RunTimes(created=1.0)).model_dump(mode="json")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMRUN_TOKEN", raising=False)
    monkeypatch.delenv("SIMRUN_SERVER", raising=False)


class Asked:
    """Notes what was asked, and answers."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []

    async def cut(self, request: web.Request) -> web.StreamResponse:
        """Take the whole request, and answer nothing: as a server that dies then."""
        self.seen.append(request)
        self.bodies.append(await request.read())
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def busy(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        return _problem(429, headers={"Retry-After": "0"})

    async def run(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        return web.json_response(RUN)


def _problem(status: int, *, headers: dict[str, str] | None = None, **more: Any) -> web.Response:
    body = json.dumps({"title": "no", "detail": "not now", **more})
    return web.Response(
        status=status, text=body, content_type="application/problem+json", headers=headers
    )


async def test_c46_a_submission_whose_answer_was_lost_is_sent_again_under_the_same_id() -> None:
    asked = Asked()
    app = answering("POST", RUNS, asked.cut, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        assert (await client.submit(ONE)).id == "mine"

    first, second = (_form(body) for body in asked.bodies)
    assert first == second
    assert len(first["id"]) > 20


async def test_a_key_travels_as_a_header_and_no_id_beside_it() -> None:
    asked = Asked()
    app = answering("POST", RUNS, asked.cut, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        await client.submit(ONE, key="campaign 7")

    assert [request.headers["Idempotency-Key"] for request in asked.seen] == ["campaign 7"] * 2
    assert "id" not in _form(asked.bodies[1])


async def test_a_launch_whose_answer_was_lost_is_sent_again_under_the_same_id() -> None:
    asked = Asked()
    app = answering("POST", "/api/v1/launch-plans/nightly/launch", asked.cut, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        assert (await client.launch_plan("nightly", settings={"only": {"depth": 8}})).id == "mine"

    first, second = map(json.loads, asked.bodies)
    assert first == second
    assert len(first["id"]) > 20


async def test_what_may_have_happened_is_not_done_twice() -> None:
    asked = Asked()
    app = answering("POST", f"{RUNS}/mine/retry", asked.cut, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        with pytest.raises(Unreachable):
            await client.retry("mine")

    assert len(asked.seen) == 1


async def test_retry_after_is_respected_also_where_a_call_is_not_repeatable() -> None:
    asked = Asked()
    app = answering("POST", f"{RUNS}/mine/retry", asked.busy, asked.busy, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        assert (await client.retry("mine")).id == "mine"

    assert len(asked.seen) == 3


async def test_who_waits_long_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    told: list[tuple[str, float]] = []
    monkeypatch.setattr("simrun.client.transport.TOLD_S", 0.0)
    app = answering("POST", f"{RUNS}/mine/retry", asked.busy, asked.run)
    async with (
        listening(app) as url,
        AsyncClient(url, on_wait=lambda *wait: told.append(wait)) as client,
    ):
        assert (await client.retry("mine")).id == "mine"

    assert told == [("not now", 0.0)]


async def test_a_date_to_come_back_at_counts_from_that_of_the_answer() -> None:
    asked = Asked()
    date = "Mon, 30 Nov 2026 18:00:00 GMT"

    async def busy(_request: web.Request) -> web.StreamResponse:
        return _problem(429, headers={"Retry-After": date, "Date": date})

    app = answering("GET", f"{RUNS}/mine", busy, asked.run)
    async with listening(app) as url, AsyncClient(url) as client:
        assert (await client.run("mine")).id == "mine"


async def test_a_limit_that_stays_is_told_with_its_wait() -> None:
    asked = Asked()
    app = answering("GET", f"{RUNS}/mine", asked.busy)
    async with listening(app) as url, AsyncClient(url, tries=2) as client:
        with pytest.raises(Exhausted, match="not now") as caught:
            await client.run("mine")

    assert caught.value.retry_after_s == 0
    assert len(asked.seen) == 2


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (503, {}, BackendUnavailable),
        (429, {"Retry-After": "3600"}, Exhausted),
        (429, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}, Exhausted),
        (429, {"Retry-After": "soon"}, Exhausted),
        (401, {}, Unauthorized),
        (500, {}, Exception),
    ],
)
async def test_other_refusals_are_told_at_once(
    status: int, headers: dict[str, str], kind: type[Exception]
) -> None:
    asked: list[str] = []

    async def refuse(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return _problem(status, headers=headers)

    app = answering("GET", f"{RUNS}/mine", refuse)
    async with listening(app) as url, AsyncClient(url) as client:
        with pytest.raises(kind, match="not now"):
            await client.run("mine")

    assert len(asked) == 1


async def test_the_problems_of_a_body_come_back_with_field_value_and_remedy() -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        item = {"field": "limit", "message": "is too much", "value": "9", "remedy": "take less"}
        return _problem(400, errors=[item])

    async with listening(answering("GET", RUNS, refuse)) as url, AsyncClient(url) as client:
        with pytest.raises(InvalidInput) as caught:
            await client.runs()

    assert str(caught.value) == "limit: is too much (got 9); take less"


async def test_nobody_there_is_tried_again_and_then_told() -> None:
    async with listening(web.Application()) as url:
        pass
    async with AsyncClient(url, tries=2) as client:
        with pytest.raises(Unreachable, match="can't connect: Connection refused"):
            await client.run("mine")


async def test_a_host_that_nobody_knows_is_told_in_words() -> None:
    async with AsyncClient("http://nobody.invalid", tries=1) as client:
        with pytest.raises(Unreachable, match=r"can't connect: [A-Z]") as caught:
            await client.run("mine")
    assert "Unknown error" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_that_would_lead_to_another_address_is_asked_of_nobody(name: str) -> None:
    async with AsyncClient("http://127.0.0.1:1", tries=1) as client:
        with pytest.raises(NotFound, match="nothing of the name"):
            await client.run(name)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateway_that_answers_for_a_server_is_asked_again_and_then_told(
    status: int,
) -> None:
    asked = Asked()

    async def gateway(request: web.Request) -> web.StreamResponse:
        asked.seen.append(request)
        return web.Response(status=status, text="<html>Gateway</html>", content_type="text/html")

    app = answering("GET", f"{RUNS}/mine", gateway, asked.run)
    async with listening(app) as url, AsyncClient(url, tries=2) as client:
        assert (await client.run("mine")).id == "mine"
    app = answering("GET", RUNS, gateway)
    async with listening(app) as url, AsyncClient(url, tries=2) as client:
        with pytest.raises(Unreachable, match=f"answered {status}"):
            await client.runs()

    assert len(asked.seen) == 4


async def test_a_call_that_may_not_be_made_twice_is_not_because_of_a_gateway() -> None:
    asked: list[str] = []

    async def gateway(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")

    app = answering("POST", f"{RUNS}/mine/retry", gateway)
    async with listening(app) as url, AsyncClient(url) as client:
        with pytest.raises(Unreachable, match="answered 502"):
            await client.retry("mine")

    assert len(asked) == 1


async def test_an_event_of_megabytes_is_read_whole_however_it_is_cut_up() -> None:
    row = {"id": "mine", "labels": {"text": "x\u00e9" * 1_000_000}}

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = json.dumps(row, ensure_ascii=False)
        event = f"retry: 1000\n\n: ping\n\nevent: run\r\nid: a.1\ndata: {data}\n\n".encode()
        for start in range(0, len(event), 99_991):
            await response.write(event[start : start + 99_991])
        return response

    app = answering("GET", "/api/v1/events", stream)
    async with listening(app) as url, AsyncClient(url) as client:
        async for kind, data in client.all_events():
            assert (kind, data) == ("run", row)
            break


@pytest.mark.parametrize(
    ("given", "variable", "sent"),
    [
        ("mine", "theirs", "Bearer mine"),
        (None, "theirs", "Bearer theirs"),
        ("", "theirs", None),
        (None, None, None),
    ],
)
async def test_a_token_is_given_or_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: str | None, variable: str | None, sent: str | None
) -> None:
    if variable:
        monkeypatch.setenv(transport.TOKEN_VARIABLE, variable)
    asked = Asked()
    async with listening(answering("GET", f"{RUNS}/mine", asked.run)) as url:
        monkeypatch.setenv(transport.SERVER_VARIABLE, url)
        async with AsyncClient(token=given) as client:
            await client.run("mine")

    assert asked.seen[0].headers.get("Authorization") == sent


def test_a_token_that_can_be_no_header_is_refused() -> None:
    with pytest.raises(ValueError, match="no spaces") as caught:
        AsyncClient("http://127.0.0.1:1", token="secret\nsecret")
    assert "secret" not in str(caught.value)


def test_a_client_without_a_server_is_refused() -> None:
    with pytest.raises(ValueError, match="SIMRUN_SERVER"):
        AsyncClient()


def _form(body: bytes) -> dict[str, str]:
    """The text fields of multipart/form-data."""
    parts = body.decode().split("\r\n\r\n")
    names = [part.rsplit('name="', 1)[1].split('"')[0] for part in parts[:-1]]
    return {name: value.split("\r\n--")[0] for name, value in zip(names, parts[1:], strict=True)}
