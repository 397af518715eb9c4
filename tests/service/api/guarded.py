"""A server with tokens, on loopback, and whoever asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from simrun.backends.scripted import ScriptedBackend
from simrun.model.access import new_token, token_hash
from simrun.model.workflow import Submission
from simrun.service.api.app import make_app
from simrun.service.auth import Tokens
from simrun.service.limits import Limits
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session
from tests.service.world import submission


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@dataclass
class Guarded:
    """A server that knows some tokens."""

    url: str
    session: Session
    backend: ScriptedBackend
    app: web.Application
    http: aiohttp.ClientSession
    tokens: dict[str, str]
    """Name -> token."""
    file: Path
    more: dict[str, Any] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, *, who: str | None = None, head: bool = False, **how: Any
    ) -> Reply:
        """Ask; a stream is read as far as its first event."""
        headers = dict(how.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.tokens[who]}"
        url = URL(self.url + path, encoded=True)
        async with (
            asyncio.timeout(30),
            self.http.request(method, url, headers=headers, **how) as response,
        ):
            if response.content_type == "text/event-stream" and response.status == 200:
                data = b""
                while b"data:" not in data and (piece := await response.content.readany()):
                    data += piece
            else:
                data = await response.read()
            return Reply(response.status, response.headers.copy(), data.decode(errors="replace"))

    async def submit(self, run_id: str, group: str, who: str, **request: Any) -> Reply:
        """Submit a run of one task."""
        body = {"id": run_id, "submission": one(group, **request)}
        return await self.ask("POST", "/api/v1/runs", who=who, json=body)


def one(group: str, **request: Any) -> dict[str, Any]:
    """Give the submission of a run of one task, as JSON."""
    made: Submission = submission(
        {"only": {"type": "plain"}}, {"plain": {"command": ["true"]}}, group=group, **request
    )
    return made.model_dump(mode="json", by_alias=True)


def entries(tokens: Mapping[str, str], fields: Mapping[str, Mapping[str, Any]]) -> str:
    """Give the file of tokens."""
    listed = [
        {"name": name, "sha256": token_hash(token), **fields[name]}
        for name, token in tokens.items()
    ]
    return json.dumps(listed)


@asynccontextmanager
async def guarded(
    tmp_path: Path,
    who: Mapping[str, Mapping[str, Any]],
    *,
    limits: Limits | None = None,
    **how: Any,
) -> AsyncIterator[Guarded]:
    """Serve a new store for the holders of some tokens: name -> fields of its entry."""
    backend = ScriptedBackend()
    file = tmp_path / "tokens.yaml"
    tokens = {name: new_token() for name in who}
    file.write_text(entries(tokens, who))
    known = Tokens(file)
    known.load()
    async with open_session(
        tmp_path / "store",
        lambda _store, _pool: backend,
        command="serve",
        index=tmp_path / "index.sqlite",
        limits=limits,
    ) as session:
        listening = listen("127.0.0.1", 0)
        app = make_app(session, tokens=known, **how)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with aiohttp.ClientSession() as http:
            yield Guarded(url, session, backend, app, http, tokens, file)
        await runner.cleanup()
