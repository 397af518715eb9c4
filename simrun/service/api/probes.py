"""Which server this is, whether it lives and whether it is ready."""

from __future__ import annotations

import os
import socket

from aiohttp import web
from pydantic import BaseModel

from simrun.base.about import VERSION
from simrun.service.api.access import SESSION
from simrun.service.api.routing import Operations, answer

operations = Operations("service")


class Server(BaseModel):
    """Which simrun answers."""

    simrun: str
    """Its version."""
    store: str
    host: str
    pid: int


class Health(BaseModel):
    """Whether it is well; `reasons` say what is wrong."""

    status: str
    reasons: list[str] = []


@operations.get("/api/v1/server", scope=None, answer=Server)
async def server(request: web.Request) -> web.StreamResponse:
    """Say which simrun this is: so that who found the address in the lock of a store knows that it is that store's."""
    store = str(request.app[SESSION].store.layout.root)
    return answer(Server(simrun=VERSION, store=store, host=socket.gethostname(), pid=os.getpid()))


@operations.get("/healthz", scope=None, answer=Health)
async def healthz(_request: web.Request) -> web.StreamResponse:
    """Say that the event loop turns."""
    return answer(Health(status="ok"))


@operations.get("/readyz", scope=None, answer=Health, also=(503,))
async def readyz(request: web.Request) -> web.StreamResponse:
    """Say whether runs are followed, and why not."""
    reasons = await request.app[SESSION].not_ready()
    found = Health(status="not ready" if reasons else "ok", reasons=reasons)
    return answer(found, status=503 if reasons else 200)
