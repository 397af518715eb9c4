"""TokenReview: whose token it is, as far as it was made for simrun."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from simrun.backends.base import Identity
from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.errors import Forbidden
from simrun.backends.kubernetes.identity import AUDIENCE, PATH, review
from simrun.backends.kubernetes.session import KubeSession
from simrun.service.main import listen

GOOD = {
    "authenticated": True,
    "audiences": [AUDIENCE],
    "user": {"username": "anna", "uid": "1", "groups": ["lab", "system:authenticated"]},
}


async def asked(status: dict[str, Any], code: int = 201) -> tuple[Identity | None, dict[str, Any]]:
    """Ask an API server that answers so; what came of it, and what it was asked."""
    seen: dict[str, Any] = {}

    async def handle(request: web.Request) -> web.Response:
        seen.update(await request.json())
        body = {**seen, "status": status} if code < 400 else {"kind": "Status", "code": code}
        return web.json_response(body, status=code)

    app = web.Application()
    app.router.add_post(PATH, handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listening = listen("127.0.0.1", 0)
    await web.SockSite(runner, listening).start()
    access = Access(server=f"http://127.0.0.1:{listening.getsockname()[1]}")
    try:
        async with KubeSession(access) as kube:
            return await review(kube, "secret"), seen
    finally:
        await runner.cleanup()


async def test_a_good_token_gives_its_user_and_groups_and_is_asked_for_our_audience() -> None:
    found, seen = await asked(GOOD)

    assert found == Identity("anna", frozenset({"lab", "system:authenticated"}))
    assert seen["spec"] == {"token": "secret", "audiences": ["simrun"]}


@pytest.mark.parametrize(
    "status",
    [
        {"authenticated": False, "error": "expired"},
        {**GOOD, "audiences": ["https://kubernetes.default.svc"]},
        {**GOOD, "audiences": None},
        {**GOOD, "user": {}},
        {**GOOD, "authenticated": "true"},
        {},
    ],
)
async def test_any_other_token_is_nobodys(status: dict[str, Any]) -> None:
    found, _ = await asked(status)

    assert found is None


async def test_a_server_that_does_not_let_us_ask_is_an_error() -> None:
    with pytest.raises(Forbidden):
        await asked({}, 403)
