"""Bodies that bring files: submissions as JSON or multipart/form-data, and archives. All are streamed to the run store, never held in memory.

To the store and not to a temporary directory of this machine: what has arrived is moved to its place by a rename, and a disk of the size
of an upload is needed in the store anyway.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, hdrs, web

from simrun.aio.files import opened
from simrun.base.errors import InvalidInput
from simrun.service.api.bodies import check_plain, in_time, pieces, whole
from simrun.service.attachments import EXECUTABLE
from simrun.service.session import Session
from simrun.store.files import remove_tree
from simrun.worker import files

FILES_MAX = 10_000
BYTES_MAX = 16 * 2**30
"""Of the files of one submission."""
TEXT_MAX = 64 * 2**20
"""Bytes of a submission itself."""
CHUNK = 2**16
BLOCK = 2**20
BODY_MOST = web.RequestKey("body_most", int)
"""Bytes that the body may have, where whoever asks has a limit."""
_NO_NAME = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})
_REMEDY = "put data into a snapshot"
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character, as JSON may write one that stands outside the first 65,536."""


@asynccontextmanager
async def place_for_upload(session: Session) -> AsyncIterator[Path]:
    """Give a directory in the store that goes when this ends, with what is still in it."""
    base = files.temporary_name(session.store.layout.uploads)
    try:
        await session.in_pool(_make, base)
        yield base
    finally:
        await session.in_pool(remove_tree, base)


def _make(base: Path) -> None:
    files.make_directory(base.parent)
    os.mkdir(base)


@asynccontextmanager
async def received(
    request: web.Request, session: Session
) -> AsyncIterator[tuple[dict[str, Any], Path]]:
    """Give what a request says and the directory of the files it came with, which goes when this ends. Raises InvalidInput."""
    async with place_for_upload(session) as base:
        if request.content_type == "multipart/form-data":
            yield await _multipart(request, session, base), base
        else:
            yield await _json(request), base


async def received_file(
    request: web.Request, session: Session, target: Path, *, most: int, sha256: bytes | None = None
) -> None:
    """Stream the body to a file; more than `most` bytes are 413. Raises InvalidInput where it has not the SHA-256 that was said."""
    digest = hashlib.sha256()
    total = 0
    async with opened(session.streams, lambda: target.open("xb")) as file:
        async for data in pieces(request, BLOCK):
            total += len(data)
            if total > most:
                raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=total)
            if sha256 is not None:
                await session.streams.run(digest.update, data)
            await file.write(data)
    if sha256 not in (None, digest.digest()):
        raise InvalidInput.one(
            "Repr-Digest",
            f"is not that of the {total} bytes that arrived; theirs is {digest.hexdigest()}",
            value=(sha256 or b"").hex(),
            remedy="send it again",
        )


async def _json(request: web.Request) -> dict[str, Any]:
    raw = await whole(request)
    try:
        # In UTF-8 whatever the header says of a charset: JSON has no other
        body = _parsed(raw.decode(), "")
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput.one("", f"the body is no JSON: {error}") from error
    return _object(body, "")


def _parsed(text: str, field: str) -> Any:
    """Read JSON. Raises ValueError, RecursionError, InvalidInput for text that can't be written as UTF-8."""
    value = json.loads(text)
    if _HALF.search(text):  # two of them in a row are a character, one alone is none
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            around = str(error.object)[max(0, error.start - 20) : error.start + 20]
            raise InvalidInput.one(
                field,
                "holds one half of a character, which can't be stored",
                value=around,
                remedy="send text as UTF-8, or both halves (such as \\ud83e\\uddea)",
            ) from None
    return value


async def _multipart(request: web.Request, session: Session, base: Path) -> dict[str, Any]:
    """Read the parts; files are streamed to `base` under their own relative paths."""
    body: dict[str, Any] = {}
    count = total = 0
    most = min(BYTES_MAX, request.get(BODY_MOST, BYTES_MAX))
    try:
        check_plain(request)
        reader = await request.multipart()
        while (part := await in_time(reader.next())) is not None:
            if not isinstance(part, BodyPartReader):
                raise InvalidInput.one("", "a part must not be multipart itself")
            if part.name in ("submission", "plan", "id"):
                if part.name in body:
                    raise InvalidInput.one(part.name, "is there twice", remedy="send it once")
                body[part.name], size = await _field(part, min(TEXT_MAX, most - total))
                total += size
                continue
            count += 1
            if count > FILES_MAX:
                raise InvalidInput.one("file", f"more than {FILES_MAX} files", remedy=_REMEDY)
            total += await _file(part, session, base, most - total)
    except (ValueError, AssertionError) as error:  # of aiohttp, for what is no multipart body
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput.one("", f"the body is no multipart/form-data: {error}") from error
    return body


async def _field(part: BodyPartReader, most: int) -> tuple[Any, int]:
    """Read a part that is no file, and how many bytes it has."""
    name = part.name or ""
    data = bytearray()
    while chunk := await in_time(part.read_chunk(CHUNK)):
        data += chunk
        if len(data) > most:
            raise web.HTTPRequestEntityTooLarge(max_size=most, actual_size=len(data))
    try:
        text = bytes(data).decode()
        return text if name == "id" else _object(_parsed(text, name), name), len(data)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput.one(name, f"can't be read: {error}") from error


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput.one(field, "must be an object", value=type(value).__name__)
    return value


async def _file(part: BodyPartReader, session: Session, base: Path, most: int) -> int:
    """Write one file; how many bytes it has."""
    name = part.filename or ""
    target = _beneath(base, name)
    size = 0
    try:
        await session.in_pool(target.parent.mkdir, parents=True, exist_ok=True)
        async with opened(session.streams, lambda: target.open("xb")) as file:
            while chunk := await in_time(part.read_chunk(CHUNK)):
                size += len(chunk)
                if size > most:
                    text = "more bytes of files than a submission may have"
                    raise InvalidInput.one("file", text, value=name, remedy=_REMEDY)
                await file.write(chunk)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        text = "stands where another file or directory does; send each file once"
        raise InvalidInput.one("file", text, value=name) from error
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise
        raise InvalidInput.one(
            "file", f"can't be a name here: {error.strerror}", value=name[:200]
        ) from error
    if part.headers.get(hdrs.CONTENT_TYPE) == EXECUTABLE:
        await session.in_pool(target.chmod, 0o755)
    return size


def _beneath(base: Path, name: str) -> Path:
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise InvalidInput.one("file", "must have a relative path as its file name", value=name)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput.one("file", "must have a name in UTF-8", value=name) from error
    return base.joinpath(*parts)
