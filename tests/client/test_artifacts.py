"""Downloads: whole or not at all, gone on with, and never outside of the directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from simrun.base.errors import Conflict, NotFound, Unreachable
from simrun.client import AsyncClient, artifacts
from simrun.client.landing import Incoming, Landing
from tests.client.served import ONE, Served, listening, serving

CONTENT = bytes(range(256)) * 40


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


async def run_with(served: Served, client: AsyncClient, files: dict[str, bytes]) -> None:
    await client.submit(ONE, run_id="mine")
    for name, content in files.items():
        path = served.session.store.layout.run("mine").task("only").out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


async def test_artifacts_are_downloaded_once_and_again_when_they_changed(
    served: Served, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    async with AsyncClient(served.url) as client:
        await run_with(served, client, {"a.txt": b"a", "deep/b c%2F?.bin": CONTENT, "none": b""})

        first = [item async for item in client.download("mine", here)]
        again = [item async for item in client.download("mine", here)]
        (served.session.store.layout.run("mine").task("only").out / "a.txt").write_bytes(b"more")
        third = [item async for item in client.download("mine", here, task="only", prefix="a")]
        fourth = [item async for item in client.download("mine", here)]

    assert first == [
        (here / "only/a.txt", True),
        (here / "only/deep/b c%2F?.bin", True),
        (here / "only/none", True),
    ]
    assert [fresh for _, fresh in again] == [False] * 3
    assert third == [(here / "a.txt", True)]
    assert [fresh for _, fresh in fourth] == [True, False, False]
    assert (here / "only/deep/b c%2F?.bin").read_bytes() == CONTENT
    assert (here / "only/a.txt").read_bytes() == b"more"
    assert (here / "only/none").read_bytes() == b""
    assert sorted(os.listdir(here / "only")) == ["a.txt", "deep", "none"]


async def test_a_run_that_is_not_there_is_told(served: Served, tmp_path: Path) -> None:
    async with AsyncClient(served.url) as client:
        with pytest.raises(NotFound):
            async for _ in client.download("nix", tmp_path):
                pass


class Cutting:
    """A server of one artifact that cuts each answer after some bytes."""

    def __init__(self, path: str = "only/a", *, etag: str = '"1"', step: int = 4000) -> None:
        self.path, self.etag, self.step = path, etag, step
        self.asked: list[str | None] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/v1/runs/mine/artifacts", self._list)
        app.router.add_get("/api/v1/runs/mine/artifacts/{path:.+}", self._send)
        return app

    async def _list(self, _request: web.Request) -> web.Response:
        item = {"path": self.path, "size": len(CONTENT), "modified": 1.0, "etag": '"1"'}
        return web.json_response({"artifacts": [item], "after": None})

    async def _send(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("Range"))
        wanted = request.headers.get("Range") and request.headers["If-Range"] == self.etag
        start = int(request.headers["Range"][6:-1]) if wanted else 0
        response = web.StreamResponse(status=206 if wanted else 200)
        response.headers["ETag"] = self.etag
        response.content_length = len(CONTENT) - start
        await response.prepare(request)
        await response.write(CONTENT[start : start + self.step])
        if start + self.step < len(CONTENT) and request.transport is not None:
            request.transport.close()
        return response


async def test_what_a_cut_connection_left_is_gone_on_with(tmp_path: Path) -> None:
    cutting = Cutting()
    async with listening(cutting.app()) as url, AsyncClient(url) as client:
        found = [item async for item in client.download("mine", tmp_path)]

    assert found == [(tmp_path / "only/a", True)]
    assert (tmp_path / "only/a").read_bytes() == CONTENT
    assert cutting.asked[0] is None
    starts = [int(text[6:-1]) for text in cutting.asked[1:] if text]
    assert starts
    assert starts == sorted(starts)


async def test_a_later_call_goes_on_too_but_not_with_the_rest_of_another_file(
    tmp_path: Path,
) -> None:
    half = Incoming("only/a", len(CONTENT), 1.0, '"1"')
    with Landing(tmp_path) as landing, landing.part(half, 0) as fd:
        os.write(fd, CONTENT[:5000])
    same, other = Cutting(step=20_000), Cutting(etag='"2"', step=20_000)

    async with listening(same.app()) as url, AsyncClient(url) as client:
        assert [item async for item in client.download("mine", tmp_path)]
    assert same.asked == ["bytes=5000-"]
    assert (tmp_path / "only/a").read_bytes() == CONTENT

    with Landing(tmp_path) as landing, landing.part(half, 0) as fd:
        os.write(fd, b"x" * 5000)
    os.unlink(tmp_path / "only/a")
    async with listening(other.app()) as url, AsyncClient(url) as client:
        assert [item async for item in client.download("mine", tmp_path)]
    assert other.asked == ["bytes=5000-"]
    assert (tmp_path / "only/a").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "only") == ["a"]


async def test_a_connection_that_is_cut_again_and_again_is_given_up_and_nothing_half_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "TRIES", 2)
    cutting = Cutting(step=0)
    async with listening(cutting.app()) as url, AsyncClient(url) as client:
        with pytest.raises(Unreachable, match="only/a"):
            async for _ in client.download("mine", tmp_path):
                pass

    assert not (tmp_path / "only/a").exists()


@pytest.mark.parametrize(
    "path", ["../out", "/etc/x", "only/../../out", "only//x", "only/.", "a\0b", ".."]
)
async def test_a_server_can_not_write_outside_of_the_directory(tmp_path: Path, path: str) -> None:
    here = tmp_path / "deep" / "here"
    cutting = Cutting(path, step=20_000)
    async with listening(cutting.app()) as url, AsyncClient(url) as client:
        with pytest.raises(Conflict, match="which is refused"):
            async for _ in client.download("mine", here):
                pass

    assert os.listdir(tmp_path) == ["deep"]
    assert os.listdir(tmp_path / "deep") == ["here"]


def test_a_link_in_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "only").symlink_to(tmp_path / "outside")
    (tmp_path / "here" / "a").symlink_to(tmp_path / "outside" / "a")

    with Landing(tmp_path / "here") as landing:
        with pytest.raises(Conflict, match="no directory of its own"):
            landing.has(Incoming("only/a", 1, 1.0, "e"))
        file = Incoming("a", 1, 1.0, "e")
        assert not landing.has(file)
        with landing.part(file, 0) as fd:
            os.write(fd, b"x")
        landing.land(file)  # the link is replaced, not what it points to

    assert os.listdir(tmp_path / "outside") == []
    assert (tmp_path / "here" / "a").read_bytes() == b"x"


def test_a_part_of_the_wrong_size_is_never_given_the_name(tmp_path: Path) -> None:
    file = Incoming("a", 3, 1.0, "e")
    with Landing(tmp_path) as landing:
        with landing.part(file, 0) as fd:
            os.write(fd, b"xx")
        with pytest.raises(Conflict, match="has 2 bytes instead of 3"):
            landing.land(file)

    assert not (tmp_path / "a").exists()
