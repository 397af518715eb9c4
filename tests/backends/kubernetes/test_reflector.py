"""Scenarios of a reflector: whatever the server or the net does, the sink ends up equal to what exists."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from simrun.backends.kubernetes import lines as lines_module
from simrun.backends.kubernetes.backoff import Backoff, Timing
from simrun.backends.kubernetes.reflector import Reflector, Resource
from simrun.backends.kubernetes.session import KubeSession
from tests.backends.kubernetes.fake_api import FakeApi, is_list, is_watch

Json = dict[str, Any]

MAPS = "/api/v1/namespaces/here/configmaps"
MINE = {"metadata": {"labels": {"mine": "yes"}}}
QUICK = Timing(silence_s=5.0, short_s=0.0, first_s=0.01, longest_s=0.05, page=2)


class Recorder:
    """A sink that keeps the text of each object, and what it was told."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.told: list[str] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def fact_of(self, obj: Json) -> Json:
        return obj

    def replace(self, objects: Iterable[Json]) -> None:
        self.there = {obj["metadata"]["name"]: text_of(obj) for obj in objects}
        self._tell(f"list of {len(self.there)}")

    def upsert(self, obj: Json) -> None:
        self.there[obj["metadata"]["name"]] = text_of(obj)
        self._tell(f"{obj['metadata']['name']}={text_of(obj)}")

    def drop(self, obj: Json) -> None:
        self.there.pop(obj["metadata"]["name"], None)
        self._tell(f"{obj['metadata']['name']} gone")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(holds)

    async def equals(self, **there: str) -> None:
        await self.until(lambda: self.there == there)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        task = asyncio.get_running_loop().create_task(self._wake())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def text_of(obj: Json) -> str:
    return (obj.get("data") or {}).get("text", "")


def config_map(text: str = "", **labels: str) -> Json:
    return {"metadata": {"labels": {"mine": "yes"} | labels}, "data": {"text": text}}


@asynccontextmanager
async def reflecting(
    kube: KubeSession, timing: Timing = QUICK, resource: Resource | None = None
) -> AsyncIterator[tuple[Reflector, Recorder]]:
    recorder = Recorder()
    resource = resource or Resource(path=MAPS, labels="mine=yes")
    reflector = Reflector(kube, resource, recorder, timing, random.Random(1))
    task = asyncio.get_running_loop().create_task(reflector.run())
    try:
        yield reflector, recorder
        assert not task.done(), "a reflector never ends"
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_what_exists_is_listed_page_by_page_and_what_changes_is_watched(
    server: FakeApi, kube: KubeSession
) -> None:
    for name in "abcde":
        await server.put(f"{MAPS}/{name}", config_map("old"))
    await server.put(f"{MAPS}/foreign", config_map("x", mine="no"))

    async with reflecting(kube) as (reflector, recorder):
        await reflector.synced.wait()
        assert recorder.told == ["list of 5"]
        await server.watched(1)
        await server.put(f"{MAPS}/a", config_map("new"))
        await server.put(f"{MAPS}/f", config_map("first"))
        await server.remove(f"{MAPS}/b")
        await recorder.equals(a="new", c="old", d="old", e="old", f="first")

    assert recorder.told[1:] == ["a=new", "f=first", "b gone"]
    assert server.lists == 3  # the pages of one list
    assert server.watches == 1


