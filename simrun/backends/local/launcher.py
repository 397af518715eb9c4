"""The engine's side of the zygote: keeps one alive, sends orders, hears who supervises."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simrun.aio.threads import Pool, in_thread
from simrun.backends.local import records, zygote
from simrun.backends.local.records import Order
from simrun.base.errors import BackendError

logger = logging.getLogger(__name__)

OnStart = Callable[[str, int, int | None], None]
"""Called on the loop for each order that a supervisor has taken: its uid, process id and start time (None: over already)."""

_END_S = 5.0
_AGAIN_S = 1.0
_LOG_TAIL = 2000
_TRIES = 5
"""Zygotes in a row that may die before they are ready; one killed by chance is no reason to give up."""


class Launcher:
    """Starts supervisors through a zygote, and a new zygote when one has died. `log` gets what they have to say."""

    def __init__(self, log: Path, pool: Pool) -> None:
        self._log, self._pool = log, pool
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unanswered: dict[str, Order] = {}
        self._later: set[asyncio.TimerHandle] = set()

    @property
    def pid(self) -> int | None:
        """Process id of the zygote, None while there is none."""
        return self._process.pid if self._process is not None else None

    def send(self, order: Order) -> None:
        """Have an order carried out; one that a dying zygote did not answer is sent to the next."""
        self._unanswered[order.uid] = order
        if self._writer is not None:
            self._writer.write(zygote.frame(records.to_json(order)))

    async def run(self, on_start: OnStart) -> None:
        """Keep a zygote alive until cancelled. Raises BackendError when none comes to be ready."""
        failures = 0
        try:
            while True:
                reader = await self._begin()
                if "ready" in (await _receive(reader) or {}):
                    failures = 0
                    await self._listen(reader, on_start)
                else:
                    failures += 1
                await self._end()
                if failures == _TRIES:
                    raise BackendError(f"the local engine cannot start: {self._last_words()}")
                logger.warning("The zygote has died; a new one is started")
        finally:
            for timer in self._later:
                timer.cancel()
            await self._end()

    # --- one zygote ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> asyncio.StreamReader:
        """Start a zygote and send it what was not answered; gives the stream of its answers."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            await in_thread(self._pool, self._spawn, its)
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        for order in list(self._unanswered.values()):
            self._writer.write(zygote.frame(records.to_json(order)))
        return reader

    def _spawn(self, its: socket.socket) -> None:
        """Start it with nothing of ours but the socket: own session, so that Ctrl-C is not for it."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                zygote.command_line(),
                stdin=its.fileno(),
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def _last_words(self) -> str:
        try:
            text = self._log.read_bytes()[-_LOG_TAIL:].decode(errors="replace").strip()
        except OSError as error:
            text = str(error)
        return text or f"see {self._log}"

    async def _listen(self, reader: asyncio.StreamReader, on_start: OnStart) -> None:
        """Hear answers until the zygote is gone."""
        while (answer := await _receive(reader)) is not None:
            order = self._unanswered.pop(answer["uid"], None)
            if order is None:
                continue
            if "error" in answer:
                logger.error("No supervisor for %s: %s", order.attempt, answer["error"])
                self._send_later(order)
            else:
                on_start(order.uid, answer["pid"], answer["start"])

    def _send_later(self, order: Order) -> None:
        """Try an order again that met a lack of processes or memory."""

        def again() -> None:
            self._later.discard(timer)
            self.send(order)

        timer = asyncio.get_running_loop().call_later(_AGAIN_S, again)
        self._later.add(timer)

    async def _end(self) -> None:
        """Close the socket, which ends the zygote, and wait for that; supervisors live on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._process is not None:
            await in_thread(self._pool, _wait, self._process)
            self._process = None


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Give the next message, None when the other side is gone."""
    try:
        (size,) = zygote.HEADER.unpack(await reader.readexactly(zygote.HEADER.size))
        message: dict[str, Any] = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message
