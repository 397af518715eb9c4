"""/api/v1/snapshots: read-only data sets that runs of a group use."""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, BaseModel, Field

from simrun.base import ids
from simrun.base.errors import NotFound
from simrun.model.access import Scope
from simrun.model.snapshot import Entry, Snapshot, digest_problem, name_problem
from simrun.service.api.access import SESSION, check_group, principal_of
from simrun.service.api.paging import cursor_of, position_of
from simrun.service.api.routing import BadQuery, Operations, Query, answer, query_of
from simrun.service.api.streams import STREAMS
from simrun.service.api.uploads import place_for_upload, received_file
from simrun.service.snapshots import Users
from simrun.store.snapshots import Making, SnapshotStore
from simrun.store.verification import verify

TAR = "application/x-tar"
REPR_DIGEST, CONTENT_DIGEST = "Repr-Digest", "X-Simrun-Digest"
PAGE, PAGE_MAX = 100, 1000
AT_ONCE = 3
"""Snapshots that are made, read or deleted at a time: each keeps a thread for minutes, and other streams need theirs."""
_TAR_OVERHEAD = 4096
"""Bytes that a file may take in an archive beside its content."""

operations = Operations("snapshots")

WORK = web.AppKey("snapshot_work", asyncio.Semaphore)
"""Held by whoever reads or writes whole snapshots."""


def _name(text: str) -> str:
    if problem := name_problem(text):
        raise ValueError(problem)
    return text


def _digest(text: str) -> str:
    if problem := digest_problem(text):
        raise ValueError(problem)
    return text


def _group(text: str) -> str:
    if problem := ids.group_problem(text):
        raise ValueError(problem)
    return text


Name = Annotated[str, AfterValidator(_name)]
Digest = Annotated[str, AfterValidator(_digest)]
Group = Annotated[str, AfterValidator(_group)]


class SnapshotQuery(Query):
    """Which snapshots are listed."""

    group: str | None = None
    """Only those of this group."""
    digest: Digest | None = None
    """Only the one with this content: whether it has to be sent at all."""
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    """How many at most."""
    cursor: str | None = None
    """Where the page before this one ended, as that said."""


class SnapshotPage(BaseModel):
    """Some snapshots, by name, and where to go on; no cursor on the last page."""

    snapshots: list[Snapshot]
    cursor: str | None


class NewSnapshot(Query):
    """What a new snapshot is called, and whose it is."""

    group: Group = "default"
    """Whose it is."""
    name: Name | None = None
    """What it is called; absent: a name is made of title and content."""
    title: str = Field(default="upload", max_length=200)
    """What it is made from: the beginning of the name where none is given."""


class FileQuery(Query):
    """Which files are listed."""

    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    """How many at most."""
    cursor: str | None = None
    """Where the page before this one ended, as that said."""


class SnapshotFile(BaseModel):
    """A file of a snapshot; a directory with nothing in it has a path that ends in a slash, and no digest."""

    path: str
    size: int
    sha256: str
    executable: bool


class FilePage(BaseModel):
    """Some files, by path, and where to go on; no cursor on the last page."""

    files: list[SnapshotFile]
    cursor: str | None


class Verification(BaseModel):
    """Whether a snapshot is what it was."""

    digest: str
    whole: bool
    differences: list[str]
    """By path, what is not as it was; at most a thousand."""


@operations.get("/api/v1/snapshots", scope=Scope.READ, query=SnapshotQuery, answer=SnapshotPage)
async def list_snapshots(request: web.Request) -> web.StreamResponse:
    """List the snapshots that the caller may use."""
    session, query, principal = (
        request.app[SESSION],
        query_of(request, SnapshotQuery),
        principal_of(request),
    )
    wanted = query.model_dump(include={"group", "digest"})
    (after,) = position_of(query.cursor, wanted, str) if query.cursor is not None else ("",)
    found = [
        item
        for item in await session.in_pool(SnapshotStore(session.store.layout).all, principal.only)
        if query.group in (None, item.group)
        and query.digest in (None, item.digest)
        and item.name > after
    ]
    page = found[: query.limit]
    cursor = cursor_of(wanted, [page[-1].name]) if len(found) > len(page) else None
    return answer(SnapshotPage(snapshots=page, cursor=cursor))


