"""A TCP proxy in front of the API server whose connections can be cut, or go silent without a word.

TLS goes through it: the server's certificate names 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class Proxy:
    """Forwards connections to one address, for as long as `run` lasts."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open: set[_Connection] = set()
        self._refuses = False
        self.port = 0
        """Where it listens on 127.0.0.1."""
        self.accepted = 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Proxy]:
        """Listen until left."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            while self._open:
                await asyncio.sleep(0.01)
            await server.wait_closed()

    def freeze(self) -> int:
        """Forward nothing more on the connections that are open, and tell neither side; how many they are.

        New connections work: a router that lost its table, not one that is off.
        """
        for connection in self._open:
            connection.thawed.clear()
        return len(self._open)

    def cut(self) -> None:
        """Break all connections, and refuse new ones until `mend`."""
        self._refuses = True
        for connection in self._open:
            connection.abort()

    def mend(self) -> None:
        """Take connections again."""
        self._refuses = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        self.accepted += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, far_writer)
        self._open.add(connection)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(connection.pump(reader, far_writer))
                group.create_task(connection.pump(far_reader, writer))
        finally:
            connection.abort()
            self._open.discard(connection)


class _Connection:
    """Both halves of a connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._near, self._far = near, far
        self.thawed = asyncio.Event()
        self.thawed.set()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction to its end."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self.thawed.wait()
                writer.write(data)
                await writer.drain()
        if self.thawed.is_set():
            self.abort()

    def abort(self) -> None:
        """Break both halves."""
        self.thawed.set()
        for writer in (self._near, self._far):
            writer.transport.abort()


@asynccontextmanager
async def through_proxy(kubeconfig: Path, copy: Path) -> AsyncIterator[Proxy]:
    """Put a proxy before the API server of a kubeconfig; `copy` is made to lead through it."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    address = urlsplit(cluster["server"])
    assert address.hostname is not None
    async with Proxy(address.hostname, address.port or 443).run() as proxy:
        cluster.setdefault("tls-server-name", address.hostname)
        cluster["server"] = f"https://127.0.0.1:{proxy.port}"
        copy.write_text(yaml.safe_dump(document))
        yield proxy
