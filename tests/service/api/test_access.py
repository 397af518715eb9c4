"""Who may do what over HTTP: every operation there is, asked without a token, with too small a scope, and by another group."""

from __future__ import annotations

import asyncio
import io
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from yarl import URL

from simrun.model.access import Scope
from simrun.service.api.access import AUTHENTICATOR, principal_of
from simrun.service.api.app import GROUPS, withdraw
from simrun.service.api.routing import EVENT_STREAM, Operation
from simrun.service.auth import Tokens
from simrun.service.review import Authenticator
from tests.service.api.guarded import Guarded, guarded, one

WHO = {
    "owner": {"scope": "run", "groups": ["orbits"]},
    "other": {"scope": "run", "groups": ["tides"]},
    "reader": {"scope": "read", "groups": ["orbits"]},
    "nogroup": {"scope": "read"},
    "ops": {"scope": "admin"},
}
OPERATIONS = [operation for group in GROUPS for operation in group.all]
MARK = "orbits-of-owner"
"""Stands in everything that another group must not see."""
OPEN = {"/healthz", "/readyz"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, WHO) as made:
        yield made


def path_of(operation: Operation, what: str) -> str:
    """Fill in the path of an operation: `what` for the name of the thing it is about."""
    known = {"run": what, "snapshot": what, "plan": what, "version": "1", "attempt": "0"}
    known |= {"task": "only", "worker": "only", "path": "only/text"}
    return re.sub(r"\{(\w+)[^}]*\}", lambda match: known[match[1]], operation.path)


async def make_everything(served: Guarded) -> None:
    """Make one of each as the owner: a run, a snapshot, a launch plan with a schedule."""
    run = await served.submit(MARK, "orbits", "owner", name=f"{MARK}-name", labels={"mark": MARK})
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(f"{MARK}.txt")
        info.size = len(MARK)
        tar.addfile(info, io.BytesIO(MARK.encode()))
    snapshot = await served.ask(
        "POST",
        f"/api/v1/snapshots?group=orbits&name={MARK}",
        who="owner",
        data=archive.getvalue(),
        headers={"Content-Type": "application/x-tar"},
    )
    new = {"name": MARK, "schedule": {"cron": "0 0 1 1 *"}, "description": MARK}
    body = {"plan": new, "submission": one("orbits")}
    plan = await served.ask("POST", "/api/v1/launch-plans", who="owner", json=body)
    active = await served.ask(
        "POST", f"/api/v1/launch-plans/{MARK}/versions/1/activate", who="owner"
    )
    for made in (run, snapshot, plan, active):
        assert made.status in (200, 201), made.text


async def test_every_operation_but_the_open_ones_wants_a_token(served: Guarded) -> None:
    for operation in OPERATIONS:
        reply = await served.ask(operation.method, path_of(operation, "mine"))

        if operation.scope is None:
            assert reply.status in (200, 503), operation.path
            continue
        assert reply.status == 401, operation.path
        assert reply.headers["WWW-Authenticate"].startswith("Bearer")
        assert "Bearer TOKEN" in reply.body["detail"]
    assert {item.path for item in OPERATIONS if item.scope is None} >= OPEN


async def test_a_scope_that_is_too_small_is_refused_with_the_one_that_is_wanted(
    served: Guarded,
) -> None:
    await served.submit("mine", "orbits", "owner")
    small = {Scope.RUN: "reader", Scope.ADMIN: "owner"}
    asked = 0
    for operation in OPERATIONS:
        if operation.scope in small:
            who = small[operation.scope]
            reply = await served.ask(operation.method, path_of(operation, "mine"), who=who)
            asked += 1

            assert reply.status == 403, operation.path
            assert f"needs scope {operation.scope}" in reply.body["detail"]
    assert asked
    assert (await served.ask("GET", "/api/v1/runs/mine", who="reader")).status == 200


@pytest.mark.parametrize("who", ["other", "nogroup"])
async def test_of_another_group_nothing_is_there_whatever_is_asked(
    served: Guarded, who: str
) -> None:
    """The answer is that for what does not exist, to the letter."""
    await make_everything(served)
    nobody = "x" * len(MARK)
    asked = set()
    for operation in OPERATIONS:
        if operation.scope is None or operation.scope is Scope.ADMIN:
            continue
        queries = ["", "?group=orbits"] if "group" in operation.query.model_fields else [""]
        for query in queries:
            reply = await served.ask(operation.method, path_of(operation, MARK) + query, who=who)

            where = f"{operation.method} {operation.path}{query}: {reply.status} {reply.text}"
            assert reply.status < 500, where
            if "{" not in operation.path:
                assert MARK not in reply.text, where
                continue
            missing = await served.ask(
                operation.method, path_of(operation, nobody) + query, who=who
            )
            assert reply.status in (400, 403, 404, 415, 422), where
            assert reply.status == missing.status, where
            assert reply.text.replace(MARK, nobody) == missing.text, where
            asked |= set(re.findall(r"\{(run|snapshot|plan)\}", operation.path))
    assert asked == {"run", "snapshot", "plan"}


async def test_their_own_group_sees_everything_that_was_made(served: Guarded) -> None:
    """So that what others are not shown is really there."""
    await make_everything(served)

    for path in (
        "runs",
        f"runs/{MARK}",
        "snapshots",
        f"snapshots/{MARK}/files",
        "launch-plans",
        f"launch-plans/{MARK}",
        "events",
    ):
        reply = await served.ask("GET", f"/api/v1/{path}", who="owner")
        assert reply.status == 200, reply.text
        assert MARK in reply.text, path


