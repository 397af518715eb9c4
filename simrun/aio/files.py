"""A file whose bytes stream: opened, read or written, and closed in the threads of a pool, with no hole for a cancellation.

aiofiles takes an executor for each call; what it does not mind is a caller that is cancelled while the file is being opened, since the thread
then opens it for nobody: a descriptor, and a file that is made in a directory which is being removed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BufferedReader, BufferedWriter

from aiofiles.threadpool import wrap
from aiofiles.threadpool.binary import AsyncBufferedIOBase

from simrun.aio.threads import Pool

Buffered = BufferedReader | BufferedWriter


@asynccontextmanager
async def opened(pool: Pool, opener: Callable[[], Buffered]) -> AsyncIterator[AsyncBufferedIOBase]:
    """Have a file open for as long as this lasts; entering raises what `opener` raises (blocking, called in a thread).

    The file must be buffered: then closing waits for a call that a cancelled caller has left behind, instead of giving its descriptor away.
    """
    place: list[Buffered] = []
    try:
        await pool.run(lambda: place.append(opener()))
        yield wrap(place[0], executor=pool.executor)
    finally:
        if place:
            await pool.run(place[0].close)
