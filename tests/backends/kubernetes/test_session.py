"""Requests: who asks, and what each kind of answer becomes."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from simrun.backends.kubernetes import errors, session
from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import BackendError, BackendUnavailable
from tests.backends.kubernetes.fake_api import FakeApi

MAPS = "/api/v1/namespaces/here/configmaps"


def refusal(code: int, reason: str = "", **details: Any) -> str:
    return json.dumps(
        {
            "kind": "Status",
            "code": code,
            "reason": reason,
            "message": f"no: {reason}",
            "details": details,
        }
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, refusal(404, "NotFound", name="a"), errors.NotFound),
        # a list, or a kind that the server doesn't have, is not "this object is not there"
        (404, refusal(404, "NotFound"), errors.UnknownResource),
        (404, "404 page not found\n", errors.UnknownResource),
        (404, "<html>nothing here</html>", errors.UnknownResource),
        (409, refusal(409, "AlreadyExists"), errors.AlreadyExists),
        (409, refusal(409, "Conflict"), errors.Conflict),
        (410, refusal(410, "Expired"), errors.Gone),
        (422, refusal(422, "Invalid"), errors.Invalid),
        (400, refusal(400, "BadRequest"), errors.Invalid),
        (401, refusal(401, "Unauthorized"), errors.Unauthorized),
        (401, "Unauthorized", errors.Unauthorized),
        (403, refusal(403, "Forbidden"), errors.Forbidden),
        (405, refusal(405, "MethodNotAllowed"), errors.Refused),
        (429, refusal(429, "TooManyRequests"), errors.TooManyRequests),
        (500, refusal(500, "InternalError"), errors.ServerFailure),
        (502, "<html>Bad Gateway</html>", errors.ServerFailure),
        (503, "", errors.ServerFailure),
        (504, refusal(504, "Timeout"), errors.ServerFailure),
        (302, "moved", errors.Nonsense),
        (200, "<html>please log in</html>", errors.Nonsense),
        (200, '{"kind": "Li', errors.Nonsense),
        (200, "[]", errors.Nonsense),
    ],
)
async def test_each_answer_has_its_error(
    server: FakeApi, kube: KubeSession, status: int, body: str, kind: type[errors.ApiError]
) -> None:
    server.fail(status, body)

    with pytest.raises(errors.ApiError) as raised:
        await kube.get(f"{MAPS}/a")

    assert type(raised.value) is kind
    assert f"GET {MAPS}/a" in str(raised.value)


async def test_what_may_be_asked_again_is_told_from_what_may_not(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(503, "")
    with pytest.raises(BackendUnavailable):
        await kube.get(MAPS)
    server.fail(403, refusal(403, "Forbidden"))
    with pytest.raises(BackendError):
        await kube.get(MAPS)


@pytest.mark.parametrize(
    ("headers", "details", "after"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        (
            {
                "Date": "Wed, 21 Oct 2026 07:27:50 GMT",
                "Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT",
            },
            {},
            10.0,
        ),
        ({"Retry-After": "tomorrow"}, {}, None),
        ({"Retry-After": "-5"}, {}, None),
        ({"Retry-After": "99999999"}, {}, None),
    ],
)
async def test_when_to_come_back_is_read(
    server: FakeApi,
    headers: dict[str, str],
    details: dict[str, Any],
    after: float | None,
) -> None:
    server.fail(429, refusal(429, "TooManyRequests", **details), headers=headers)

    async with KubeSession(Access(server=server.url), patience_s=0) as kube:
        with pytest.raises(errors.TooManyRequests) as raised:
            await kube.get(MAPS)

    assert raised.value.after == after


@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_that_is_turned_away_is_made_again_when_the_server_says(
    server: FakeApi, kube: KubeSession, status: int
) -> None:
    server.fail(status, "slow down", times=2, headers={"Retry-After": "0"})
    begun = len(server.requests)

    made = await kube.create(MAPS, {"metadata": {"name": "a"}})

    assert made["metadata"]["name"] == "a"
    assert len(server.requests) - begun == 3


async def test_a_server_that_turns_away_for_ever_is_told_in_the_end(server: FakeApi) -> None:
    server.fail(429, "slow down", times=1000, headers={"Retry-After": "0"})

    async with KubeSession(Access(server=server.url), patience_s=1) as kube:
        with pytest.raises(errors.TooManyRequests):
            await kube.get(MAPS)

    assert len(server.requests) <= 12


async def test_a_call_is_not_made_again_where_nobody_says_when(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(503, "away")

    with pytest.raises(errors.ServerFailure):
        await kube.get(MAPS)

    assert len(server.requests) == 1


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with KubeSession(Access(server="http://127.0.0.1:1")) as kube:
        with pytest.raises(errors.Unreachable):
            await kube.get(MAPS)
        with pytest.raises(errors.Unreachable):
            async with aclosing(kube.stream(MAPS, silence_s=1)) as stream:
                await anext(stream)


async def test_silence_on_a_stream_is_noticed(server: FakeApi, kube: KubeSession) -> None:
    query = {"watch": "1", "resourceVersion": str(server.version)}

    with pytest.raises(errors.Unreachable):
        async with aclosing(kube.stream(MAPS, query, silence_s=0.1)) as stream:
            await anext(stream)


async def test_a_broken_stream_is_unreachable(server: FakeApi, kube: KubeSession) -> None:
    query = {"watch": "1", "resourceVersion": str(server.version)}
    stream = kube.stream(MAPS, query, silence_s=10)
    first = asyncio.ensure_future(anext(stream))
    await server.watched(1)
    await server.put(f"{MAPS}/a", {})
    await first

    server.reset_connections()

    with pytest.raises(errors.Unreachable):
        await anext(stream)


async def test_a_stream_that_is_left_lets_go_of_its_connection(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(f"{MAPS}/a", {})
    query = {"watch": "1", "resourceVersion": "0"}

    async with aclosing(kube.stream(MAPS, query, silence_s=10)) as stream:
        await anext(stream)

    async with asyncio.timeout(10):
        while server.connections:
            await asyncio.sleep(0.01)


async def test_streams_never_make_a_call_wait(server: FakeApi, kube: KubeSession) -> None:
    query = {"watch": "1", "resourceVersion": str(server.version)}
    streams = [kube.stream(MAPS, query, silence_s=30) for _ in range(50)]
    firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await server.watched(50)

    async with asyncio.timeout(10):
        await kube.get(MAPS)

    await server.put(f"{MAPS}/a", {})
    await asyncio.gather(*firsts)
    for stream in streams:
        await stream.aclose()


# --- credentials


class Issuer:
    """Gives out tokens, one after the other."""

    def __init__(self, url: str) -> None:
        self.issued = 0
        self.broken = False
        self._url = url

    def __call__(self) -> Access:
        if self.broken:
            raise BackendError("the plugin is missing")
        self.issued += 1
        return Access(server=self._url, authorization=f"Bearer {self.issued}")


async def test_a_token_that_expired_is_read_again_and_the_call_repeated(server: FakeApi) -> None:
    issuer = Issuer(server.url)
    async with KubeSession(issuer(), issuer) as kube:
        server.token = "Bearer 1"
        await kube.get(MAPS)
        server.token = "Bearer 2"
        await kube.get(MAPS)

    assert issuer.issued == 2
    assert len(server.requests) == 3


async def test_many_calls_at_once_read_a_new_token_once(server: FakeApi) -> None:
    issuer = Issuer(server.url)
    async with KubeSession(issuer(), issuer) as kube:
        server.token = "Bearer 2"
        await asyncio.gather(*(kube.get(MAPS) for _ in range(20)))

    assert issuer.issued == 2


async def test_a_token_that_is_not_accepted_anew_is_unauthorized(server: FakeApi) -> None:
    issuer = Issuer(server.url)
    server.token = "Bearer none of these"
    async with KubeSession(issuer(), issuer) as kube:
        with pytest.raises(errors.Unauthorized):
            await kube.get(MAPS)

    assert len(server.requests) == 2


async def test_a_token_is_read_again_before_it_gets_old(
    server: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(server.url)
    monkeypatch.setattr(session, "FRESH_S", -1.0)
    async with KubeSession(issuer(), issuer) as kube:
        await kube.get(MAPS)

    assert server.requests[-1].headers["Authorization"] == "Bearer 2"


async def test_credentials_that_cannot_be_read_again_leave_the_old_ones(server: FakeApi) -> None:
    issuer = Issuer(server.url)
    async with KubeSession(issuer(), issuer) as kube:
        server.token = "Bearer 2"
        issuer.broken = True
        with pytest.raises(errors.Unauthorized):
            await kube.get(MAPS)
        issuer.broken = False
        await kube.get(MAPS)


async def test_a_client_certificate_that_was_replaced_is_shown_on_new_connections(
    server: FakeApi,
) -> None:
    certificates = ["old", "old", "new", "new"]

    def load() -> Access:
        return Access(server=server.url, certificate=certificates.pop(0))

    refusal = '{"kind": "Status", "code": 401, "reason": "Unauthorized"}'
    async with KubeSession(load(), load) as kube:
        for _ in range(3):
            server.fail(401, refusal)  # so that it is read again
            await kube.get(MAPS)

    ports = server.ports
    assert ports[0] == ports[1] == ports[2]  # the same one is no reason for another connection
    assert ports[3] != ports[0]
    assert len(set(ports[3:])) == 1


async def test_a_token_goes_nowhere_but_to_the_server(server: FakeApi) -> None:
    server.fail(307, "", headers={"Location": "http://127.0.0.1:1/elsewhere"})
    access = replace(Access(server=server.url), authorization="Bearer 1")
    async with KubeSession(access) as kube:
        with pytest.raises(errors.Nonsense):
            await kube.get(MAPS)
