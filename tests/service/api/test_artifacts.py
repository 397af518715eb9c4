"""Artifacts over HTTP: lists, ranges, archives, and nothing that is outside of a run."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.service.api.serving import Served
from tests.service.world import submission

TWO = submission({"a": {"type": "plain"}, "b": {"type": "plain"}}, {"plain": {"command": ["true"]}})
RUN = "/api/v1/runs/mine"
SECRET = "a secret of this machine"


@pytest.fixture
async def out(served: Served) -> Path:
    """The output of the task `a` of the run `mine`."""
    await served.client.submit(TWO, run_id="mine")
    await served.running("mine")
    return served.session.store.layout.run("mine").task("a").out


def write(path: Path, data: bytes = b"0123456789") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


async def paths(served: Served, query: str = "") -> list[str]:
    status, body, _ = await served.ask("GET", f"{RUN}/artifacts{query}")
    assert status == 200
    return [one["path"] for one in body["artifacts"]]


async def test_artifacts_of_all_tasks_are_listed_by_path(served: Served, out: Path) -> None:
    for name in ("x/2.txt", "x/1.txt", "y.txt", ".simrun-merged"):
        write(out / name)
    write(served.session.store.layout.run("mine").task("b").out / "z")

    assert await paths(served) == ["a/x/1.txt", "a/x/2.txt", "a/y.txt", "b/z"]
    assert await paths(served, "?task=a&prefix=x/") == ["a/x/1.txt", "a/x/2.txt"]
    assert (await served.ask("GET", f"{RUN}/artifacts?task=none"))[0] == 404


async def test_a_list_goes_on_where_its_page_ended(served: Served, out: Path) -> None:
    names = sorted(f"{d}/{n}" for d in "pq" for n in range(5))
    for name in names:
        write(out / name)
    write(served.session.store.layout.run("mine").task("b").out / "z")
    found: list[str] = []
    after = ""
    while after is not None:
        _, body, _ = await served.ask("GET", f"{RUN}/artifacts?limit=3&after={after}")
        found += [one["path"] for one in body["artifacts"]]
        after = body["after"]

    assert found == [*(f"a/{name}" for name in names), "b/z"]


@pytest.mark.parametrize(
    ("wanted", "status", "body", "said"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=-4", 206, b"6789", "bytes 6-9/10"),
        ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=3-1", 200, b"0123456789", None),
        ("pages=1-2", 200, b"0123456789", None),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
    ],
)
async def test_ranges(
    served: Served, out: Path, wanted: str, status: int, body: bytes | None, said: str | None
) -> None:
    write(out / "file.bin")
    got, content, headers = await served.ask(
        "GET", f"{RUN}/artifacts/a/file.bin", headers={"Range": wanted}
    )
    assert (got, headers.get("Content-Range")) == (status, said)
    if body is not None:
        assert content == body


async def test_a_range_of_what_has_changed_is_the_whole_and_what_has_not_is_not_sent(
    served: Served, out: Path
) -> None:
    write(out / "file.bin")
    where = f"{RUN}/artifacts/a/file.bin"
    _, _, headers = await served.ask("HEAD", where)
    etag = headers["ETag"]
    assert headers["Content-Length"] == "10"
    assert (await served.ask("GET", where, headers={"If-None-Match": etag}))[0] == 304
    some = {"Range": "bytes=2-3", "If-Range": etag}
    assert (await served.ask("GET", where, headers=some))[:2] == (206, b"23")

    (out / "file.bin").unlink()
    write(out / "file.bin", b"something else")

    assert (await served.ask("GET", where, headers=some))[:2] == (200, b"something else")


async def test_what_a_simulation_wrote_never_runs_as_a_page_of_the_server(
    served: Served, out: Path
) -> None:
    for name, kind in (("page.html", "attachment"), ("map.svg", "attachment"), ("p.png", "inline")):
        write(out / name)
        _, _, headers = await served.ask("GET", f"{RUN}/artifacts/a/{name}")
        assert headers["Content-Disposition"] == kind
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in headers["Content-Security-Policy"]
        assert headers["Content-Type"] == (
            "image/png" if kind == "inline" else "application/octet-stream"
        )


async def test_an_archive_has_every_artifact_whole(served: Served, out: Path) -> None:
    write(out / "x" / "one.txt", b"one")
    write(out / f"{'long' * 40}.bin", os.urandom(1000))
    write(out / "empty", b"")
    os.symlink("/etc/passwd", out / "link")

    status, content, _ = await served.ask("GET", f"{RUN}/archive?task=a")

    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        found = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    assert set(found) == {"a/x/one.txt", f"a/{'long' * 40}.bin", "a/empty"}
    assert found["a/x/one.txt"] == b"one"
    assert found[f"a/{'long' * 40}.bin"] == (out / f"{'long' * 40}.bin").read_bytes()


async def test_names_with_blanks_and_percent_signs_are_found_as_they_are(
    served: Served, out: Path
) -> None:
    write(out / "a b%2e.txt")
    assert await paths(served) == ["a/a b%2e.txt"]
    assert (await served.ask("GET", f"{RUN}/artifacts/a/a%20b%252e.txt"))[0] == 200


# --- what must not be had ----------------------------------------------------------------------------------------------


@pytest.fixture
def trapped(served: Served, out: Path, tmp_path: Path) -> Path:
    """A run directory in which a pod put everything it should not have, and secrets beside and above it."""
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    for directory in (served.root, out.parent, out.parent.parent, out.parent.parent.parent):
        (directory / "secret.txt").write_text(SECRET)
    (out / "file-link").symlink_to(secret)
    (out / "directory-link").symlink_to(tmp_path)
    (out / "first-link").symlink_to("file-link")
    (out / "up").symlink_to("..")
    (out / "zero").symlink_to("/dev/zero")
    os.mkfifo(out / "fifo")
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(out)
        one.bind("socket")
    if os.geteuid() == 0:
        os.mknod(out / "device", 0o666 | 0o020000, os.makedev(1, 5))
    logs = out.parent / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "a-0.log").symlink_to(secret)
    return out


@pytest.fixture(autouse=True)
def _stay_here() -> Any:
    here = Path.cwd()
    yield
    os.chdir(here)


async def test_links_pipes_sockets_and_devices_are_no_artifacts(
    served: Served, trapped: Path
) -> None:
    write(trapped / "real.txt", b"real")
    assert await paths(served) == ["a/real.txt"]
    for name in os.listdir(trapped):
        async with asyncio.timeout(10):
            status, body, _ = await served.ask("GET", f"{RUN}/artifacts/a/{name}")
        assert (status, name) == ((200, name) if name == "real.txt" else (404, name))
        assert SECRET not in str(body)
    for inside in ("directory-link/secret.txt", "up/secret.txt", "up/out/real.txt"):
        assert (await served.ask("GET", f"{RUN}/artifacts/a/{inside}"))[0] == 404
    async with asyncio.timeout(10):
        _, archive, _ = await served.ask("GET", f"{RUN}/archive")
    assert SECRET.encode() not in archive


UP = ("..", "%2e%2e", "%2E%2E", ".%2e", "%252e%252e", "%c0%ae%c0%ae", "%uff0e%uff0e", "..%00")
SLASH = ("/", "%2f", "%2F", "%252f", "%5c", "\\", "//", "/./")


@pytest.mark.parametrize("up", UP)
async def test_no_encoding_of_a_way_up_leads_out_of_a_run(
    served: Served, trapped: Path, up: str
) -> None:
    for slash in SLASH:
        await look_for_a_way_out(served, up, slash)


async def look_for_a_way_out(served: Served, up: str, slash: str) -> None:
    way = slash.join([up] * 3)
    for path in (
        f"{RUN}/artifacts/a/{up}{slash}secret.txt",
        f"{RUN}/artifacts/a/{way}{slash}secret.txt",
        f"{RUN}/artifacts/{up}{slash}secret.txt",
        f"{RUN}/artifacts/a{slash}{way}{slash}secret.txt",
        f"/api/v1/runs/{up}{slash}secret.txt",
        f"/api/v1/runs/{way}{slash}artifacts/a/secret.txt",
        f"{RUN}/logs/{up}{slash}secret.txt",
        f"{RUN}/logs/a?worker={way}{slash}secret",
        f"{RUN}/tasks/{way}{slash}units",
    ):
        status, body, _ = await served.ask("GET", path)
        assert status in (200, 400, 404), path
        assert SECRET not in str(body), path
        assert status != 200 or path.startswith(f"{RUN}/logs/a?"), path


@pytest.mark.parametrize(
    "path", ["//etc/passwd", "/%2fetc%2fpasswd", "/a//etc/passwd", "/a/x%00.txt"]
)
async def test_absolute_paths_and_zero_bytes_are_not_found(
    served: Served, trapped: Path, path: str
) -> None:
    assert (await served.ask("GET", f"{RUN}/artifacts{path}"))[0] == 404


# --- logs as files -------------------------------------------------------------------------------------------------------


async def test_the_log_of_an_attempt_is_sent_with_ranges_byte_for_byte(
    served: Served, out: Path
) -> None:
    logs = served.session.store.layout.run("mine").task("a").logs
    logs.mkdir(exist_ok=True)
    (logs / "a-0.log").write_bytes(b"one\x80\x00two")
    (logs / "a-1.log").symlink_to("/etc/passwd")

    _, body, _ = await served.ask("GET", f"{RUN}/logs")
    status, content, _ = await served.ask("GET", f"{RUN}/logs/a/a/0", headers={"Range": "bytes=3-"})

    assert body["logs"] == [{"task": "a", "worker": "a", "attempt": 0, "size": 8}]
    assert (status, content) == (206, b"\x80\x00two")
    for missing in ("a/a/1", "a/a/7", "a/b/0", "none/a/0", "..%2fa/a/0"):
        assert (await served.ask("GET", f"{RUN}/logs/{missing}"))[0] == 404
