"""A server on loopback over a scripted backend, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from simrun.backends.scripted import ScriptedBackend
from simrun.client import AsyncClient
from simrun.model.record import RunState
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session


@dataclass
class Served:
    """A server and a client of it."""

    url: str
    client: AsyncClient
    backend: ScriptedBackend
    session: Session
    root: Path
    http: aiohttp.ClientSession

    async def running(self, run_id: str) -> str:
        """Wait until a run runs; the name of its workflow."""
        async for item in self.session.updates(run_id):
            if item.state is RunState.RUNNING:
                break
        return (await self.session.record(run_id)).workflow_name or ""

    async def ended(self, run_id: str) -> RunState:
        """Wait until a run has ended with nothing pending."""
        state = RunState.RUNNING
        async for item in self.session.updates(run_id):
            state = item.state
        return state

    async def ask(self, method: str, path: str, **how: Any) -> tuple[int, Any, Any]:
        """Give status, body (JSON where it is that, else bytes) and headers; the path goes out as it is written."""
        url = URL(self.url + path, encoded=True)
        async with self.http.request(method, url, **how) as answer:
            json = answer.content_type.endswith("json")
            body = await answer.json(content_type=None) if json else await answer.read()
            return answer.status, body, answer.headers.copy()


@asynccontextmanager
async def serving(tmp_path: Path, **how: Any) -> AsyncIterator[Served]:
    """Serve a new store; `how`: what else `make_app` takes."""
    backend = ScriptedBackend()
    root = tmp_path / "store"
    index = tmp_path / "index.sqlite"
    async with open_session(
        root, lambda _store, _pool: backend, command="serve", index=index
    ) as session:
        listening = listen("127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        runner = web.AppRunner(make_app(session, **how), shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        async with AsyncClient(url) as client, aiohttp.ClientSession() as http:
            yield Served(url, client, backend, session, root, http)
        await runner.cleanup()
