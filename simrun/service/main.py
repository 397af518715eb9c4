"""simrun serve: the table of contents of the process.

    store lock -> store -> backend -> controller (events, timers, resync) -> index -> HTTP -> until a signal

Stopping goes the other way round and takes 25 s at the most: no new requests, streams end, submissions are left to the next start, workers go
on. A thread that hangs on a dead file server can't be ended, so the process then leaves without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from simrun.aio.lag import LagProbe
from simrun.service.api.app import make_app
from simrun.service.session import BackendFactory, open_session

log = logging.getLogger(__name__)

STOP_WITHIN_S = 25.0
"""Less than the 30 s that Kubernetes gives a pod."""
REQUESTS_END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `simrun serve` is told."""

    store: Path
    index: Path
    host: str = "127.0.0.1"
    port: int = 8642
    owner: tuple[int, int] | None = None


async def serve(
    options: ServeOptions,
    backend: BackendFactory,
    *,
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises Locked, UnsupportedStore, OSError for an address that is taken."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listening = listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        async with contextlib.AsyncExitStack() as stack:
            session = await stack.enter_async_context(
                open_session(
                    options.store,
                    backend,
                    command="serve",
                    url=url,
                    index=options.index,
                    owner=options.owner,
                )
            )
            await stack.enter_async_context(LagProbe())
            runner = web.AppRunner(
                make_app(session), access_log=None, shutdown_timeout=REQUESTS_END_WITHIN_S
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, listening).start()
            on_ready(url)
            await stop.wait()
            log.info("stopping; workers go on and are adopted by the next start")
            loop.call_later(STOP_WITHIN_S, _leave)
    finally:
        listening.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def listen(host: str, port: int) -> socket.socket:
    """Give a listening socket; port 0 takes a free one. Raises OSError that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(
            error.errno,
            f"can't listen on {host}:{port}: {error.strerror}; choose another with --port",
        ) from error
    made.setblocking(False)
    return made


def _leave() -> None:
    """End the process though a thread hangs: everything that must be durable is written before it is acted on."""
    log.error("not stopped within %.0f s; leaving", STOP_WITHIN_S)
    os._exit(1)