async def test_nobody_submits_for_a_group_that_is_not_theirs(served: Guarded) -> None:
    reply = await served.submit("mine", "tides", "owner")

    assert reply.status == 403
    assert "'tides', only orbits" in reply.body["detail"]
    assert (await served.submit("mine", "tides", "ops")).status == 201


async def test_an_id_of_another_group_is_taken_but_not_told(served: Guarded) -> None:
    """Whose run it is stays theirs, whatever the submission says."""
    await served.submit("mine", "orbits", "owner")

    reply = await served.submit("mine", "tides", "other")

    assert reply.status == 409
    assert "orbits" not in reply.text
    assert (await served.ask("GET", "/api/v1/runs/mine", who="owner")).body["group"] == "orbits"


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/../api/v1/runs",
        "/healthz%2f..%2fapi/v1/runs",
        "/api/v1/runs/healthz",
        "/api/v1/runs?x=/healthz",
        "//healthz",
        "/healthz/",
        "/HEALTHZ",
        "/api/v1/runs/%2fhealthz",
        "/api/v1/runs;/healthz",
        "/api/v1/runs/mine/readyz",
    ],
)
async def test_only_the_exact_path_of_a_probe_is_open(served: Guarded, path: str) -> None:
    for headers in ({}, {"Host": "healthz"}, {"X-Original-URL": "/healthz"}):
        assert (await served.ask("GET", path, headers=headers)).status in (401, 404)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YWRtaW46YWRtaW4=", "Bearer simrun_wrong", "Bearer x y"],
)
async def test_a_header_that_is_no_token_is_refused(served: Guarded, header: str) -> None:
    reply = await served.ask("GET", "/api/v1/runs", headers={"Authorization": header})

    assert reply.status == 401


async def test_a_token_of_bytes_that_are_no_text_is_refused(served: Guarded) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(served.url).port)
    head = b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(head + b"Authorization: Bearer \xff\xfe\r\n\r\n")
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 401 ")


async def test_a_token_is_taken_with_any_case_of_the_scheme_but_not_twice(served: Guarded) -> None:
    token = served.tokens["owner"]
    reply = await served.ask("GET", "/api/v1/runs", headers={"Authorization": f"bearer {token}"})
    assert reply.status == 200
    twice = [("Authorization", f"Bearer {token}")] * 2
    async with served.http.get(f"{served.url}/api/v1/runs", headers=twice) as response:
        assert response.status == 401


async def test_a_server_with_tokens_answers_to_any_name(served: Guarded) -> None:
    """Behind a proxy it is reached by the name of that; whoever has no token gets nothing by a name of their own."""
    reply = await served.ask("GET", "/api/v1/runs", who="owner", headers={"Host": "simrun.lab"})
    assert reply.status == 200
    reply = await served.ask(
        "GET", "/api/v1/runs", who="owner", headers={"Origin": "https://elsewhere.example"}
    )
    assert reply.status == 403


async def test_a_ticket_opens_one_stream_and_nothing_else(served: Guarded) -> None:
    await served.submit("mine", "orbits", "owner")
    reply = await served.ask("POST", "/api/v1/tickets", who="reader")
    assert reply.status == 201
    assert reply.headers["Cache-Control"] == "no-store"
    ticket = reply.body["ticket"]

    assert (await served.ask("GET", f"/api/v1/runs?ticket={ticket}")).status == 401
    stream = f"/api/v1/runs/mine/events?ticket={ticket}"
    opened = await served.ask("GET", stream)
    assert opened.status == 200
    assert "event: " in opened.text
    assert (await served.ask("GET", stream)).status == 401


async def test_a_ticket_sees_what_its_owner_sees(served: Guarded) -> None:
    await served.submit("mine", "orbits", "owner")
    ticket = (await served.ask("POST", "/api/v1/tickets", who="other")).body["ticket"]

    assert (await served.ask("GET", f"/api/v1/runs/mine/events?ticket={ticket}")).status == 404


async def test_a_withdrawal_cuts_the_streams_that_are_open(served: Guarded) -> None:
    await served.submit("mine", "orbits", "owner")
    headers = {"Authorization": f"Bearer {served.tokens['reader']}"}
    async with served.http.get(f"{served.url}/api/v1/runs/mine/events", headers=headers) as stream:
        assert await stream.content.readany()

        withdraw(served.app)

        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.read()


async def test_who_was_not_asked_for_a_token_sees_nothing(tmp_path: Path) -> None:
    """So that an operation that is open to everybody can't show by mistake what is somebody's."""
    with_tokens, without = web.Application(), web.Application()
    tokens = Tokens(tmp_path / "none")
    with_tokens[AUTHENTICATOR] = Authenticator(tokens)

    nobody = principal_of(make_mocked_request("GET", "/", app=with_tokens))
    anybody = principal_of(make_mocked_request("GET", "/", app=without))

    assert not nobody.sees("orbits")
    assert not nobody.scope.allows(Scope.RUN)
    assert anybody.sees("orbits")


def test_streams_are_the_only_answers_that_a_ticket_can_open() -> None:
    streams = [operation for operation in OPERATIONS if operation.content_type == EVENT_STREAM]

    assert streams
    assert all(operation.method == "GET" and operation.scope is Scope.READ for operation in streams)


async def test_a_run_is_owned_by_whoever_made_it_whatever_it_says(served: Guarded) -> None:
    made = await served.submit("mine", "orbits", "owner", owner="somebody else")
    assert made.body["owner"] == "owner"

    # The same submission under the key of a colleague, or of a token with a new name, is the same run
    again = await served.submit("mine", "orbits", "ops", owner="third")
    assert (again.status, again.body["owner"]) == (200, "owner")
