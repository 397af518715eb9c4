"""Bodies of submissions: JSON, or multipart/form-data whose files are streamed to disk, never held in memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiofiles
from aiohttp import BodyPartReader, hdrs, web

from simrun.base.errors import InvalidInput
from simrun.service.attachments import EXECUTABLE
from simrun.service.session import Session
from simrun.store.files import remove_tree

FILES_MAX = 10_000
CHUNK = 2**16


@asynccontextmanager
async def received(
    request: web.Request, session: Session
) -> AsyncIterator[tuple[dict[str, Any], Path]]:
    """Give what a request says and the directory of the files it came with, which goes when this ends. Raises InvalidInput."""
    base = Path(await session.in_pool(tempfile.mkdtemp, prefix="simrun-upload-"))
    try:
        if request.content_type == "multipart/form-data":
            yield await _multipart(request, session, base), base
        else:
            yield await _json(request), base
    finally:
        await session.in_pool(remove_tree, base)


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (ValueError, UnicodeDecodeError) as error:
        raise InvalidInput.one("", f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidInput.one("", "the body must be an object", value=type(body).__name__)
    return body


async def _multipart(request: web.Request, session: Session, base: Path) -> dict[str, Any]:
    """Read the parts; files are streamed to `base` under their own relative paths."""
    body: dict[str, Any] = {}
    count = 0
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader):
            raise InvalidInput.one("", "a part must not be multipart itself")
        if part.name in ("submission", "id"):
            text = (await part.read(decode=True)).decode()
            body[part.name] = json.loads(text) if part.name == "submission" else text
            continue
        count += 1
        if count > FILES_MAX:
            raise InvalidInput.one(
                "file", f"more than {FILES_MAX} files", remedy="put data into a snapshot"
            )
        target = _beneath(base, part.filename or "")
        await session.in_pool(target.parent.mkdir, parents=True, exist_ok=True)
        async with aiofiles.open(target, "wb") as file:
            while chunk := await part.read_chunk(CHUNK):
                await file.write(chunk)
        if part.headers.get(hdrs.CONTENT_TYPE) == EXECUTABLE:
            await session.in_pool(target.chmod, 0o755)
    return body


def _beneath(base: Path, name: str) -> Path:
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
        raise InvalidInput.one("file", "must have a relative path as its file name", value=name)
    return base.joinpath(*parts)
