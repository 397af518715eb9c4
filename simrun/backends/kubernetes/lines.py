"""A stream cut into lines: the events of a watch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from simrun.backends.kubernetes import errors

LONGEST_LINE = 32 * 2**20
"""Bytes of one event. A server stores objects of 1.5 MiB; beyond this it is no event."""


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Cut a stream into lines of any length up to LONGEST_LINE.

    Raises Nonsense for a longer one; Unreachable when the stream ends within one, as when the sender died.
    """
    buffer = bytearray()
    searched = 0
    async for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            searched = 0
            if line:
                yield line
        searched = len(buffer)
        if searched > LONGEST_LINE:
            raise errors.Nonsense(f"watch: a line of more than {LONGEST_LINE} bytes")
    if buffer:
        raise errors.Unreachable(f"watch: cut off in the middle of {bytes(buffer[:100])!r}")