@operations.post(
    "/api/v1/snapshots",
    scope=Scope.RUN,
    query=NewSnapshot,
    uploads=(TAR,),
    answer=Snapshot,
    status=201,
    also=(200,),
    problems=(403, 409, 413, 415, 422),
    headers={
        REPR_DIGEST: "sha-256 of the archive (RFC 9530); what arrives must have it",
        CONTENT_DIGEST: "sha256:<hex>, digest of the snapshot; what arrives must have it",
    },
)
async def create_snapshot(request: web.Request) -> web.StreamResponse:
    """Make a snapshot of a tar archive, not compressed, of files and directories.

    201 for a new one, 200 when the group has one with the same content, whatever it is called.
    """
    session, query = request.app[SESSION], query_of(request, NewSnapshot)
    principal = principal_of(request)
    group = check_group(request, query.group)
    if request.content_type != TAR:
        raise web.HTTPUnsupportedMediaType(text=f"the body must be {TAR}")
    snapshots = SnapshotStore(session.store.layout)
    making = Making(group, session.now(), principal.name, query.name, _content_digest(request))
    sha256 = _repr_digest(request)
    await session.in_pool(snapshots.check, making)
    limits = snapshots.limits
    async with place_for_upload(session) as base:
        archive = base / "archive.tar"
        most = limits.bytes + limits.files * _TAR_OVERHEAD
        await received_file(request, session, archive, most=most, sha256=sha256)
        async with request.app[WORK]:
            made, new = await session.streams.run(
                snapshots.create_from_tar, archive, making, query.title, request.app[STREAMS].go_on
            )
    headers = {"Location": f"/api/v1/snapshots/{made.name}"}
    return answer(made, status=201 if new else 200, headers=headers)


@operations.get("/api/v1/snapshots/{snapshot}", scope=Scope.READ, answer=Snapshot, problems=(404,))
async def show_snapshot(request: web.Request) -> web.StreamResponse:
    """Give a snapshot."""
    return answer((await _snapshot_of(request))[1])


@operations.get(
    "/api/v1/snapshots/{snapshot}/files",
    scope=Scope.READ,
    query=FileQuery,
    answer=FilePage,
    problems=(404,),
)
async def list_snapshot_files(request: web.Request) -> web.StreamResponse:
    """List the files of a snapshot."""
    session, query = request.app[SESSION], query_of(request, FileQuery)
    snapshots, found = await _snapshot_of(request)
    (begin,) = position_of(query.cursor, found.digest, int) if query.cursor is not None else (0,)
    end = begin + query.limit

    def read() -> list[Entry]:
        return list(itertools.islice(snapshots.entries(found.name), begin, end + 1))

    entries = await session.streams.run(read)
    cursor = cursor_of(found.digest, [end]) if len(entries) > query.limit else None
    page = [SnapshotFile(**entry._asdict()) for entry in entries[: query.limit]]
    return answer(FilePage(files=page, cursor=cursor))


@operations.post(
    "/api/v1/snapshots/{snapshot}/verify", scope=Scope.READ, answer=Verification, problems=(404,)
)
async def verify_snapshot(request: web.Request) -> web.StreamResponse:
    """Read all of a snapshot and say what is not as it was. It takes as long as reading does."""
    snapshots, found = await _snapshot_of(request)
    async with request.app[WORK]:
        wrong = await request.app[SESSION].streams.run(
            verify, snapshots, found.name, request.app[STREAMS].go_on
        )
    return answer(Verification(digest=found.digest, whole=not wrong, differences=wrong[:PAGE_MAX]))


@operations.delete("/api/v1/snapshots/{snapshot}", scope=Scope.RUN, status=204, problems=(404, 409))
async def delete_snapshot(request: web.Request) -> web.StreamResponse:
    """Delete a snapshot that no live run uses."""
    session = request.app[SESSION]
    snapshots, found = await _snapshot_of(request)
    async with request.app[WORK]:
        await session.streams.run(snapshots.delete, found.name, Users(session.store, found.name))
    return web.Response(status=204)


async def _snapshot_of(request: web.Request) -> tuple[SnapshotStore, Snapshot]:
    """Give the snapshot that the path names. Raises NotFound, also for one of a group that the caller is not in."""
    session, name = request.app[SESSION], request.match_info["snapshot"]
    snapshots = SnapshotStore(session.store.layout)
    try:
        return snapshots, await session.in_pool(snapshots.get, name, principal_of(request).only)
    except NotFound:
        raise NotFound(f"no snapshot {name!r}") from None


def _content_digest(request: web.Request) -> str | None:
    text = request.headers.get(CONTENT_DIGEST)
    if text is not None and (problem := digest_problem(text)):
        raise BadQuery.one(CONTENT_DIGEST, problem, value=text[:100])
    return text


def _repr_digest(request: web.Request) -> bytes | None:
    """Read the SHA-256 in `Repr-Digest: sha-256=:<base64>:`; algorithms beside it are passed over, as the RFC has it."""
    text = request.headers.get(REPR_DIGEST, "")
    for item in text.split(","):
        key, _, value = item.strip().partition("=")
        if key.lower() != "sha-256":
            continue
        try:
            digest = base64.b64decode(value.strip(":"), validate=True)
        except (binascii.Error, ValueError):
            digest = b""
        if len(digest) != 32 or value[:1] != ":" or value[-1:] != ":":
            raise BadQuery.one(
                REPR_DIGEST, "must be sha-256=:<base64 of 32 bytes>:", value=text[:100]
            )
        return digest
    return None
