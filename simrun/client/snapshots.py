"""Calls about snapshots: make one of a directory, sending it only where the server has not got it; list, verify, delete."""

from __future__ import annotations

import asyncio
import functools
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import aiohttp

from simrun.base.errors import InvalidInput, NotFound, Problem, Unreachable
from simrun.client.transport import CONNECT_S, Transport, api
from simrun.model.snapshot import Entry, Snapshot, digest_of
from simrun.model.workflow import Submission
from simrun.service.snapshots import local_data, of_field, place_of, with_snapshots
from simrun.store.intake import SnapshotLimits
from simrun.store.sources import Source, Step, content, hashed, look_through, no_step
from simrun.store.tarstream import END, padding

SNAPSHOT_S = 2 * 3600.0
"""Silence that is borne: the server reads all of a snapshot before it answers."""
_TAR = "application/x-tar"
_PAGE = 1000

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Some snapshots, by name, and where to go on; no cursor on the last page."""

    snapshots: tuple[Snapshot, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a snapshot is what it was; `differences` say by path what is not."""

    digest: str
    whole: bool
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FilePage:
    files: tuple[dict[str, str | int | bool], ...]
    cursor: str | None


class SnapshotCalls(Transport):
    """/api/v1/snapshots."""

    async def snapshots(
        self,
        *,
        group: str | None = None,
        digest: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SnapshotPage:
        """Give a page of snapshots; its cursor goes with the same filters to the next page.

        digest: only the one with this content, sha256:<hex>. Raises InvalidInput.
        """
        given = {"group": group, "digest": digest, "limit": str(limit), "cursor": cursor}
        params = {key: value for key, value in given.items() if value is not None}
        return self._model(SnapshotPage, await self._call("GET", api("snapshots"), params=params))

    async def all_snapshots(self, *, group: str | None = None) -> AsyncIterator[Snapshot]:
        """Yield all snapshots, page by page."""
        cursor = None
        while True:
            page = await self.snapshots(group=group, limit=_PAGE, cursor=cursor)
            for item in page.snapshots:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    async def snapshot(self, name: str) -> Snapshot:
        """Give a snapshot. Raises NotFound."""
        return self._model(Snapshot, await self._call("GET", api("snapshots", name)))

    async def snapshot_files(self, name: str) -> AsyncIterator[Entry]:
        """Yield the files of a snapshot by path, with size, SHA-256, and whether they may be executed. Raises NotFound."""
        params = {"limit": str(_PAGE)}
        while True:
            answer = await self._call("GET", api("snapshots", name, "files"), params=params)
            page = self._model(_FilePage, answer)
            for item in page.files:
                yield self._model(Entry, item)
            if page.cursor is None:
                return
            params["cursor"] = page.cursor

    async def create_snapshot(
        self,
        source: Path,
        *,
        group: str = "default",
        name: str | None = None,
        step: Step = no_step,
    ) -> Snapshot:
        """Make a snapshot of a directory or a file; it is read, and sent only where the group has not got its content.

        name: a new one where it is None; a snapshot that is there keeps its own. step: told of bytes that were read.
        Raises NotFound, InvalidInput with all that can't go in, Conflict for a name that is taken, Forbidden, Unreachable.
        """
        found = await _in_thread(look_through, source, SnapshotLimits())
        digest = digest_of(await _in_thread(hashed, found, step))
        there = (await self.snapshots(group=group, digest=digest)).snapshots
        if there:
            return there[0]
        params = {"group": group, "title": found.title[:200]} | ({"name": name} if name else {})
        failed: list[InvalidInput] = []

        async def body() -> AsyncIterator[bytes]:
            chunks = _archive(found, step)
            try:
                while data := await _in_thread(_next, chunks):
                    yield data
            except InvalidInput as error:
                failed.append(error)  # the connection is cut, which would be all that is told
                raise

        try:
            answer = await self._call(
                "POST",
                api("snapshots"),
                params=params,
                data=body,
                headers={"Content-Type": _TAR, "X-Simrun-Digest": digest},
                timeout=_PATIENT,
                repeatable=True,
            )
        except Unreachable:
            if failed:
                raise failed[0] from None
            raise
        return self._model(Snapshot, answer)

    async def verify_snapshot(self, name: str) -> Verification:
        """Have all of a snapshot read, and say what is not as it was. Raises NotFound."""
        path = api("snapshots", name, "verify")
        return self._model(
            Verification, await self._call("POST", path, timeout=_PATIENT, repeatable=True)
        )

    async def delete_snapshot(self, name: str) -> None:
        """Delete a snapshot. Raises NotFound, Conflict while a live run uses it."""
        await self._call("DELETE", api("snapshots", name))

    async def with_local_data(
        self, submission: Submission, base: Path, *, step: Step = no_step
    ) -> Submission:
        """Make snapshots of the local paths that inputs name as `snapshot:./PATH`, relative to `base`, and name these there.

        Raises InvalidInput with all that can't become one.
        """
        places: dict[str, str] = {}
        problems: list[Problem] = []
        for use in local_data(submission):
            if use.name in places:
                continue
            source = base / use.name
            try:
                made = await self.create_snapshot(source, group=submission.request.group, step=step)
            except NotFound:
                remedy = f"paths are relative to the workflow file, in {base}"
                problems.append(Problem(use.field, "no such directory", repr(use.name), remedy))
            except InvalidInput as error:
                problems += of_field(error, use)
            else:
                places[use.name] = await _in_thread(place_of, made, source)
        if problems:
            raise InvalidInput(problems)
        return with_snapshots(submission, places)


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    call = functools.partial(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(None, call)


_PATIENT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SNAPSHOT_S)


def _archive(source: Source, step: Step) -> Iterator[bytes]:
    """Yield a source as a tar archive; the same bytes for the same files."""
    for path in source.empty:
        yield _header(path, 0, executable=True, kind=tarfile.DIRTYPE)
    for file in source.files:
        yield _header(file.path, file.size, executable=file.executable)
        yield from content(file, step)
        if fill := padding(file.size):
            yield fill
    yield END


def _next(chunks: Iterator[bytes]) -> bytes:
    return next(chunks, b"")


def _header(path: str, size: int, *, executable: bool, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(path)
    info.type, info.size, info.mode = kind, size, 0o755 if executable else 0o644
    return info.tobuf(tarfile.PAX_FORMAT)
