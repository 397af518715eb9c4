"""Behind Debian's nginx as it comes, with buffering and a limit for idle connections, streams of events live and come through at once."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from simrun.backends.scripted import ScriptedBackend
from simrun.client import AsyncClient
from simrun.model.record import RunState
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session
from tests.service.api.test_api import ONE
from tests.service.api.test_events import ALL, MINE, stream

pytestmark = pytest.mark.programs

IDLE_S = 5.0
"""What nginx bears: 60 s by default, lowered here, and the pings with it."""
PING_S = IDLE_S * 10 / 60
CONFIG = """
daemon off;
user root;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  gzip on;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{upstream};
      proxy_http_version 1.1;
      proxy_read_timeout {idle_ms}ms;
    }}
  }}
}}
"""


@asynccontextmanager
async def nginx(directory: Path, upstream: int) -> AsyncIterator[str]:
    """Run nginx before a server; its address."""
    program = shutil.which("nginx")
    assert program, "nginx is missing: .ci/run installs Debian's nginx-light"
    directory.mkdir()
    config = directory / "nginx.conf"
    for _ in range(5):  # a port that is free now may be taken in the next moment
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config.write_text(
            CONFIG.format(
                directory=directory, port=port, upstream=upstream, idle_ms=int(IDLE_S * 1000)
            )
        )
        process = await asyncio.create_subprocess_exec(
            program, "-c", config, "-e", directory / "error.log"
        )
        try:
            if await listening(process, port):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()
    raise AssertionError((directory / "error.log").read_text())


async def listening(process: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until nginx answers; False when it has ended instead."""
    async with asyncio.timeout(20):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return True
    return False


@asynccontextmanager
async def serving(
    root: Path, backend: ScriptedBackend, port: int = 0
) -> AsyncIterator[tuple[Session, int]]:
    """Serve a store; the session, and the port."""
    async with open_session(
        root / "store", lambda _store, _pool: backend, command="serve", index=root / "index.sqlite"
    ) as session:
        session.events.bell.beat_s = session.feeds.beat_s = PING_S
        runner = web.AppRunner(make_app(session), shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listen("127.0.0.1", port)).start()
        yield session, runner.addresses[0][1]
        await runner.cleanup()


async def running(session: Session) -> str:
    """Wait until the run runs; the name of its workflow."""
    async for progress in session.updates("mine"):
        if progress.state is RunState.RUNNING:
            break
    return (await session.record("mine")).workflow_name or ""


async def test_a_quiet_stream_outlives_the_limit_of_the_proxy_and_a_change_comes_through_at_once(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend()
    async with (
        asyncio.timeout(50),
        serving(tmp_path, backend) as (session, port),
        nginx(tmp_path / "nginx", port) as url,
        AsyncClient(url) as client,
        aiohttp.ClientSession() as http,
        stream(http, url + ALL, **{"Accept-Encoding": "gzip"}) as of_all,
    ):
        await client.submit(ONE, run_id="mine")
        name = await running(session)
        async with stream(http, url + MINE, **{"Accept-Encoding": "gzip"}) as of_one:
            for reader in (of_all, of_one):
                assert "Content-Encoding" not in reader.answer.headers
                pings = 0
                while pings * PING_S < IDLE_S * 1.2:
                    pings += await reader.block() == ": ping"

            backend.succeed(name, "only")  # the streams go on, so nothing that is kept would come

            await of_one.until("run", state="succeeded")
            await of_all.until("run", state="succeeded")


async def test_after_a_restart_a_watcher_is_connected_again_and_sees_the_present(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend()
    seen: list[str] = []
    kinds: list[str] = []
    both = asyncio.Event()

    async def watch(client: AsyncClient) -> None:
        async for progress in client.events("mine"):
            seen.append(progress.state)
            if progress.state is RunState.RUNNING and kinds:
                both.set()

    async def watch_all(client: AsyncClient) -> None:
        async for kind, data in client.all_events():
            kinds.append(kind)
            rows = data["runs"] if kind == "snapshot" else [data]
            if seen:
                both.set()
            if [row["state"] for row in rows] == ["succeeded"]:
                return

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(50))
        async with serving(tmp_path, backend) as (session, port):
            url = await stack.enter_async_context(nginx(tmp_path / "nginx", port))
            client = await stack.enter_async_context(AsyncClient(url))
            await client.submit(ONE, run_id="mine")
            name = await running(session)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            watching = [group.create_task(watch(client)), group.create_task(watch_all(client))]
            await both.wait()
        backend.succeed(name, "only")  # nobody serves now, and nginx says so
        async with serving(tmp_path, backend, port):
            await asyncio.wait(watching)

    assert (seen[0], seen[-1]) == ("running", "succeeded")
    assert (
        kinds.count("snapshot") == 2
    )  # the places of the first process mean nothing to the second
