import asyncio
import contextvars
import logging
import threading

import pytest

from simrun.aio.threads import Pool, Saturated, in_thread


@pytest.fixture
def pool():
    pool = Pool("test", 1)
    yield pool
    pool.close()


@pytest.fixture
def gate():
    """An event that a thread waits for; set at the end, so that no thread outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


async def started(pool):
    while not pool.statistics.busy:
        await asyncio.sleep(0.001)


async def test_gives_the_result_and_raises_what_the_function_raised(pool):
    assert await in_thread(pool, divmod, 7, 2) == (3, 1)
    assert await in_thread(pool, int, "11", base=2) == 3
    assert await pool.run(int, "12", base=3) == 5
    with pytest.raises(ZeroDivisionError):
        await in_thread(pool, divmod, 7, 0)


async def test_runs_in_a_thread_of_the_pool(pool):
    name = await in_thread(pool, lambda: threading.current_thread().name)
    assert name.startswith("test")


async def test_context_variables_are_seen_in_the_thread(pool):
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")
    assert await in_thread(pool, variable.get) == "set"


async def test_a_cancelled_caller_waits_until_the_thread_has_ended(pool, gate):
    done = []

    def work():
        gate.wait()
        done.append("written")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(in_thread(pool, work))
        await started(pool)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert not task.done()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert done == ["written"]


async def test_a_timeout_ends_only_after_the_write(pool, gate):
    done = []

    def work():
        gate.wait()
        done.append("written")

    loop = asyncio.get_running_loop()

    async def let_it_time_out(limit):
        await started(pool)
        limit.reschedule(loop.time())
        loop.call_later(0.1, gate.set)

    async def write():
        async with asyncio.timeout(None) as limit:
            timing = loop.create_task(let_it_time_out(limit))
            await in_thread(pool, work)
        await timing

    with pytest.raises(TimeoutError):
        await write()
    assert done == ["written"]


async def test_a_cancelled_call_that_no_thread_has_taken_never_runs(pool, gate):
    ran = []
    async with asyncio.TaskGroup() as group:
        group.create_task(in_thread(pool, gate.wait))
        await started(pool)
        waiting = group.create_task(in_thread(pool, ran.append, 1))
        await asyncio.sleep(0)
        assert pool.statistics.waiting == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
    await in_thread(pool, lambda: None)
    assert ran == []


async def test_an_error_after_the_cancellation_is_logged(pool, gate, caplog):
    def work():
        gate.wait()
        raise ValueError("the disk is full")

    async with asyncio.TaskGroup() as group:
        task = group.create_task(in_thread(pool, work))
        await started(pool)
        task.cancel()
        await asyncio.sleep(0)
        with caplog.at_level(logging.ERROR):
            gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert "the disk is full" in caplog.text


async def test_a_saturated_pool_says_so_instead_of_waiting(gate):
    pool = Pool("hung", 1, patience_s=0.02)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(in_thread(pool, gate.wait))
        await started(pool)
        assert pool.statistics.saturated
        with pytest.raises(Saturated, match="all 1 threads of hung"):
            await in_thread(pool, lambda: None)
        # The call that has a thread outlasts the patience: it can't be given up
        assert not first.done()
        gate.set()
        assert await first is True
    assert not pool.statistics.saturated
    pool.close()


def test_a_pool_without_threads_is_refused():
    with pytest.raises(ValueError, match="threads 0"):
        Pool("empty", 0)
