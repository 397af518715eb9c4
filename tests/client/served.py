"""A real server in a thread of its own, and servers that misbehave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from simrun.backends.scripted import ScriptedBackend
from simrun.model.record import RunState
from simrun.service.api.app import make_app
from simrun.service.auth import Tokens
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session
from tests.service.world import submission

ONE = submission({"only": {"type": "plain"}}, {"plain": {"command": ["true"]}})


@dataclass
class Served:
    """A server over a store, whose workers do what the test says."""

    url: str
    backend: ScriptedBackend
    session: Session

    async def succeed(self, run_id: str) -> None:
        """Wait until a run of ONE runs, and have its task succeed."""
        async for item in self.session.updates(run_id):
            if item.state is RunState.RUNNING:
                break
        name = (await self.session.record(run_id)).workflow_name
        assert name is not None
        self.backend.succeed(name, "only")


@asynccontextmanager
async def serving(root: Path, tokens: Tokens | None = None) -> AsyncIterator[Served]:
    """Serve a store with a scripted backend."""
    backend = ScriptedBackend()
    opening = open_session(
        root / "store",
        lambda _store, _pool: backend,
        command="serve",
        index=root / "index.sqlite",
    )
    async with opening as session, listening(make_app(session, tokens=tokens)) as url:
        yield Served(url, backend, session)


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free port; its address."""
    socket = listen("127.0.0.1", 0)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.SockSite(runner, socket).start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        await runner.cleanup()


def answering(
    method: str, path: str, *answers: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.Application:
    """Give an application that answers a path with one handler after the other, the last again and again."""
    left = list(answers)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    app = web.Application()
    app.router.add_route(method, path, handler)
    return app
