"""Files of a run as answers: whole or a range of them, read bit by bit in threads of their own."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from aiofiles.threadpool.binary import AsyncBufferedIOBase
from aiohttp import hdrs, web

from simrun.aio import files
from simrun.service.api.access import SESSION
from simrun.service.api.problems import problem
from simrun.service.api.routing import BYTES
from simrun.service.api.streams import STREAMS
from simrun.service.session import Session
from simrun.store.artifacts import etag_of

CHUNK = 2**18
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "text/plain")
"""Shown by a browser; anything else is saved, since what a simulation wrote must not run as a page of this server."""
RANGE_HEADERS = {
    "Range": "`bytes=FIRST-LAST`",
    "If-None-Match": "an entity tag: nothing is sent while it is that of the file",
    "If-Range": "an entity tag: the range counts only while it is that of the file",
}

Opener = Callable[[], int]
"""Opens a file and gives the descriptor (blocking). Raises NotFound."""


async def send_file(request: web.Request, opener: Opener, *, name: str) -> web.StreamResponse:
    """Answer with a file, or with the range that is asked for; `name` tells its kind. Raises NotFound."""
    async with opened(request.app[SESSION], opener) as file:
        seen = os.fstat(file.fileno())  # of an open file: answered by the kernel
        etag = etag_of(seen)
        headers = _headers(name, etag)
        if any(one.value == etag.strip('"') for one in request.if_none_match or ()):
            return web.Response(status=304, headers={hdrs.ETAG: etag})
        wanted = _range(request, seen.st_size, etag)
        if wanted is None:
            refused = problem(416, "range not satisfiable", f"the file has {seen.st_size} bytes")
            refused.headers[hdrs.CONTENT_RANGE] = f"bytes */{seen.st_size}"
            return refused
        first, count, partial = wanted
        headers[hdrs.CONTENT_LENGTH] = str(count)
        if partial:
            headers[hdrs.CONTENT_RANGE] = f"bytes {first}-{first + count - 1}/{seen.st_size}"
        async with request.app[STREAMS].open(
            request, headers, status=206 if partial else 200
        ) as response:
            if request.method != hdrs.METH_HEAD:
                await file.seek(first)
                async for chunk in chunks(file, count):
                    await response.write(chunk)
        return response


def opened(session: Session, opener: Opener) -> AbstractAsyncContextManager[AsyncBufferedIOBase]:
    """Open a file in the threads for streams; entering raises what the opener raises."""
    return files.opened(session.streams, lambda: os.fdopen(opener(), "rb"))


def _headers(path: str, etag: str) -> dict[str, str]:
    kind = mimetypes.guess_type(path)[0] or BYTES
    shown = kind in SHOWN
    return {
        hdrs.CONTENT_TYPE: kind if shown else BYTES,
        hdrs.CONTENT_DISPOSITION: "inline" if shown else "attachment",
        hdrs.ETAG: etag,
        hdrs.ACCEPT_RANGES: "bytes",
        hdrs.CACHE_CONTROL: "no-cache",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }


def _range(request: web.Request, size: int, etag: str) -> tuple[int, int, bool] | None:
    """Give first byte, count, and whether it is a part; None for a range outside of the file.

    What is no single range of bytes, or of another state of the file (If-Range), is answered with the whole.
    """
    unless = request.headers.get(hdrs.IF_RANGE)
    text = request.headers.get(hdrs.RANGE)
    whole = (0, size, False)
    if text is None or (unless is not None and unless != etag):
        return whole
    try:
        wanted = request.http_range
    except ValueError:
        return whole
    start, stop, _ = wanted.indices(size)
    if start >= stop:
        return None
    return start, stop - start, True


async def chunks(file: AsyncBufferedIOBase, count: int) -> AsyncIterator[bytes]:
    """Read exactly `count` bytes. Raises OSError for a file that became shorter: the answer is cut then, not ended."""
    left = count
    while left > 0:
        chunk = await file.read(min(CHUNK, left))
        if not chunk:
            raise OSError("the file became shorter while it was sent")
        left -= len(chunk)
        yield chunk
