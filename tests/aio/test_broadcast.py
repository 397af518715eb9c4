"""Broadcast: everybody is told, nobody holds up the others."""

from __future__ import annotations

import asyncio

from simrun.aio.broadcast import Broadcast


async def test_every_subscriber_is_given_what_is_published_while_it_takes_part() -> None:
    channel: Broadcast[int] = Broadcast()
    channel.publish(0)
    with channel.subscribe() as one, channel.subscribe() as other:
        channel.publish(1)
        channel.publish(2)

        assert [await one.next(), await one.next()] == [1, 2]
        assert await other.next() == 1
    assert len(channel) == 0


async def test_who_does_not_keep_up_is_told_and_the_others_miss_nothing() -> None:
    channel: Broadcast[int] = Broadcast(capacity=2)
    with channel.subscribe() as slow, channel.subscribe() as quick:
        seen = []
        for number in range(5):
            channel.publish(number)
            seen.append(await quick.next())

        assert seen == [0, 1, 2, 3, 4]
        assert slow.lagged
        assert not quick.lagged
        assert [await slow.next(), await slow.next()] == [0, 1]


async def test_waiting_ends_with_the_time_or_with_the_publisher() -> None:
    channel: Broadcast[int] = Broadcast()
    with channel.subscribe() as reader:
        assert await reader.next(0.01) is None
        channel.publish(7)
        channel.close()
        assert await reader.next() == 7
        assert await reader.next() is None
    with channel.subscribe() as late:
        assert await late.next() is None


async def test_a_cancelled_wait_loses_nothing() -> None:
    channel: Broadcast[int] = Broadcast()
    with channel.subscribe() as reader:
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        channel.publish(1)

        assert await reader.next() == 1
