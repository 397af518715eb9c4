"""Who has a store: nobody, a foreground `run`, or a `serve` that takes runs for it.

The lock of a store says so, as long as it is taken; what a dead process left in its file is not believed. A serving holder must also answer where
it says that it listens, with its own process id: another simrun may have the address by now.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from simrun.aio.threads import Pool
from simrun.base.errors import Forbidden, SimrunError, Unauthorized, Unreachable
from simrun.cli.display import Display
from simrun.store.lock import Holder, StoreLock

if TYPE_CHECKING:
    from simrun.client import AsyncClient

LOOK_S = 0.5
ANSWER_S = 30.0
"""A server that comes up with many live runs answers once it follows them."""


@dataclass(frozen=True, slots=True)
class Server:
    """A `simrun serve`. `store` is its store where that is a directory of this machine, `options` what names it again."""

    url: str
    store: Path | None
    options: str = ""
    token: str = field(default="", repr=False)


async def server_at(url: str, options: str, token: str = "") -> Server:
    """Give the server at an address. Raises Unreachable, Unauthorized."""
    from simrun.client import AsyncClient  # HTTP takes longer to import than a run to start

    async with AsyncClient(url, token=token, tries=1) as client:
        about = await _about(client)
    store = Path(str(about.get("store", "")))
    here = about.get("host") == socket.gethostname() and os.access(
        store / "runs", os.R_OK | os.X_OK
    )
    return Server(url, store if here else None, options, token)


async def server_of(store: Path, options: str, remedy: str, token: str = "") -> Server:
    """Give the server that holds a store.

    Raises Unreachable when nobody does or it does not answer, Locked with `remedy` when a foreground `run` does.
    """
    lock = StoreLock(store)
    pool = Pool("lock", 1)
    try:
        if not await pool.run(lock.taken):
            raise Unreachable(
                f"nobody serves the store {store}; start `simrun serve --store {store}`, or name a server with --server URL"
            )
        holder = await pool.run(lock.holder)
        if holder is None:  # just about to write who it is
            await asyncio.sleep(LOOK_S)
            holder = await pool.run(lock.holder)
    finally:
        pool.close()
    if holder is None or holder.url is None:
        raise lock.refusal(remedy.format(pid=holder.pid if holder else "PID"))
    if not await serves(holder, token):
        raise Unreachable(
            f"the store {store} is held by {holder}, which does not answer; "
            "if that is another machine, name an address of it with --server URL"
        )
    return Server(holder.url, store, options, token)


async def serves(holder: Holder, token: str = "") -> bool:
    """Whether a holder answers at the address that it has left in the lock. Raises Unauthorized for a token that it does not take."""
    if holder.url is None:
        return False
    from simrun.client import AsyncClient

    try:
        async with AsyncClient(holder.url, token=token, tries=1) as client:
            about = await _about(client)
    except (Unauthorized, Forbidden):
        raise
    except SimrunError:
        return False
    return (about.get("pid"), about.get("host")) == (holder.pid, holder.host)


async def _about(client: AsyncClient) -> dict[str, object]:
    try:
        async with asyncio.timeout(ANSWER_S):
            return await client.server()
    except TimeoutError as error:
        raise Unreachable(f"{client.url}: no answer within {ANSWER_S:.0f} s") from error


async def await_turn(store: Path, display: Display, token: str = "") -> Server | None:
    """Wait until a store is free, or until one that serves holds it, which is given then."""
    lock = StoreLock(store)
    told: Holder | None = None
    pool = Pool("lock", 1)
    try:
        while await pool.run(lock.taken):
            holder = await pool.run(lock.holder)
            if holder is not None and holder.url is not None and await serves(holder, token):
                return Server(holder.url, store, f" --store {store}", token)
            if holder is not None and holder != told:
                display.notice(f"waits for the end of {holder}; Ctrl-C gives up")
                told = holder
            await asyncio.sleep(LOOK_S)
    finally:
        pool.close()
    return None
