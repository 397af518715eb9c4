"""Files that travel with a call."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiofiles

from simrun.service.attachments import EXECUTABLE, Attachment, is_executable

CHUNK = 2**18
_PLAIN = "application/octet-stream"


def files_of(item: Attachment) -> list[tuple[Path, str, str]]:
    """Give every file of an attachment with the name it travels under, its place in the run, and its content type."""
    found = [(item.source, item.target)]
    if item.source.is_dir():
        # Through links to directories, as a copy would go
        found = [
            (
                Path(directory, name),
                f"{item.target}/{Path(directory, name).relative_to(item.source)}",
            )
            for directory, _, names in sorted(os.walk(item.source, followlinks=True))
            for name in sorted(names)
            if Path(directory, name).is_file()
        ]
    return [(path, name, EXECUTABLE if is_executable(path) else _PLAIN) for path, name in found]


async def content(path: Path) -> AsyncIterator[bytes]:
    """Yield what is in a file."""
    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(CHUNK):
            yield chunk
