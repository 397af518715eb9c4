"""A service that does not lead: it waits for its turn, and says who leads to whoever asks.

It is alive but not ready, so that a cluster neither restarts it nor sends it requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from aiohttp import web

from simrun.base.term import Election, Term

log = logging.getLogger(__name__)

T = TypeVar("T")


@asynccontextmanager
async def elected(
    election: Election[T], listening: socket.socket, stop: asyncio.Event
) -> AsyncIterator[Term | None]:
    """Wait until this process leads, and lead until left; None when it was stopped before.

    Raises LeadershipLost once what runs inside was cancelled and has ended.
    """
    async with _answering(listening, lambda: election.leader):
        term = await _first(election, stop)
    if term is None:
        yield None
        return
    async with election.holding(term) as leading:
        yield leading


async def _first(election: Election[T], stop: asyncio.Event) -> T | None:
    """The term, or None when the stop comes first."""
    acquiring = asyncio.ensure_future(election.acquire())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if acquiring.done() and not stop.is_set():
            return acquiring.result()
        return None
    finally:
        for task in (acquiring, stopping):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await acquiring
            if stop.is_set():
                await election.release()


@asynccontextmanager
async def _answering(listening: socket.socket, leader: Callable[[], str]) -> AsyncIterator[None]:
    """Answer on a socket that somebody else goes on to use."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(_request: web.Request) -> web.Response:
        who = leader() or "nobody yet"
        body = {"status": "not ready", "reasons": [f"stands by: {who} leads"]}
        return web.json_response(body, status=503)

    async def anything(_request: web.Request) -> web.Response:
        detail = f"this service stands by: {leader() or 'nobody yet'} leads"
        body = {"title": "not leading", "status": 503, "detail": detail}
        return web.json_response(
            body, status=503, content_type="application/problem+json", headers={"Retry-After": "5"}
        )

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_route("*", "/{path:.*}", anything)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listening.dup()).start()
        yield
    finally:
        await runner.cleanup()
