"""Streams of events over HTTP: what a reader gets, how it comes back, and that none holds up another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from simrun.model.record import RunState
from simrun.service.api import events as api_events
from simrun.service.api.streams import STREAMS
from tests.service.api.guarded import guarded
from tests.service.api.serving import Served
from tests.service.api.test_api import ONE

ALL = "/api/v1/events"
MINE = "/api/v1/runs/mine/events"


class Stream:
    """One connection to a stream; what it is sent, block by block."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.last_id = ""

    async def block(self) -> str:
        """Wait for the next block, a comment or an event; "" at the end."""
        async with asyncio.timeout(20):
            return (await self.answer.content.readuntil(b"\n\n")).decode().rstrip("\n")

    async def next(self) -> tuple[str, Any]:
        """Wait for the next event."""
        while (block := await self.block()) and not block.startswith("event: "):
            pass
        if not block:
            return "", None
        kind, ident, data = block.split("\n")
        self.last_id = ident.removeprefix("id: ")
        return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))

    async def until(self, kind: str, **wanted: Any) -> Any:
        """Wait for an event of a kind with some values."""
        while True:
            found, data = await self.next()
            assert found, "the stream has ended"
            if found == kind and all(data.get(key) == value for key, value in wanted.items()):
                return data


@asynccontextmanager
async def stream(
    http: aiohttp.ClientSession, url: str, last_id: str | None = None, **headers: str
) -> AsyncIterator[Stream]:
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    async with http.get(url, headers=headers) as answer:
        assert answer.status == 200
        yield Stream(answer)


async def test_a_stream_is_not_kept_by_anything_between_and_says_that_it_lives(
    served: Served,
) -> None:
    served.session.events.bell.beat_s = 0.01
    async with stream(served.http, served.url + ALL, **{"Accept-Encoding": "gzip"}) as reader:
        headers = reader.answer.headers
        blocks = [await reader.block() for _ in range(4)]

    assert headers["Content-Type"] == "text/event-stream"
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Accel-Buffering"] == "no"
    assert "Content-Encoding" not in headers
    assert blocks[0].startswith("retry: ")
    assert blocks[1].startswith("event: snapshot")
    assert blocks[2:] == [": ping", ": ping"]


async def test_all_runs_come_as_a_snapshot_then_change_by_change(served: Served) -> None:
    await served.client.submit(ONE, run_id="first")
    name = await served.running("first")
    async with stream(served.http, served.url + ALL) as reader:
        kind, snapshot = await reader.next()
        assert (kind, [run["id"] for run in snapshot["runs"]]) == ("snapshot", ["first"])
        assert snapshot["runs"][0]["state"] == "running"

        served.backend.succeed(name, "only")
        row = await reader.until("run", id="first", state="succeeded", live=False)
        assert row["tasks"] == {"done": 1}
        await served.client.submit(ONE, run_id="second")
        await reader.until("run", id="second", state="submitting")
        await served.session.delete("first")
        assert await reader.until("deleted") == {"id": "first", "group": "default"}


