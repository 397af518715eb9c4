"""RunFeed: one look for all who watch a run, the newest for who is slow, and the same failure for all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from simrun.base.errors import BackendUnavailable, NotFound
from simrun.model.record import RunState
from simrun.service.progress import RunProgress
from simrun.service.runfeed import RunFeed, RunFeeds, Seen


class Run:
    """A run as looks find it."""

    def __init__(self) -> None:
        self.revision, self.looks, self.over = 1, 0, False
        self.failure: Exception | None = None

    async def look(self, run_id: str) -> Seen:
        self.looks += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        state = RunState.SUCCEEDED if self.over else RunState.RUNNING
        progress = RunProgress(
            run=run_id, name="", state=state, message=None, tasks=(), started=None, ended=None
        )
        return Seen(self.revision, self.over, progress)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
async def feeds(run: Run) -> AsyncIterator[RunFeeds]:
    async with asyncio.timeout(30), RunFeeds(run.look) as made:
        yield made


async def revisions(feed: RunFeed) -> list[int]:
    """Read to the end."""
    return [told.seen.revision async for told in feed.news() if told is not None]


async def test_all_who_watch_are_told_the_same_bytes_of_one_look(run: Run, feeds: RunFeeds) -> None:
    with feeds.reading("r") as feed, feeds.reading("r") as same:
        assert feed is same
        async with aclosing(feed.news()) as one, aclosing(feed.news()) as other:
            first, second = await anext(one), await anext(other)

        assert first is second
        assert first is not None
        assert run.looks == 1
        kind, ident, data = first.data.decode().rstrip("\n").split("\n")
        assert (kind, ident) == ("event: run", "id: 1")
        assert json.loads(data.removeprefix("data: "))["state"] == "running"


async def test_who_is_slow_is_told_the_newest_and_always_the_last(
    run: Run, feeds: RunFeeds
) -> None:
    with feeds.reading("r") as feed:
        quick = asyncio.ensure_future(revisions(feed))
        async with aclosing(feed.news()) as news:
            assert await anext(news)
            for revision in (2, 3, 4):
                run.revision = revision
                feeds.wake("r")
                while feed.latest is None or feed.latest.seen.revision != revision:
                    await asyncio.sleep(0)
            run.over = True
            feeds.wake("r")
            while not feed.done:
                await asyncio.sleep(0)

            slow = [told.seen async for told in news if told is not None]

        assert [(seen.revision, seen.over) for seen in slow] == [(4, True)]
        assert (await quick)[-1] == 4


async def test_a_change_during_a_look_is_looked_at_again(run: Run, feeds: RunFeeds) -> None:
    with feeds.reading("r") as feed:
        reading = asyncio.ensure_future(revisions(feed))
        while not run.looks:
            await asyncio.sleep(0)
        run.revision, run.over = 2, True  # the look that runs has not seen it, or has
        feeds.wake("r")

        assert (await reading)[-1] == 2


@pytest.mark.parametrize("failure", [NotFound("no run"), OSError("the store hangs")])
async def test_what_keeps_it_from_looking_is_told_to_all_and_who_comes_later_begins_anew(
    run: Run, feeds: RunFeeds, failure: Exception
) -> None:
    run.failure = failure
    with feeds.reading("r") as feed, feeds.reading("r"):
        for reading in [asyncio.ensure_future(revisions(feed)) for _ in range(2)]:
            with pytest.raises(type(failure), match=str(failure)):
                await reading
        run.failure, run.over = None, True
        with feeds.reading("r") as again:
            assert again is not feed
            assert await revisions(again) == [1]


async def test_a_bug_of_a_look_ends_that_feed_alone_and_is_logged(
    run: Run, feeds: RunFeeds, caplog: pytest.LogCaptureFixture
) -> None:
    run.failure = KeyError("bug")
    with feeds.reading("r") as feed:
        with pytest.raises(KeyError):
            await revisions(feed)
        assert "run r can't be watched" in caplog.text
        run.failure, run.over = None, True
        with feeds.reading("other") as other:
            assert await revisions(other) == [1]


async def test_a_quiet_run_beats_and_nobody_looks_once_nobody_watches(
    run: Run, feeds: RunFeeds
) -> None:
    feeds.beat_s = 0.001
    with feeds.reading("r") as feed:
        async with aclosing(feed.news()) as news:
            assert await anext(news) is not None
            assert await anext(news) is None
        task = feeds._feeds["r"][1]
    await asyncio.wait([task])

    assert task.cancelled()
    assert feeds._feeds == {}


async def test_the_end_of_the_service_is_told(run: Run) -> None:
    async with asyncio.timeout(30):
        async with RunFeeds(run.look) as feeds:
            with feeds.reading("r") as feed:
                reading = asyncio.ensure_future(revisions(feed))
                while feed.latest is None:
                    await asyncio.sleep(0)
                # Left before its readers, as a session that ends is
                await feeds.__aexit__(None, None, None)

                with pytest.raises(BackendUnavailable, match="stops"):
                    await reading
