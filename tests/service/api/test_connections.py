"""Connections that nobody asks anything over are ended, and whoever stops in the middle of something is not waited for."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from simrun.service.api import bodies, streams
from simrun.service.api.connections import HEAD_WITHIN_S, Connections
from tests.service.api.serving import Served

HALF = b"GET /healthz HTTP/1.1\r\nHost: 127"
REST = b".0.0.1\r\n\r\n"
Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server that answers everything, and what is known of its connections."""

    def __init__(self, most: int) -> None:
        self.known = Connections(most)
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.server = web.Server(self._handle)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with self.known.busy(request):
            self.asked.set()
            await self.answer.wait()
            return web.Response()

    async def connections(self, count: int) -> list[web.RequestHandler]:
        async with asyncio.timeout(30):
            while len(self.server.connections) != count:
                await asyncio.sleep(0.01)
        return self.server.connections


async def test_a_connection_that_asks_nothing_is_ended_and_one_that_did_is_not() -> None:
    site = Site(most=10)
    listening = await asyncio.get_running_loop().create_server(site.server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    silent, busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    silent[1].write(HALF)
    busy[1].write(HALF + REST)
    async with asyncio.timeout(30):
        await site.asked.wait()

    assert site.known.look(await site.connections(2), now=0.0) == 0
    assert site.known.look(site.server.connections, now=HEAD_WITHIN_S - 1) == 0
    assert site.known.look(site.server.connections, now=HEAD_WITHIN_S) == 1
    site.answer.set()

    async with asyncio.timeout(30):
        assert await silent[0].read() == b""
        assert (await busy[0].readline()).startswith(b"HTTP/1.1 200")
    assert site.known.look(await site.connections(1), now=1000.0) == 0
    await end(site, listening, silent, busy)


async def test_of_too_many_connections_those_go_that_never_asked_then_idle_ones() -> None:
    site = Site(most=1)
    listening = await asyncio.get_running_loop().create_server(site.server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    idle = await asyncio.open_connection("127.0.0.1", port)
    idle[1].write(HALF + REST)
    site.answer.set()
    async with asyncio.timeout(30):
        await idle[0].readuntil(b"\r\n\r\n")
    site.answer.clear()
    site.asked.clear()
    silent, busy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    busy[1].write(HALF + REST)
    async with asyncio.timeout(30):
        await site.asked.wait()

    site.known.most = 2
    assert site.known.look(await site.connections(3), now=0.0) == 1
    async with asyncio.timeout(30):
        assert await silent[0].read() == b""
    site.known.most = 0
    assert site.known.look(await site.connections(2), now=0.0) == 1
    site.answer.set()
    async with asyncio.timeout(30):
        assert await idle[0].read() == b""
        assert (await busy[0].readline()).startswith(b"HTTP/1.1 200")
    await end(site, listening, silent, idle, busy)


async def end(site: Site, listening: asyncio.Server, *connected: Connected) -> None:
    for _, writer in connected:
        writer.close()
    listening.close()
    await site.server.shutdown(1)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("runs", "application/json"),
        ("runs", "multipart/form-data; boundary=XX"),
        ("launch-plans/nightly/launch", "application/json"),
        ("snapshots", "application/x-tar"),
    ],
)
async def test_a_body_of_which_nothing_more_comes_is_waited_for_so_long_and_leaves_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    monkeypatch.setattr(bodies, "STALLED_S", 0.1)
    reader, writer = await asyncio.open_connection(*address(served))
    head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Type: {kind}\r\nContent-Length: 1000\r\n\r\n--XX\r\n".encode())
    async with asyncio.timeout(30):
        answer = await reader.readuntil(b"}")
    writer.close()

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"nothing of the body came" in answer
    uploads = served.session.store.layout.uploads
    assert not uploads.exists() or not list(uploads.iterdir())


async def test_a_reader_that_takes_nothing_of_an_answer_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "STALLED_S", 0.1)
    app = web.Application()
    places = streams.Streams(most=1)
    cut = asyncio.Event()

    async def send(request: web.Request) -> web.StreamResponse:
        try:
            async with places.open(request, {}) as response:
                while True:
                    await response.write(b"x" * 2**20)
        except ConnectionAbortedError:
            cut.set()
            raise

    app.router.add_get("/", send)
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    _, writer = await asyncio.open_connection(*runner.addresses[0][:2], limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        await cut.wait()
    writer.close()
    await runner.cleanup()


def address(served: Served) -> tuple[str, int]:
    host, _, port = served.url.removeprefix("http://").partition(":")
    return host, int(port)