async def test_who_comes_back_is_told_what_was_missed_or_the_present(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    name = await served.running("mine")
    async with stream(served.http, served.url + ALL) as reader:
        await reader.next()
        last_id = reader.last_id
    served.backend.succeed(name, "only")
    await served.ended("mine")

    async with stream(served.http, served.url + ALL, last_id) as again:
        kind, row = await again.next()
        assert (kind, row["id"]) == ("run", "mine")
        await again.until("run", state="succeeded", live=False)
    async with stream(served.http, f"{served.url}{ALL}?last_event_id={last_id}") as again:
        assert (await again.next())[0] == "run"
    async with stream(served.http, served.url + ALL, "another.7") as other:
        kind, snapshot = await other.next()
        assert (kind, snapshot["runs"][0]["state"]) == ("snapshot", "succeeded")


async def test_a_run_is_told_with_its_revisions_until_it_ends_and_then_no_more(
    served: Served,
) -> None:
    await served.client.submit(ONE, run_id="mine")
    name = await served.running("mine")
    async with stream(served.http, served.url + MINE) as reader:
        kind, data = await reader.next()
        assert (kind, data["run"], data["state"]) == ("run", "mine", "running")
        assert reader.last_id == str((await served.session.record("mine")).revision)
        served.backend.succeed(name, "only")
        await reader.until("run", state="succeeded")
        assert await reader.until("end") == {"state": "succeeded"}
        assert reader.last_id == str((await served.session.record("mine")).revision)
        assert await reader.block() == ""

    status, body, _ = await served.ask("GET", MINE, headers={"Last-Event-ID": reader.last_id})
    assert (status, body) == (204, b"")
    for unknown in ("0", "999", "x", ""):
        async with stream(served.http, served.url + MINE, unknown) as again:
            await again.until("run", state="succeeded")
            await again.until("end")


async def test_the_client_takes_no_more_to_come_for_the_end(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    served.backend.succeed(await served.running("mine"), "only")
    await served.ended("mine")
    revision = (await served.session.record("mine")).revision

    found = [item async for item in served.client._stream(MINE, last=str(revision))]

    assert found == [("end", str(revision), {})]


async def test_a_run_that_is_deleted_ends_its_streams(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    await served.running("mine")
    async with stream(served.http, served.url + MINE) as reader:
        await reader.next()
        record = await served.session.record("mine")
        served.session.store._remove("mine")
        served.session.tell(record)

        assert await reader.until("end") == {"state": "deleted"}


async def test_however_many_watch_a_run_it_is_looked_at_once(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    name = await served.running("mine")
    looks = 0
    look = served.session._seen

    async def counted(run_id: str) -> Any:
        nonlocal looks
        looks += 1
        return await look(run_id)

    served.session.feeds._look = counted

    async def watch() -> list[str]:
        async with stream(served.http, served.url + MINE) as reader:
            states = []
            while (event := await reader.next())[0] == "run":
                states.append(event[1]["state"])
            return states

    async with asyncio.timeout(30):
        readers = [asyncio.ensure_future(watch()) for _ in range(40)]
        while (feed := served.session.feeds._feeds.get("mine")) is None or feed[0].readers < 40:
            await asyncio.sleep(0.01)
        before = looks
        served.backend.succeed(name, "only")
        seen = await asyncio.gather(*readers)

    assert {states[-1] for states in seen} == {"succeeded"}
    assert looks - before < 40  # one for each change and each second; not 40 for each
    assert served.session.feeds._feeds == {}


def deaf(url: str, path: str, token: str) -> socket.socket:
    """Connect as a reader that takes nothing, with as little room for it as the kernel gives."""
    host, port = url.removeprefix("http://").split(":")
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    made.connect((host, int(port)))
    head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    made.sendall(head.encode())
    return made


async def test_a_reader_that_takes_nothing_is_cut_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_events, "STALLED_S", 2.0)
    async with guarded(tmp_path, {"admin": {"scope": "admin"}}) as served, asyncio.timeout(50):
        await served.submit("mine", "default", "admin")
        record = await served.session.record("mine")
        token = served.tokens["admin"]
        streams, revision = served.app[STREAMS]._tasks, 1000
        with closing(deaf(served.url, ALL, token)):
            while not streams:
                await asyncio.sleep(0.01)
            (stuck,) = streams
            async with stream(
                served.http, served.url + ALL, Authorization=f"Bearer {token}"
            ) as reader:
                await reader.next()
                while stuck in streams:
                    for _ in range(100):  # until it is more than all buffers between the two take
                        revision += 1
                        labels = {"text": "x" * 4000}
                        served.session.tell(record.changed(revision=revision, labels=labels))
                    await reader.until("run", revision=revision)

                served.session.tell(record.changed(revision=revision + 1))
                await reader.until("run", revision=revision + 1)


async def test_a_group_is_told_of_its_own_runs_alone(tmp_path: Path) -> None:
    who = {
        "astro": {"scope": "run", "groups": ["astro"]},
        "both": {"scope": "run", "groups": ["astro", "bio"]},
        "admin": {"scope": "admin"},
    }
    async with guarded(tmp_path, who) as served, asyncio.timeout(40):
        await served.submit("a1", "astro", "admin")
        await served.submit("b1", "bio", "admin")

        async def seen(name: str, query: str = "") -> tuple[set[str], set[str]]:
            """Give what a snapshot names, and what changes do until a run of everybody's groups has come."""
            headers = {"Authorization": f"Bearer {served.tokens[name]}"}
            async with stream(served.http, f"{served.url}{ALL}{query}", **headers) as reader:
                _, snapshot = await reader.next()
                changed = set()
                for number, run_id in enumerate(("b1", "c1", "a1")):
                    record = await served.session.record(run_id if run_id != "c1" else "b1")
                    group = {"b1": "bio", "c1": "chem", "a1": "astro"}[run_id]
                    revision = 1000 + 10 * len(served.more) + number
                    served.session.events.tell(
                        record.changed(id=run_id, group=group, revision=revision)
                    )
                served.more[name + query] = True
                last = "b1" if query == "?group=bio" else "a1"
                while last not in changed:
                    kind, row = await reader.next()
                    assert kind == "run"
                    changed.add(row["id"])
                return {run["id"] for run in snapshot["runs"]}, changed

        assert await seen("astro") == ({"a1"}, {"a1"})
        assert await seen("both") == ({"a1", "b1"}, {"a1", "b1"})
        assert await seen("both", "?group=bio") == ({"b1"}, {"b1"})
        everything = {"a1", "b1", "c1"}
        assert await seen("admin") == (everything, everything)
        hidden = await served.ask("GET", f"{ALL}?group=bio", who="astro")
        assert (hidden.status, "b1" in hidden.text) == (200, False)


async def test_changes_that_a_reader_may_not_see_do_not_keep_it_from_hearing_that_the_stream_lives(
    served: Served,
) -> None:
    await served.client.submit(ONE, run_id="mine")
    await served.running("mine")
    record = await served.session.record("mine")
    served.session.events.bell.beat_s = 0.2
    going = True

    async def change() -> None:
        revision = 1000
        while going:
            revision += 1
            served.session.events.tell(record.changed(revision=revision))
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        async with stream(served.http, f"{served.url}{ALL}?group=another") as reader:
            assert (await reader.next())[1]["runs"] == []

            assert [await reader.block() for _ in range(2)] == [": ping", ": ping"]
        going = False


async def test_more_streams_than_the_process_has_room_for_are_asked_to_come_back(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, {"admin": {"scope": "admin"}}) as served, asyncio.timeout(20):
        served.app[STREAMS].most = 1
        headers = {"Authorization": f"Bearer {served.tokens['admin']}"}
        async with stream(served.http, served.url + ALL, **headers) as reader:
            await reader.next()

            refused = await served.ask("GET", ALL, who="admin")

        assert (refused.status, refused.headers["Retry-After"]) == (429, "5")


async def test_all_events_come_through_the_client_and_after_a_cut_go_on(served: Served) -> None:
    await served.client.submit(ONE, run_id="mine")
    name = await served.running("mine")
    kinds: list[str] = []
    async with asyncio.timeout(30):
        async for kind, data in served.client.all_events():
            kinds.append(kind)
            if kind == "snapshot" and len(kinds) == 1:
                served.backend.succeed(name, "only")
                _cut(served)
            if data.get("state") == RunState.SUCCEEDED and not data["live"]:
                break

    assert kinds.count("snapshot") == 1
    assert "run" in kinds


def _cut(served: Served) -> None:
    """Cut who waits for events, as the end of the process does: the handler is cancelled."""
    for turn in list(served.session.events.bell._waiting):
        turn.cancel()
