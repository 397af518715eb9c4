"""Bell: who waits is woken by a ring or a beat, and rings in quick succession are one."""

from __future__ import annotations

import asyncio

from simrun.aio.bell import Bell


async def waiting(bell: Bell, count: int) -> list[asyncio.Task[None]]:
    """Let so many wait."""
    tasks = [asyncio.ensure_future(bell.wait()) for _ in range(count)]
    while bell.statistics.waiting < count:
        await asyncio.sleep(0)
    return tasks


async def test_all_who_wait_are_woken_by_one_ring() -> None:
    bell = Bell()
    tasks = await waiting(bell, 3)

    bell.ring()
    await asyncio.gather(*tasks)

    assert (bell.statistics.waiting, bell.statistics.rings) == (0, 1)


async def test_who_is_not_rung_is_woken_by_the_beat() -> None:
    bell = Bell(beat_s=0.001)

    await asyncio.gather(*await waiting(bell, 2))

    assert bell.statistics.rings == 1


async def test_rings_in_quick_succession_are_drawn_together_and_the_last_is_not_lost() -> None:
    bell = Bell(every_s=0.05)
    first = await waiting(bell, 1)
    bell.ring()
    await asyncio.gather(*first)
    second = await waiting(bell, 1)

    for _ in range(5):
        bell.ring()
    assert bell.statistics.rings == 1
    await asyncio.gather(*second)

    assert bell.statistics.rings == 2


async def test_nobody_waits_and_nothing_is_left_behind() -> None:
    bell = Bell(every_s=60.0, beat_s=60.0)
    bell.ring()
    assert bell.statistics.rings == 0
    (task,) = await waiting(bell, 1)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert bell.statistics.waiting == 0
    assert bell._beat is None


async def test_a_wait_that_is_cancelled_takes_no_ring_from_the_others() -> None:
    bell = Bell()
    gone, stays = await waiting(bell, 2)
    gone.cancel()
    bell.ring()

    await stays

    assert gone.cancelled() or gone.cancelling()
    await asyncio.gather(gone, return_exceptions=True)