async def test_a_list_is_consistent_and_the_watch_goes_on_from_its_version(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(f"{MAPS}/a", config_map())
    await server.put("/api/v1/namespaces/here/pods/unrelated", {})

    async with reflecting(kube) as (reflector, _):
        await reflector.synced.wait()
        await server.watched(1)

    (listed,) = [request for request in server.requests if is_list(request)]
    (watched,) = [request for request in server.requests if is_watch(request)]
    assert "resourceVersion" not in listed.query
    # Not the version of the object: what happened since then is not told again
    assert watched.query["resourceVersion"] == str(server.version)
    assert watched.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(watched.query["timeoutSeconds"]) <= 600


async def test_after_a_reset_the_watch_goes_on_where_it_broke_off(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(f"{MAPS}/a", config_map("old"))
    await server.put(f"{MAPS}/b", config_map("old"))

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(1)
        server.frozen = True
        await server.put(f"{MAPS}/a", config_map("its last words"))
        await server.remove(f"{MAPS}/a")
        await server.put(f"{MAPS}/b", config_map("new"))
        server.reset_connections()
        await server.watched(2)
        server.frozen = False
        await server.put(f"{MAPS}/c", config_map("live"))
        await recorder.equals(b="new", c="live")

        # What was true for a moment only, while the connection was down, is seen as well
        assert recorder.told[1:] == ["a=its last words", "a gone", "b=new", "c=live"]
        assert reflector.statistics().lists == 1
        assert reflector.statistics().failures == 1


async def test_a_clean_end_of_the_watch_leads_to_the_next_without_a_list_or_a_wait(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube) as (reflector, recorder):
        for number in range(1, 4):
            await server.watched(number)
            await server.put(f"{MAPS}/a", config_map(f"text {number}"))
            await recorder.equals(a=f"text {number}")
            await server.end_watches()
        await server.watched(4)

        assert reflector.statistics().failures == 0
        assert reflector.statistics().lists == 1


async def test_a_watch_goes_on_at_what_was_applied_last_bookmarks_too(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube) as (_, recorder):
        await server.watched(1)
        await server.put(f"{MAPS}/a", config_map("one"))
        await recorder.equals(a="one")
        server.reset_connections()
        await server.watched(2)
        await server.put("/api/v1/namespaces/here/pods/unrelated", {})
        await server.bookmark()
        await server.put(f"{MAPS}/b", config_map("two"))
        await recorder.equals(a="one", b="two")
        await server.end_watches()
        await server.watched(3)

    watched = [request for request in server.requests if is_watch(request)]
    versions = [int(request.query["resourceVersion"]) for request in watched]
    assert versions == [100, 101, 103]
    assert server.lists == 1


async def test_what_was_deleted_before_the_history_was_forgotten_is_found_by_a_list(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(f"{MAPS}/a", config_map("old"))
    await server.put(f"{MAPS}/b", config_map("old"))

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(1)
        server.frozen = True
        await server.remove(f"{MAPS}/a")
        await server.put(f"{MAPS}/b", config_map("new"))
        server.compact()
        server.reset_connections()
        server.frozen = False
        await recorder.equals(b="new")

        assert reflector.statistics().lists == 2
        assert reflector.statistics().expired == 1


async def test_a_server_whose_versions_went_back_is_listed(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube) as (reflector, recorder):
        await server.watched(1)
        # As from a backup: an older version than that of the list
        told = config_map("older") | {"metadata": {"uid": "u", "resourceVersion": "7"}}
        event = json.dumps({"type": "ADDED", "object": told}) + "\n"
        server.fail(200, event, matches=is_watch)
        await server.put(f"{MAPS}/a", config_map("there"))
        await server.end_watches()
        await server.watched(3)
        await recorder.equals(a="there")

        assert reflector.statistics().lists == 2


async def test_a_version_that_the_server_fails_at_is_given_up_after_some_tries(
    server: FakeApi, kube: KubeSession
) -> None:
    error = (
        '{"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd is unwell"}'
    )
    server.fail(200, f'{{"type": "ERROR", "object": {error}}}\n', matches=is_watch, times=6)

    async with reflecting(kube) as (reflector, _):
        await server.watched(7)

        assert reflector.statistics().lists == 2
        assert reflector.statistics().failures == 6


async def test_an_event_that_is_told_twice_is_taken_once(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube) as (_, recorder):
        await server.watched(1)
        one = await server.put(f"{MAPS}/a", config_map("one"))
        await recorder.equals(a="one")
        again = json.dumps({"type": "MODIFIED", "object": one}) + "\n"
        server.fail(200, again, matches=is_watch)
        await server.end_watches()
        await server.watched(3)
        await server.put(f"{MAPS}/b", config_map("two"))
        await recorder.equals(a="one", b="two")

    assert recorder.told == ["list of 0", "a=one", "b=two"]


AUDITED = replace(QUICK, audit_s=(0.0, 0.0))


async def test_an_audit_of_a_watch_that_tells_all_finds_nothing(
    server: FakeApi, kube: KubeSession
) -> None:
    for name in "ab":
        await server.put(f"{MAPS}/{name}", config_map("old"))

    async with reflecting(kube, AUDITED) as (reflector, recorder):
        await server.watched(1)
        server.frozen = True  # these happen between the end of the watch and the list
        await server.put(f"{MAPS}/a", config_map("new"))
        await server.remove(f"{MAPS}/b")
        await server.put(f"{MAPS}/c", config_map("new"))
        await server.end_watches()
        await server.watched(2)
        await recorder.equals(a="new", c="new")
        server.frozen = False
        await server.put(f"{MAPS}/d", config_map("live"))
        await recorder.equals(a="new", c="new", d="live")

        statistics = reflector.statistics()
        assert (statistics.audits, statistics.lists, statistics.drift) == (1, 2, 0)
    assert recorder.told == ["list of 2", "list of 2", "d=live"]


async def test_an_audit_counts_what_a_watch_has_hidden(server: FakeApi, kube: KubeSession) -> None:
    for name in "ab":
        await server.put(f"{MAPS}/{name}", config_map("old"))

    async with reflecting(kube, AUDITED) as (reflector, recorder):
        await server.watched(1)
        await server.put(f"{MAPS}/a", config_map("new"), told=False)
        await server.put(f"{MAPS}/c", config_map("new"))
        await recorder.equals(a="old", b="old", c="new")
        await server.end_watches()
        await server.watched(2)
        await recorder.equals(a="new", b="old", c="new")
        await server.put(f"{MAPS}/d", config_map("live"))
        await recorder.equals(a="new", b="old", c="new", d="live")

        assert reflector.statistics().drift == 1


async def test_history_that_is_forgotten_between_list_and_watch_leads_to_another_list(
    server: FakeApi, kube: KubeSession
) -> None:
    await server.put(f"{MAPS}/a", config_map("old"))

    def compact(request: web.Request) -> bool:
        if is_watch(request) and not server.oldest:
            server.version += 1
            server.compact()
        return False

    server.fail(500, matches=compact)
    async with reflecting(kube) as (reflector, recorder):
        await server.watched(2)
        await server.put(f"{MAPS}/b", config_map("live"))
        await recorder.equals(a="old", b="live")

        assert reflector.statistics().failures == 1
        assert reflector.statistics().lists == 2


async def test_a_410_as_an_event_or_as_an_answer_is_survived(
    server: FakeApi, kube: KubeSession
) -> None:
    gone = '{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}'
    event = f'{{"type": "ERROR", "object": {gone}}}\n'
    server.fail(200, event, matches=is_watch)
    server.fail(410, gone, matches=is_watch)
    server.fail(410, gone, matches=lambda request: "continue" in request.query)
    for name in "abc":
        await server.put(f"{MAPS}/{name}", config_map())

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(3)
        await server.put(f"{MAPS}/d", config_map("live"))
        await recorder.equals(a="", b="", c="", d="live")

        assert reflector.statistics().failures == 3


async def test_silence_is_noticed_and_what_was_missed_is_told(
    server: FakeApi, kube: KubeSession
) -> None:
    timing = Timing(silence_s=0.3, short_s=0, first_s=0.01)
    async with reflecting(kube, timing) as (reflector, recorder):
        await server.watched(1)
        server.frozen = True
        await server.put(f"{MAPS}/a", config_map("missed"))
        await server.watched(2)
        server.frozen = False
        await server.bookmark()  # wakes the new watch
        await recorder.equals(a="missed")

        assert reflector.statistics().lists == 1


async def test_bookmarks_keep_a_quiet_watch_alive(server: FakeApi, kube: KubeSession) -> None:
    async with reflecting(kube, Timing(silence_s=2.0)) as (reflector, _):
        await server.watched(1)
        for _ in range(6):
            await asyncio.sleep(0.4)
            await server.bookmark()

        assert reflector.statistics().failures == 0
        assert server.watches == 1
        age = reflector.statistics().age_s
        assert age is not None
        assert age < 2


async def test_a_proxys_page_an_overload_and_a_refusal_are_waited_out(
    server: FakeApi, kube: KubeSession
) -> None:
    page = "<html><body>502 Bad Gateway</body></html>"
    server.fail(502, page, matches=is_list, content_type="text/html")
    server.fail(200, page, matches=is_list, content_type="text/html")
    server.fail(403, '{"kind": "Status", "code": 403, "reason": "Forbidden"}', matches=is_list)
    server.fail(200, page, matches=is_watch, content_type="text/html")
    server.fail(200, '{"type": "ADDED"}\n', matches=is_watch)
    await server.put(f"{MAPS}/a", config_map("there"))

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(3)
        await server.put(f"{MAPS}/b", config_map("live"))
        await recorder.equals(a="there", b="live")

        assert reflector.statistics().failures == 5
        assert recorder.there == {"a": "there", "b": "live"}


async def test_an_overloaded_server_says_when_to_come_back(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(429, "slow down", headers={"Retry-After": "1"})

    async with asyncio.timeout(20), reflecting(kube) as (reflector, _):
        begun = asyncio.get_running_loop().time()
        await reflector.synced.wait()
        assert asyncio.get_running_loop().time() - begun >= 1.0


async def test_an_overloaded_server_is_watched_again_from_the_same_version(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(429, "slow down", matches=is_watch, headers={"Retry-After": "0.5"})
    server.fail(503, "<html>", matches=is_watch, content_type="text/html")

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(3)
        await server.put(f"{MAPS}/a", config_map("live"))
        await recorder.equals(a="live")

        assert reflector.statistics().lists == 1


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(200, "", matches=is_watch, times=1000)

    async with reflecting(kube, Timing(first_s=0.2, longest_s=0.4)):
        await server.watched(1)
        await asyncio.sleep(1.0)

    assert server.watches <= 8
    assert server.lists <= 3


async def test_a_server_that_ends_watches_soon_but_tells_something_is_not_kept_waiting(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube, Timing()) as (reflector, recorder):
        for number in range(1, 6):
            await server.watched(number)
            await server.put(f"{MAPS}/a", config_map(str(number)))
            await recorder.equals(a=str(number))
            await server.end_watches()

        assert reflector.statistics().failures == 0


async def test_an_event_that_is_cut_off_is_told_again_by_the_next_watch(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(200, '{"type": "ADDED", "object": {"metada', matches=is_watch)

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(2)
        await server.put(f"{MAPS}/a", config_map("live"))
        await recorder.equals(a="live")

        assert reflector.statistics().lists == 1


async def test_that_it_fails_and_why_can_be_read_until_the_server_answers_again(
    server: FakeApi, kube: KubeSession
) -> None:
    server.fail(503, "<html>", times=10**6)
    async with reflecting(kube) as (reflector, _):
        while reflector.statistics().failures < 3:
            await asyncio.sleep(0.01)
        statistics = reflector.statistics()
        assert statistics.failing_s is not None
        assert "HTTP 503" in statistics.failure

        server.recover()
        await server.watched(1)
        while reflector.statistics().failing_s is not None:
            await asyncio.sleep(0.01)
        assert reflector.statistics().failure == ""


async def test_a_watch_that_is_open_again_goes_well_before_it_tells_anything(
    server: FakeApi, kube: KubeSession
) -> None:
    async with reflecting(kube) as (reflector, _):
        await server.watched(1)
        server.reset_connections()
        await server.watched(2)
        async with asyncio.timeout(20):
            while reflector.statistics().failing_s is not None:
                await asyncio.sleep(0.01)


async def test_how_fresh_a_table_is_can_be_read(server: FakeApi, kube: KubeSession) -> None:
    recorder = Recorder()
    reflector = Reflector(kube, Resource(path=MAPS), recorder, QUICK)
    assert reflector.statistics().age_s is None
    await reflector.relist()
    first = reflector.statistics().age_s
    await asyncio.sleep(0.05)
    second = reflector.statistics().age_s

    assert first is not None
    assert second is not None
    assert second >= first + 0.05


async def test_a_line_of_many_megabytes_is_an_event_like_any_other(
    server: FakeApi, kube: KubeSession
) -> None:
    text = "x" * (5 * 2**20)

    async with reflecting(kube) as (reflector, recorder):
        await server.watched(1)
        await server.put(f"{MAPS}/a", config_map(text))
        await recorder.equals(a=text)

        assert reflector.statistics().failures == 0


async def test_a_line_without_end_is_given_up(
    server: FakeApi, kube: KubeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 1000)
    server.fail(200, "x" * 5000, matches=is_watch)

    async with reflecting(kube) as (reflector, _):
        await server.watched(2)

        assert reflector.statistics().failures == 1


async def test_metadata_alone_is_asked_for_where_it_is_enough(
    server: FakeApi, kube: KubeSession
) -> None:
    resource = Resource(path=MAPS, labels="mine=yes", metadata_only=True)
    await server.put(f"{MAPS}/a", config_map("never seen"))

    async with reflecting(kube, resource=resource) as (_, recorder):
        await server.watched(1)
        await server.put(f"{MAPS}/b", config_map("nor this"))
        await recorder.equals(a="", b="")


async def test_a_bug_in_the_sink_ends_the_reflector_loudly(
    server: FakeApi, kube: KubeSession
) -> None:
    class Broken(Recorder):
        def replace(self, objects: Iterable[Json]) -> None:
            raise ZeroDivisionError

    reflector = Reflector(kube, Resource(path=MAPS), Broken(), QUICK)
    with pytest.raises(ZeroDivisionError):
        await reflector.run()


def test_waits_grow_from_nothing_to_their_limit_and_are_forgotten_after_quiet() -> None:
    backoff = Backoff(Timing(), random.Random(1))

    waits = [backoff.next(now) for now in range(10)]

    assert waits[0] == 0
    assert 0.8 <= waits[1] <= 1.6 <= waits[2] <= 3.2
    assert waits[8:] == [30.0, 30.0]
    assert backoff.next(1000.0) == 0


def test_waits_stay_at_their_limit_for_days() -> None:
    backoff = Backoff(Timing())

    for second in range(3000):
        wait = backoff.next(float(second))

    assert wait == 30.0
