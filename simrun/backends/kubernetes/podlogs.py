"""The output of a pod's main container without what Argo's executor writes among it.

The executor runs in front of the program in the same container and logs to the same stream: lines of `time=… level=… msg=… argo=true …`.
They are not the program's, so they are left out; everything else passes byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

_EXECUTOR = re.compile(rb"time=\S+ level=\w+ msg=.* argo=true( .*)?\r?\n?")
_START = b"time="

LONGEST = 8192
"""Bytes of the longest line that may be the executor's; longer ones pass as they come, so that memory stays bounded."""


async def program_output(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes of a stream but for the executor's lines. What may still become one is held back until its end."""
    held = b""
    at_line_start = True
    async for chunk in chunks:
        out, held, at_line_start = _filter(held + chunk, at_line_start)
        if out:
            yield out
    if held and not _EXECUTOR.fullmatch(held):
        yield held


def _filter(data: bytes, at_line_start: bool) -> tuple[bytes, bytes, bool]:
    """Give what passes, what is held back, and whether what follows starts a line."""
    passed = bytearray()
    while data:
        end = data.find(b"\n") + 1
        line = data[:end] if end else data
        suspect = (
            at_line_start
            and len(line) <= LONGEST
            and (line.startswith(_START) or _START.startswith(line))
        )
        if suspect and not end:
            return bytes(passed), line, True
        if not (suspect and _EXECUTOR.fullmatch(line)):
            passed += line
        data = data[len(line) :]
        at_line_start = bool(end)
    return bytes(passed), b"", at_line_start
