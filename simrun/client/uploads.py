"""Files that travel with a call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

import aiofiles
import aiohttp

from simrun.service.attachments import EXECUTABLE, Attachment, is_executable

CHUNK = 2**18
_PLAIN = "application/octet-stream"

File = tuple[Path, str, str]
"""A file, the name it travels under (its place in the run), and its content type."""


def files_of(item: Attachment) -> list[File]:
    """Give every file of an attachment."""
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


async def files_of_all(attachments: Iterable[Attachment]) -> list[File]:
    """Give every file of all attachments; directories are looked through in a thread."""
    loop = asyncio.get_running_loop()
    return [
        file for item in attachments for file in await loop.run_in_executor(None, files_of, item)
    ]


def form(documents: Mapping[str, str], files: Iterable[File], **fields: str) -> aiohttp.FormData:
    """Give a body of JSON documents by their names, plain fields, and files, which are read while it is sent; good for one try."""
    made = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for name, text in documents.items():
        made.add_field(name, text, content_type="application/json")
    for name, text in fields.items():
        made.add_field(name, text)
    for path, name, kind in files:
        made.add_field("file", content(path), filename=name, content_type=kind)
    return made


async def content(path: Path) -> AsyncIterator[bytes]:
    """Yield what is in a file."""
    async with aiofiles.open(path, "rb") as file:
        while chunk := await file.read(CHUNK):
            yield chunk
