"""Snapshots over the API: sent as archives, checked, of a group; and files of submissions on their way into the store."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simrun.model.snapshot import digest_of
from simrun.model.workflow import Submission
from simrun.service.api.paging import cursor_of
from simrun.service.api.streams import STREAMS
from simrun.store.intake import SnapshotLimits
from simrun.store.snapshots import Making, SnapshotStore
from simrun.store.sources import hashed, look_through
from tests.service.api.guarded import Guarded, guarded
from tests.service.api.serving import Served, serving
from tests.service.world import submission

TAR = {"Content-Type": "application/x-tar"}
API = "/api/v1/snapshots"


def archive(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return stream.getvalue()


DATA = archive(("a.txt", b"a\n"), ("deep/b.bin", bytes(300_000)))


def left(root: Path) -> list[str]:
    """What uploads and half-made snapshots have left."""
    found = os.listdir(root / "uploads") if (root / "uploads").exists() else []
    found += os.listdir(root / ".uploads") if (root / ".uploads").exists() else []
    return found + [name for name in os.listdir(root / "snapshots") if name.startswith(".")]


def repr_digest(data: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(data).digest()).decode()}:"


def reading(text: str, **request: str) -> Submission:
    kind = {"command": ["true"], "inputs": ["data"]}
    return submission({"only": {"type": "t", "inputs": {"data": text}}}, {"t": kind}, **request)


async def test_an_archive_becomes_a_snapshot_that_can_be_listed_shown_verified_and_deleted(
    served: Served,
) -> None:
    status, made, headers = await served.ask("POST", f"{API}?name=mesh", data=DATA, headers=TAR)
    assert (status, headers["Location"]) == (201, f"{API}/mesh")
    assert (made["name"], made["group"], made["files"], made["bytes"]) == (
        *("mesh", "default", 2),
        300_002,
    )
    assert (await served.ask("GET", f"{API}/mesh"))[1] == made
    assert (await served.ask("GET", API))[1] == {"snapshots": [made], "cursor": None}
    files = (await served.ask("GET", f"{API}/mesh/files"))[1]
    assert [item["path"] for item in files["files"]] == ["a.txt", "deep/b.bin"]
    checked = (await served.ask("POST", f"{API}/mesh/verify"))[1]
    assert checked == {"digest": made["digest"], "whole": True, "differences": []}
    assert (await served.ask("DELETE", f"{API}/mesh"))[0] == 204
    assert (await served.ask("GET", f"{API}/mesh"))[0] == 404
    assert left(served.root) == []


async def test_the_same_content_again_is_the_same_snapshot(served: Served) -> None:
    _, first, _ = await served.ask("POST", f"{API}?title=mesh", data=DATA, headers=TAR)
    assert first["name"].startswith("mesh-")
    status, again, _ = await served.ask("POST", f"{API}?name=other", data=DATA, headers=TAR)
    assert (status, again) == (200, first)
    found = (await served.ask("GET", f"{API}?digest={first['digest']}&group=default"))[1]
    assert found["snapshots"] == [first]
    nothing = (await served.ask("GET", f"{API}?digest=sha256:{'0' * 64}"))[1]
    assert nothing["snapshots"] == []


async def test_what_has_not_the_digest_that_was_said_is_refused_and_nothing_stays(
    served: Served, tmp_path: Path
) -> None:
    for name, wrong in (
        ("Repr-Digest", repr_digest(b"other")),
        ("X-Simrun-Digest", f"sha256:{'0' * 64}"),
    ):
        status, body, _ = await served.ask("POST", API, data=DATA, headers={**TAR, name: wrong})
        assert status == 422
        assert body["errors"][0]["remedy"] == "send it again"
        assert os.listdir(served.root / "snapshots") == []
        assert left(served.root) == []
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a").write_text("a")
    data = archive(("a", b"a"))
    content = digest_of(hashed(look_through(tmp_path / "d", SnapshotLimits())))
    headers = {**TAR, "Repr-Digest": f"md5=:x:, {repr_digest(data)}", "X-Simrun-Digest": content}
    status, made, _ = await served.ask("POST", API, data=data, headers=headers)
    assert (status, made["digest"]) == (201, content)


WRONG: list[tuple[str, dict[str, str], bytes, int]] = [
    ("", {"Repr-Digest": "sha-256=:x:"}, DATA, 400),
    ("", {"X-Simrun-Digest": "abc"}, DATA, 400),
    ("?name=../x", {}, DATA, 400),
    ("?name=.tmp", {}, DATA, 400),
    ("?group=a:b", {}, DATA, 400),
    ("?nme=x", {}, DATA, 400),
    ("", {"Content-Type": "application/gzip"}, DATA, 415),
    ("", {}, b"no archive" * 100, 422),
    ("", {}, DATA[:1000], 422),
    ("", {}, b"", 422),
    ("", {}, archive(("../../evil", b"x")), 422),
    ("", {}, archive(("/etc/evil", b"x")), 422),
    ("", {}, archive(("a", b"1"), ("a", b"2")), 422),
]


async def test_what_is_wrong_is_refused_and_nothing_stays(served: Served) -> None:
    for query, headers, data, status in WRONG:
        found, body, _ = await served.ask(
            "POST", API + query, data=data, headers={**TAR, **headers}
        )
        assert found == status, body
        assert os.listdir(served.root / "snapshots") == []
        assert left(served.root) == []


PATHS = (
    *("..", "%2e%2e", "..%2fruns", "%2e%2e%2fruns", ".tmp.x", "a%00b", "%ff", "mesh%2fa.txt"),
    *("%252e%252e", "..%5cruns", "mesh%2f..%2f..%2fruns", "%c0%ae%c0%ae", "...", "mesh%20"),
)


async def test_a_path_is_no_name(served: Served) -> None:
    await served.ask("POST", f"{API}?name=mesh", data=DATA, headers=TAR)
    for name in PATHS:
        for method, rest in (("GET", ""), ("GET", "/files"), ("POST", "/verify"), ("DELETE", "")):
            status, _, _ = await served.ask(method, f"{API}/{name}{rest}")
            assert status in (400, 404, 405), name
    assert (served.root / "snapshots" / "mesh" / "a.txt").exists()
    assert (served.root / "runs").is_dir()


async def test_a_body_that_breaks_off_leaves_nothing(served: Served) -> None:
    half = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield DATA[:100_000]
        half.set()
        await asyncio.sleep(60)

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(served.ask("POST", API, data=body(), headers=TAR))
        await half.wait()
        async with asyncio.timeout(20):
            while not left(served.root):
                await asyncio.sleep(0.01)
            sending.cancel()
            while left(served.root):
                await asyncio.sleep(0.01)
    assert os.listdir(served.root / "snapshots") == []


async def test_ten_at_once_are_one(served: Served) -> None:
    answers = await asyncio.gather(
        *(served.ask("POST", API, data=DATA, headers=TAR) for _ in range(10))
    )
    assert sorted(status for status, _, _ in answers) == [200] * 9 + [201]
    assert len({body["name"] for _, body, _ in answers}) == 1


async def test_pages_go_on_where_the_last_one_ended(served: Served) -> None:
    for name in ("a", "b", "c"):
        data = archive((name, b"x"), ("same", b""))
        await served.ask("POST", f"{API}?name={name}", data=data, headers=TAR)
    first = (await served.ask("GET", f"{API}?limit=2"))[1]
    second = (await served.ask("GET", f"{API}?limit=2&cursor={first['cursor']}"))[1]
    names = [item["name"] for item in first["snapshots"] + second["snapshots"]]
    assert (names, second["cursor"]) == (["a", "b", "c"], None)
    one = (await served.ask("GET", f"{API}/a/files?limit=1"))[1]
    two = (await served.ask("GET", f"{API}/a/files?limit=1&cursor={one['cursor']}"))[1]
    assert [item["path"] for item in one["files"] + two["files"]] == ["a", "same"]
    assert two["cursor"] is None
    assert (await served.ask("GET", f"{API}?cursor=x"))[0] == 400
    for place in (-1, 2**63, True):  # none that was ever given, though it has the form of one
        made = cursor_of((await served.ask("GET", f"{API}/a"))[1]["digest"], [place])
        assert (await served.ask("GET", f"{API}/a/files?cursor={made}"))[0] == 400


async def test_a_snapshot_that_a_live_run_uses_is_not_deleted(served: Served) -> None:
    await served.ask("POST", f"{API}?name=mesh", data=DATA, headers=TAR)
    await served.client.submit(reading("snapshot:mesh/a.txt"), run_id="run1")
    status, body, _ = await served.ask("DELETE", f"{API}/mesh")
    assert status == 409
    assert "is used by run1" in body["detail"]
    await served.client.cancel("run1")
    await served.ended("run1")
    assert (await served.ask("DELETE", f"{API}/mesh"))[0] == 204
    status, body, _ = await served.ask("POST", "/api/v1/runs/run1/retry")
    assert status == 409
    assert "can't go on" in body["detail"]
    assert served.session.store.live_ids() == []


async def test_a_run_with_a_missing_snapshot_is_refused_before_its_record(served: Served) -> None:
    what = reading("snapshot:mesh").model_dump(mode="json", by_alias=True)
    status, body, _ = await served.ask("POST", "/api/v1/runs", json={"submission": what})
    assert status == 422
    problem = body["errors"][0]
    assert problem["field"] == "tasks.only.inputs.data"
    assert "simrun snapshot create" in problem["remedy"]
    assert served.session.store.run_ids() == []


# --- the end of the process --------------------------------------------------------------------------------------------


async def test_a_server_that_stops_ends_what_its_threads_read_and_write(two: Guarded) -> None:
    sent = await two.ask("POST", f"{API}?name=mesh&group=a", who="ann", data=DATA, headers=TAR)
    assert sent.status == 201
    two.app[STREAMS].close()

    checked = await two.ask("POST", f"{API}/mesh/verify", who="ann")
    again = await two.ask("POST", f"{API}?name=more&group=a", who="ann", data=DATA, headers=TAR)

    for refused in (checked, again):
        assert (refused.status, "stops" in refused.text) == (503, True)
    snapshots = two.session.store.layout.snapshots
    assert os.listdir(snapshots) == ["mesh"]


# --- groups ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Guarded]:
    who: dict[str, dict[str, Any]] = {
        "ann": {"scope": "run", "groups": ["a"]},
        "bob": {"scope": "run", "groups": ["b"]},
        "reader": {"scope": "read", "groups": ["a"]},
    }
    async with guarded(tmp_path, who) as found:
        yield found


async def test_a_group_sees_and_touches_only_its_own(two: Guarded) -> None:
    sent = await two.ask("POST", f"{API}?name=mesh&group=a", who="ann", data=DATA, headers=TAR)
    assert (sent.status, sent.body["owner"]) == (201, "ann")
    assert len((await two.ask("GET", API, who="ann")).body["snapshots"]) == 1
    assert len((await two.ask("GET", API, who="reader")).body["snapshots"]) == 1
    for query in ("", "?group=a", f"?digest={sent.body['digest']}"):
        assert (await two.ask("GET", API + query, who="bob")).body["snapshots"] == []
    for method, rest in (("GET", ""), ("GET", "/files"), ("POST", "/verify"), ("DELETE", "")):
        theirs = await two.ask(method, f"{API}/mesh{rest}", who="bob")
        missing = await two.ask(method, f"{API}/none{rest}", who="bob")
        assert theirs.status == missing.status == 404
        assert theirs.text.replace("mesh", "none") == missing.text
    assert (await two.ask("DELETE", f"{API}/mesh", who="reader")).status == 403
    refused = await two.ask("POST", f"{API}?group=a", who="bob", data=DATA, headers=TAR)
    assert refused.status == 403
    taken = await two.ask("POST", f"{API}?name=mesh&group=b", who="bob", data=DATA, headers=TAR)
    assert (taken.status, "other content" in taken.text) == (409, False)


async def test_a_run_cannot_name_a_snapshot_of_another_group(two: Guarded) -> None:
    await two.ask("POST", f"{API}?name=mesh&group=a", who="ann", data=DATA, headers=TAR)
    for who, group, expected in (("bob", "b", 422), ("ann", "a", 201)):
        what = reading("snapshot:mesh", group=group).model_dump(mode="json", by_alias=True)
        sent = await two.ask("POST", "/api/v1/runs", who=who, json={"submission": what})
        assert sent.status == expected, sent.text


# --- files of submissions ----------------------------------------------------------------------------------------------


def form(what: Submission | str, files: list[tuple[str, bytes]]) -> aiohttp.FormData:
    body = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    text = what if isinstance(what, str) else what.model_dump_json()
    body.add_field("submission", text, content_type="application/json")
    for name, content in files:
        body.add_field("file", content, filename=name)
    return body


async def test_files_are_moved_into_the_run_and_pass_through_nowhere_else(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not-there"))
    target = "tasks/only/in/data"
    files = [(f"{target}/x", b"x"), (f"{target}/deep/y", bytes(100_000))]
    status, _, headers = await served.ask("POST", "/api/v1/runs", data=form(reading("./d"), files))
    assert status == 201
    run = headers["Location"].rpartition("/")[2]
    root = served.session.store.layout.run(run).root / target
    assert (root / "x").read_bytes() == b"x"
    assert (root / "deep" / "y").stat().st_size == 100_000
    assert left(served.root) == []


async def test_files_that_have_no_place_and_bodies_that_are_none_are_refused(
    served: Served,
) -> None:
    for names in (
        *(("../x",), ("a/../../x",), ("code/a", "code/a"), ("code/a", "code/a/b")),
        *(("code/a/b", "code/a"), ("x" * 300,), ("",)),
    ):
        what = submission({"t": {"type": "t"}}, {"t": {"command": ["true"]}})
        body = form(what, [(name, b"") for name in names])
        status, found, _ = await served.ask("POST", "/api/v1/runs", data=body)
        assert status == 422, names
        assert found["errors"][0]["field"] == "file"
    for text in ("{", "[]", "1", "[" * 100_000):
        status, body, _ = await served.ask("POST", "/api/v1/runs", data=form(text, []))
        assert (status, body["errors"][0]["field"]) == (422, "submission")
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for data in (b"garbage", b"--x\r\nnothing", b""):
        status, _, _ = await served.ask("POST", "/api/v1/runs", data=data, headers=headers)
        assert status in (400, 422)
    status, _, _ = await served.ask(
        "POST", "/api/v1/runs", data=b"x", headers={"Content-Type": "multipart/form-data"}
    )
    assert status in (400, 422)
    assert served.session.store.run_ids() == []
    assert left(served.root) == []


async def test_what_an_earlier_server_left_goes_at_the_start(tmp_path: Path) -> None:
    old = tmp_path / "store" / ".uploads" / ".tmp.old"
    (old / "deep").mkdir(parents=True)
    async with serving(tmp_path) as served:
        made = SnapshotStore(served.session.store.layout)
        assert made.all() == []
        async with asyncio.timeout(20):
            while old.exists():
                await asyncio.sleep(0.01)


async def test_the_loop_is_not_held_up(served: Served, loop_guard: Any, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    snapshots = SnapshotStore(served.session.store.layout)
    snapshots.create(tmp_path / "x", Making("default", 0.0, name="x"))
    with loop_guard():
        headers = {**TAR, "Repr-Digest": repr_digest(DATA)}
        assert (await served.ask("POST", f"{API}?name=m", data=DATA, headers=headers))[0] == 201
        for path in ("", "/m", "/m/files"):
            assert (await served.ask("GET", API + path))[0] == 200
        assert (await served.ask("POST", f"{API}/m/verify"))[0] == 200
        assert (await served.ask("DELETE", f"{API}/m"))[0] == 204
        body = form(reading("./x"), [("tasks/only/in/data", b"x")])
        assert (await served.ask("POST", "/api/v1/runs", data=body))[0] == 201
        text = json.dumps({"submission": {}})
        assert (await served.ask("POST", "/api/v1/runs", data=text))[0] in (415, 422)
