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
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from simrun.aio.lag import LagProbe
from simrun.base.errors import InvalidInput, SimrunError
from simrun.base.term import UNLIMITED, Election, Term
from simrun.model.serving import LimitsFile
from simrun.scheduler.scheduler import SchedulerSettings
from simrun.service.api.app import make_app, withdraw
from simrun.service.api.connections import CONNECTIONS
from simrun.service.api.origin import is_loopback
from simrun.service.auth import Tokens
from simrun.service.limits import Limits
from simrun.service.opening import BackendFactory, open_session
from simrun.service.standby import elected
from simrun.store.lock import StoreLock

log = logging.getLogger(__name__)

STOP_WITHIN_S = 25.0
"""Less than the 30 s that Kubernetes gives a pod."""
REQUESTS_END_WITHIN_S = 5.0
_BACKLOG = 1024
"""Connections that wait to be taken: after a restart all readers of events come back at once."""
_FULL = "no file is left for another connection: raise the limit of open files (ulimit -n)"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


OpenElection = Callable[[], AbstractAsyncContextManager[Election[Any]]]
"""Makes what several services over one store are elected by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """What `simrun serve` is told."""

    store: Path
    index: Path
    host: str = "127.0.0.1"
    port: int = 8642
    owner: tuple[int, int] | None = None
    tokens: Path | None = None
    """File of the tokens; without it whoever reaches the address may do everything, so it must be a loopback address."""

    limits: LimitsFile = field(default_factory=LimitsFile)
    schedule_rate: float = 50.0
    """Runs that all schedules together begin in a second, on average."""

    def __post_init__(self) -> None:
        if self.tokens is None and not is_loopback(self.host):
            raise InvalidInput.one(
                "--host",
                "is no loopback address, and without tokens whoever reaches it could run commands",
                value=self.host,
                remedy="make a token with `simrun token create` and serve with --tokens FILE",
            )


async def serve(
    options: ServeOptions,
    backend: BackendFactory,
    *,
    election: OpenElection | None = None,
    on_ready: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; with an election only while this process leads.

    Raises Locked, UnsupportedStore, AddressTaken for an address that is taken, LeadershipLost, InvalidInput for a file of tokens that is wrong.
    """
    tokens = None if options.tokens is None else Tokens(options.tokens)
    if tokens is not None:
        tokens.load()
    logging.getLogger("aiohttp.server").addFilter(quiet_nonsense)
    logging.getLogger("asyncio").addFilter(SeldomFull())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # What this process was started to ignore, by nohup or as a background job, it goes on to ignore
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    listening = _listen_for(options)
    host, port = listening.getsockname()[:2]
    url = _url(host, port)
    try:
        async with contextlib.AsyncExitStack() as stack:
            term: Term | None = UNLIMITED
            if election is not None:
                candidate = await stack.enter_async_context(election())
                term = await stack.enter_async_context(elected(candidate, listening, stop))
            if term is None:
                return
            session = await stack.enter_async_context(
                open_session(
                    options.store,
                    backend,
                    command="serve",
                    url=url,
                    index=options.index,
                    owner=options.owner,
                    term=term,
                    limits=Limits(options.limits),
                    schedules=SchedulerSettings(rate=options.schedule_rate),
                )
            )
            lag = LagProbe()
            app = make_app(session, loopback_only=is_loopback(host), tokens=tokens, lag=lag)
            await stack.enter_async_context(lag)
            runner = web.AppRunner(
                app,
                access_log=None,
                shutdown_timeout=REQUESTS_END_WITHIN_S,
                auto_decompress=False,  # compressed bodies are refused
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, listening).start()
            await stack.enter_async_context(_watched(app, runner))
            if tokens is not None:
                await stack.enter_async_context(_followed(tokens, app))
            on_ready(url)
            try:
                await stop.wait()
            finally:  # a leader that lost its term has to be gone as soon
                log.info("stopping; workers go on and are adopted by the next start")
                loop.call_later(STOP_WITHIN_S, _leave)
    finally:
        listening.close()
        for number in numbers:
            loop.remove_signal_handler(number)


def quiet_nonsense(record: logging.LogRecord) -> bool:
    """Take the trace off what aiohttp logs of bytes that are no HTTP: anybody can send them, and they are no fault of ours."""
    if record.exc_info and isinstance(
        record.exc_info[1], HttpProcessingError | web.RequestPayloadError
    ):
        text = " ".join(str(record.exc_info[1]).split())[:200]
        record.msg, record.args = "a client does not speak HTTP: %s", (text,)
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True


class SeldomFull(logging.Filter):
    """Lets through once in a while that no connection can be taken: asyncio says it hundreds of times a second, with a trace."""

    def __init__(self, every_s: float = 10.0) -> None:
        super().__init__()
        self._every_s, self._next = every_s, 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is told."""
        if not str(record.msg).startswith("socket.accept() out of system resource"):
            return True
        if record.created < self._next:
            return False
        self._next = record.created + self._every_s
        record.msg, record.args, record.exc_info = _FULL, (), None
        return True


@contextlib.asynccontextmanager
async def _followed(tokens: Tokens, app: web.Application) -> AsyncIterator[None]:
    """Have changes of the tokens' file take effect for as long as this lasts."""
    async with asyncio.TaskGroup() as group:
        following = group.create_task(tokens.follow(lambda: withdraw(app)), name="tokens")
        yield
        following.cancel()


@contextlib.asynccontextmanager
async def _watched(app: web.Application, runner: web.AppRunner) -> AsyncIterator[None]:
    """Have connections ended over which nothing is asked, for as long as this lasts."""
    if runner.server is None:
        raise RuntimeError("the server was not set up")
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(app[CONNECTIONS].watch(runner.server), name="connections")
        yield
        watching.cancel()


def _listen_for(options: ServeOptions) -> socket.socket:
    try:
        return listen(options.host, options.port)
    except AddressTaken:
        # By a second `serve` of this store, most likely: then its holder is what to tell
        lock = StoreLock(options.store)
        if lock.taken():
            raise lock.refusal() from None
        raise


def _url(host: str, port: int) -> str:
    """Give where clients of this machine reach an address, also when that is every address of it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class AddressTaken(SimrunError):  # noqa: N818 - reads as what it is
    """Raised when a process can't listen where it was told to."""


def listen(host: str, port: int) -> socket.socket:
    """Give a listening socket; port 0 takes a free one. Raises AddressTaken that names the address.

    Who connects from here on is answered once the server has come up: nobody is told in the meantime that there is none.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        what = error.strerror or error
        raise AddressTaken(
            f"can't listen on {host}:{port}: {what}; choose another with --port or --host"
        ) from error
    made.setblocking(False)
    return made


def end_process(within_s: float = 1.0) -> None:
    """End without the threads that hang on a dead file server, if there are any: the interpreter would wait for them for ever.

    To be called last, after `serve`. What ends in time ends as always.
    """
    until = time.monotonic() + within_s
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                _leave()


def _leave() -> None:
    """End the process though a thread hangs: everything that must be durable is written before it is acted on."""
    log.error("a call of the store does not return; leaving without it")
    os._exit(1)
