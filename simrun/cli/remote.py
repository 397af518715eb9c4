"""Runs on a `simrun serve`: finding one, following it, and leaving it alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from simrun.aio.threads import Pool
from simrun.base import ids
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import InvalidInput, NotFound, Unreachable
from simrun.cli.attached import Begin, Left, OpenSession, follow
from simrun.cli.display import Display, QuietDisplay, open_display
from simrun.cli.ending import finish
from simrun.cli.failures import ExitCode
from simrun.cli.holder import Server, server_at, server_of
from simrun.cli.options import SERVER_VARIABLE, store_path
from simrun.cli.progress import view_of
from simrun.cli.view import RunView
from simrun.client import AsyncClient
from simrun.model.faults import listed
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import attachments_of
from simrun.service.progress import RunProgress

LATEST = "@latest"
_OF_AN_ID = re.compile(r"[a-z0-9][-a-z0-9]*")
_SHOWN = 5

T = TypeVar("T")

_PROGRESS: TypeAdapter[RunProgress] = TypeAdapter(RunProgress)


class RemoteSession:
    """A session on a server. What it began goes on without it."""

    detaches = True

    def __init__(self, client: AsyncClient, server: Server, clock: Clock | None = None) -> None:
        self.client, self.server = client, server
        self._clock = clock or SystemClock()

    async def submit(self, submission: Submission, base: Path, run_id: str | None) -> str:
        """Send the workflow with its files; the server starts the run."""
        return (await self.send(submission, base, run_id)).id

    async def send(self, submission: Submission, base: Path, run_id: str | None) -> RunRecord:
        """Submit, and give the record. Raises InvalidInput, Conflict, Unreachable."""
        pool = Pool("attachments", 1)
        try:
            attachments = await pool.run(attachments_of, submission, base)
        finally:
            pool.close()
        # An id of our own: a submission that is repeated because nobody saw its answer is the same run
        run_id = run_id or ids.new_run_id(self._clock.wall())
        return await self.client.submit(submission, attachments, run_id=run_id)

    async def updates(self, run_id: str) -> AsyncIterator[RunView]:
        """Yield the run at each change."""
        async for body in self.client.events(run_id):
            try:
                progress = _PROGRESS.validate_python(body)
            except ValidationError as error:
                raise Unreachable(
                    f"{self.server.url}: tells what is no progress: {error}"
                ) from error
            yield view_of(progress, self._clock.wall())

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        """End the run."""
        await self.client.cancel(run_id, now=kill)

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of the run."""
        return await self.client.run(run_id)


def opener(
    server: str | None, store: str | None, remedy: str = "wait for its end"
) -> OpenSession[RemoteSession]:
    """Give what opens a session on the server that is meant: --server, else that of --store, else $SIMRUN_SERVER, else that of the default store.

    Opening raises Unreachable, or Locked with `remedy` when a foreground `run` holds the store.
    """
    url = server or (None if store else os.environ.get(SERVER_VARIABLE)) or None
    if url is not None and not url.startswith(("http://", "https://")):
        source = "--server" if server else f"${SERVER_VARIABLE}"
        raise InvalidInput.one(
            source, "must be an address", value=url, remedy="write http://HOST:PORT"
        )

    @asynccontextmanager
    async def opened(_display: Display) -> AsyncIterator[RemoteSession]:
        path = store_path(store)
        if url is not None:
            found = await server_at(url, f" --server {url}" if server else "")
        else:
            found = await server_of(path, f" --store {store}" if store else "", remedy)
        async with AsyncClient(found.url) as client:
            yield RemoteSession(client, found)

    return opened


async def find_run(client: AsyncClient, text: str) -> RunRecord:
    """Give the record of a run by its id, by a beginning of it that no other has, or @latest.

    Raises NotFound, InvalidInput when several ids begin so.
    """
    if text == LATEST:
        newest = (await client.runs(limit=1, sort="created"))["runs"]
        if not newest:
            raise NotFound(f"no run on {client.url}")
        return await client.run(newest[0]["id"])
    begin: list[str] = []
    if _OF_AN_ID.fullmatch(text):
        with contextlib.suppress(NotFound):
            return await client.run(text)
        # The highest ids come first, and `~` is above all that may stand in one
        page = await client.runs(limit=_SHOWN + 1, cursor=f"{text}~")
        begin = [row["id"] for row in page["runs"] if row["id"].startswith(text)]
    if len(begin) == 1:
        return await client.run(begin[0])
    if begin:
        raise InvalidInput.one(
            "run", "several runs begin so", value=text, remedy=listed(begin, _SHOWN)
        )
    raise NotFound(f"no run {text!r} on {client.url}")


def call(opened: OpenSession[RemoteSession], act: Callable[[RemoteSession], Awaitable[T]]) -> T:
    """Do one thing on a server, and give what it gives. Ctrl-C ends the command."""

    async def done() -> T:
        async with opened(QuietDisplay(sys.stderr)) as session:
            return await act(session)

    return asyncio.run(done())


def follow_to_end(
    opened: OpenSession[RemoteSession],
    begin: Begin[RemoteSession],
    *,
    output: Literal["table", "json"],
    quiet: bool,
    timeout_s: float | None = None,
) -> int:
    """Begin or find a run, show it until it has ended, and print what it came to; the exit code."""
    session: RemoteSession | None = None

    async def began(given: RemoteSession) -> str:
        nonlocal session
        session = given
        return await begin(given)

    async def followed() -> RunRecord:
        async with asyncio.timeout(timeout_s):
            return await follow(opened, began, display)

    display = open_display(sys.stderr, os.environ, quiet=quiet)
    try:
        record = asyncio.run(followed())
    except Left as left:
        display.notice(farewell(left))
        return ExitCode.DETACHED
    except TimeoutError:
        display.notice(f"the run has not ended within {timeout_s:g} s; it goes on")
        return ExitCode.TIMED_OUT
    finally:
        display.close()
    return finish(record, session.server.store if session else None, output)


def farewell(left: Left) -> str:
    """Say what becomes of a run that was left on a server."""
    options = left.session.server.options if isinstance(left.session, RemoteSession) else ""
    if left.run_id is None:
        return "left before the server had answered"
    return (
        f"left run {left.run_id}, which goes on; `simrun watch {left.run_id}{options}` shows it again, "
        f"`simrun cancel {left.run_id}{options}` ends it"
    )
