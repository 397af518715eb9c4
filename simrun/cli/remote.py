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

import click

from simrun.aio.threads import Pool
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import InvalidInput, NotFound
from simrun.cli.attached import Begin, Left, OpenSession, follow
from simrun.cli.display import Display, QuietDisplay, open_display
from simrun.cli.ending import finish
from simrun.cli.failures import ExitCode
from simrun.cli.formatting import clean, duration
from simrun.cli.holder import Server, server_at, server_of
from simrun.cli.progress import view_of
from simrun.cli.records import latest_of
from simrun.cli.view import RunView
from simrun.cli.where import where
from simrun.client import AsyncClient
from simrun.model.faults import listed
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import attachments_of

_OF_AN_ID = re.compile(r"[a-z0-9][-a-z0-9]*")
_SHOWN = 5

T = TypeVar("T")


class RemoteSession:
    """A session on a server. What it began goes on without it."""

    detaches = True

    def __init__(self, client: AsyncClient, server: Server, clock: Clock | None = None) -> None:
        self.client, self.server = client, server
        self._clock = clock or SystemClock()

    async def submit(self, submission: Submission, base: Path, run_id: str | None) -> str:
        """Send the workflow with its files; the server starts the run."""
        return (await self.send(submission, base, run_id)).id

    async def send(
        self, submission: Submission, base: Path, run_id: str | None, key: str | None = None
    ) -> RunRecord:
        """Submit, and give the record. key: an idempotency key instead of an id. Raises InvalidInput, Conflict, Unreachable."""
        pool = Pool("attachments", 1)
        try:
            attachments = await pool.run(attachments_of, submission, base)
        finally:
            pool.close()
        submission = await self.client.with_local_data(submission, base)
        # Without either the client makes an id: what is repeated because nobody saw the answer is the same run
        return await self.client.submit(submission, attachments, run_id=run_id, key=key)

    async def updates(self, run_id: str) -> AsyncIterator[RunView]:
        """Yield the run at each change."""
        async for progress in self.client.events(run_id):
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
    """Give what opens a session on the server that is meant, as `where` finds it.

    Opening raises Unreachable, Unauthorized, or Locked with `remedy` when a foreground `run` holds the store.
    """
    found = where(server, store)
    token = found.read_token()

    @asynccontextmanager
    async def opened(_display: Display) -> AsyncIterator[RemoteSession]:
        if found.server is not None:
            there = await server_at(found.server, found.named, token)
        else:
            there = await server_of(found.store, found.named, remedy, token)
        async with AsyncClient(there.url, token=token, on_wait=_say_wait) as client:
            yield RemoteSession(client, there)

    return opened


def _say_wait(reason: str, wait_s: float) -> None:
    click.echo(f"{clean(reason)}; tried again in {duration(wait_s)}", err=True)


async def find_run(client: AsyncClient, text: str) -> RunRecord:
    """Give the record of a run by its id, by a beginning of it that no other has, @latest, or @latest:NAME.

    Raises NotFound, InvalidInput when several ids begin so.
    """
    if (name := latest_of(text)) is not None:
        newest = (await client.runs(limit=1, name=name or None)).runs
        if not newest:
            raise NotFound(f"no run{f' named {name!r}' if name else ''} on {client.url}")
        return await client.run(newest[0].id)
    begin: list[str] = []
    if _OF_AN_ID.fullmatch(text):
        with contextlib.suppress(NotFound):
            return await client.run(text)
        page = await client.runs(limit=_SHOWN + 1, prefix=text)
        begin = [row.id for row in page.runs]
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
    there = session.server if session else None
    if there is None or there.store is not None:
        return finish(record, there.store if there else None, output)
    report = call(opened, lambda again: again.client.report(record.id))
    return finish(record, None, output, report=report, options=there.options)


def farewell(left: Left) -> str:
    """Say what becomes of a run that was left on a server."""
    options = left.session.server.options if isinstance(left.session, RemoteSession) else ""
    if left.run_id is None:
        return "left before the server had answered"
    return (
        f"left run {left.run_id}, which goes on; `simrun watch {left.run_id}{options}` shows it again, "
        f"`simrun cancel {left.run_id}{options}` ends it"
    )
