"""What all calls of a client share: the connections, what is tried again, and the reading of answers and streams."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import TypeAdapter, ValidationError

from simrun.base.errors import NotFound, SimrunError, Unreachable
from simrun.client.problems import check, retry_after_s, text_of

M = TypeVar("M")

CALL_S = 60.0
CONNECT_S = 5.0
SILENCE_S = 45.0
"""A stream says something each 15 s; three times that without a word and the connection is dead."""
TRIES = 4
"""How often a call is made that may be made twice; with the waits between, a server has 1.4 s to come back."""
RETRY_AFTER_MAX_S = 60.0
"""A server that asks for a longer wait is not waited for."""
TOKEN_VARIABLE = "SIMRUN_TOKEN"
SERVER_VARIABLE = "SIMRUN_SERVER"

TOLD_S = 2.0
"""Waits from this on are told; who waits less does not wonder."""

_BUSY = (429, 502, 503, 504)
_PROBLEM = "application/problem+json"


def api(*parts: str) -> str:
    """Give the path of a resource; what a caller gives is one part of it, whatever is in it. Raises NotFound for what can be no part."""
    for part in parts:
        if part in ("", ".", ".."):
            raise NotFound(f"there is nothing of the name {part!r}")
    return "/api/v1/" + "/".join(quote(part, safe="") for part in parts)


class Transport:
    """The connections to one `simrun serve`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tries: int = TRIES,
        on_wait: Callable[[str, float], None] | None = None,
    ) -> None:
        """Name the server.

        url: $SIMRUN_SERVER where it is None. token: $SIMRUN_TOKEN likewise; "" for none. tries: 1 for calls that are made once.
        on_wait: is told why the server asks to wait, and for how many seconds, before a call is made again.
        """
        url = url or os.environ.get(SERVER_VARIABLE)
        if not url:
            raise ValueError(f"name a server: url, or ${SERVER_VARIABLE}")
        self.url = url.rstrip("/")
        if token is None:
            token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if any(char.isspace() for char in token):
            raise ValueError(f"a token has no spaces; look at token, or ${TOKEN_VARIABLE}")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._tries, self._on_wait = tries, on_wait
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connections."""
        self._http = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError(f"use the client as `async with {type(self).__name__}(url)`")
        return self._http

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        data: Callable[[], Any] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """Call, and give the JSON of the answer; None for an empty one.

        data: makes the body, anew for each try. repeatable: twice is the same as once, so that a cut connection is no end; it is for
        all methods but POST where nothing is said. Raises Unreachable and what a problem document stands for.
        """
        if repeatable is None:
            repeatable = method != "POST"
        timeout = timeout or aiohttp.ClientTimeout(total=CALL_S, sock_connect=CONNECT_S)
        for again in _pauses(self._tries):
            try:
                async with self._session.request(
                    method,
                    self.url + path,
                    params=params,
                    headers=headers,
                    json=json,
                    data=data() if data else None,
                    timeout=timeout,
                ) as answer:
                    wait_s = _asked_to_wait(answer, repeatable, again)
                    if wait_s is None:
                        await check(answer)
                        return await answer.json() if answer.status != 204 else None
                    await self._tell_wait(answer, wait_s)
            except (aiohttp.ClientError, TimeoutError) as error:
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                if again is None or not (repeatable or unsent) or isinstance(error, _HOPELESS):
                    raise Unreachable(f"{self.url}: {text_of(error)}") from error
                wait_s = again
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try returns or raises")

    async def _tell_wait(self, answer: aiohttp.ClientResponse, wait_s: float) -> None:
        if self._on_wait is None or wait_s < TOLD_S:
            return
        try:
            await check(answer)
        except SimrunError as error:
            self._on_wait(str(error), wait_s)

    def _object(self, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise Unreachable(f"{self.url}: answers what is no answer of simrun")
        return body

    def _model(self, kind: type[M], body: Any) -> M:
        """Give an answer as the model that it is of. Raises Unreachable for one that is not."""
        try:
            return TypeAdapter(kind).validate_python(body)
        except ValidationError as error:
            raise Unreachable(f"{self.url}: answers what is no {kind.__name__}: {error}") from error

    async def _stream(
        self, path: str, *, params: Mapping[str, str] | None = None, last: str | None = None
    ) -> AsyncGenerator[tuple[str, str | None, dict[str, Any]], None]:
        """Yield (event, id, data) of one connection to a stream of events, after the id `last` where it is given."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        headers = {"Last-Event-ID": last} if last is not None else None
        async with self._session.get(
            self.url + path, params=params, headers=headers, timeout=timeout
        ) as answer:
            await check(answer)
            if answer.status == 204:
                yield "end", last, {}  # what was received last was the end
                return
            kind, data, ident = "message", "", last
            async for line in _lines(answer.content):
                if line.startswith("event: "):
                    kind = line.removeprefix("event: ")
                elif line.startswith("id: "):
                    ident = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    data += line.removeprefix("data: ")
                elif not line and data:
                    yield kind, ident, json.loads(data)
                    kind, data = "message", ""


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream. Not by iterating over it, which bears none of more than 128 KiB: a run of many tasks is longer."""
    held: list[bytes] = []
    async for chunk in content.iter_any():
        first, *rest = chunk.split(b"\n")
        held.append(first)
        for piece in rest:
            yield b"".join(held).decode().rstrip("\r")
            held = [piece]


_HOPELESS = (aiohttp.InvalidURL, aiohttp.ClientSSLError)
"""What does not go away by another try."""


def _pauses(tries: int) -> list[float | None]:
    """Give for each try how long to wait after it; None for the last one."""
    return [*(0.2 * 2**n for n in range(tries - 1)), None]


def _asked_to_wait(
    answer: aiohttp.ClientResponse, repeatable: bool, pause_s: float | None
) -> float | None:
    """Give the seconds after which to ask again; None where the answer is one, or no try is left (`pause_s` is None).

    429 says that nothing was done; after 503 something may have been. A gateway that answers for a server is one that is being started again.
    """
    if pause_s is None or answer.status not in _BUSY:
        return None
    if answer.status != 429 and not repeatable:
        return None
    if answer.status != 429 and answer.content_type != _PROBLEM:
        return pause_s
    wait_s = retry_after_s(answer)
    return wait_s if wait_s is not None and wait_s <= RETRY_AFTER_MAX_S else None
