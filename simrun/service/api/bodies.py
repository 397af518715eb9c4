"""Bodies as they come: in pieces, of which each has its time. Who stops in the middle must not keep a connection and a directory for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from aiohttp import hdrs, web

T = TypeVar("T")

STALLED_S = 60.0
"""Nothing for so long is the end of a request."""


async def in_time(piece: Awaitable[T]) -> T:
    """Wait for the next piece of a body. Raises HTTPRequestTimeout where none comes."""
    try:
        async with asyncio.timeout(STALLED_S):
            return await piece
    except TimeoutError:
        raise web.HTTPRequestTimeout(
            text=f"nothing of the body came for {STALLED_S:g} s; send it again"
        ) from None


def check_plain(request: web.Request) -> None:
    """Raise HTTPUnsupportedMediaType for a compressed body: a few kilobytes of one may be gigabytes."""
    coding = request.headers.get(hdrs.CONTENT_ENCODING, "identity")
    if coding.lower() != "identity":
        raise web.HTTPUnsupportedMediaType(
            text=f"the body must not be compressed (Content-Encoding: {coding[:50]}); send it as it is"
        )


async def pieces(request: web.Request, size: int) -> AsyncIterator[bytes]:
    """Give the body in pieces of at most `size` bytes. Raises HTTPRequestTimeout, HTTPUnsupportedMediaType."""
    check_plain(request)
    while piece := await in_time(request.content.read(size)):
        yield piece


async def whole(request: web.Request) -> bytes:
    """Give the body, which must not be larger than the request may be. Raises HTTPRequestTimeout, HTTPRequestEntityTooLarge."""
    most, body = request.client_max_size, bytearray()
    async for piece in pieces(request, most + 1):
        body += piece
        if len(body) > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(body))
    return bytes(body)
