"""The queue of runs: against a model of it by a state machine, and its rules one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from simrun.service.queue import Priority, WorkQueue
from tests.service.world import FakeClock

KEYS = st.sampled_from(["a", "b", "c", "d"])
PRIORITIES = st.sampled_from(list(Priority))
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 4.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of a FakeClock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic()

    def settle(self) -> None:
        """Let everything run that can run now."""

        async def turns() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self.run_until_complete(turns())


@dataclass
class Model:
    """What the queue promises, said as simply as can be: lists that are searched."""

    lines: dict[Priority, list[str]] = field(default_factory=lambda: {p: [] for p in Priority})
    again: dict[str, Priority] = field(default_factory=dict)
    """Asked for while being processed."""
    processing: set[str] = field(default_factory=set)
    timers: list[tuple[float, str]] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    @property
    def ready(self) -> list[str]:
        return [key for priority in Priority for key in self.lines[priority]]

    def add(self, key: str, priority: Priority) -> None:
        if self.closed:
            return
        if key in self.processing:
            self.again[key] = min(priority, self.again.get(key, priority))
        elif key in self.lines[Priority.RESYNC] and priority is Priority.LIVE:
            self.lines[Priority.RESYNC].remove(key)
            self.lines[Priority.LIVE].append(key)
        elif key not in self.ready:
            self.lines[priority].append(key)

    def add_after(self, key: str, at: float) -> None:
        if not self.closed and all(at < other for other, name in self.timers if name == key):
            self.timers = [timer for timer in self.timers if timer[1] != key] + [(at, key)]

    def ring(self, now: float) -> None:
        for at, key in sorted(self.timers, key=lambda timer: timer[0]):
            if at <= now:
                self.timers.remove((at, key))
                self.add(key, Priority.LIVE)

    def take(self) -> str:
        key = self.ready[0]
        for line in self.lines.values():
            if key in line:
                line.remove(key)
        self.processing.add(key)
        return key

    def done(self, key: str) -> None:
        self.processing.discard(key)
        if (priority := self.again.pop(key, None)) is not None:
            self.lines[priority].append(key)


class QueueMachine(RuleBasedStateMachine):
    """Getters that wait, are cancelled, process and fail keys, while keys are added now and later."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.loop = VirtualLoop(self.clock)
        self.queue = WorkQueue(
            clock=self.clock, first_backoff_s=FIRST_BACKOFF_S, longest_backoff_s=LONGEST_BACKOFF_S
        )
        self.model = Model()
        self.getters: list[asyncio.Task[None]] = []
        self.handed: list[str] = []
        self.expected: list[str] = []

    def teardown(self) -> None:
        for getter in self.getters:
            getter.cancel()
        self.loop.settle()
        self.loop.close()

    async def _get(self) -> None:
        key = await self.queue.get()
        if key is not None:
            self.handed.append(key)

    def settle(self) -> None:
        """Let the getters run, and the model hand out as many keys as there are getters."""
        self.loop.settle()
        waiting = len(self.getters)
        if waiting:
            self.model.ring(self.clock.monotonic())
        for _ in range(min(waiting, len(self.model.ready))):
            self.expected.append(self.model.take())
            waiting -= 1
        self.getters = [getter for getter in self.getters if not getter.done()]
        assert len(self.getters) == (0 if self.model.closed else waiting)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.model.add(key, priority)
        self.settle()

    @rule(keys=st.lists(st.tuples(KEYS, PRIORITIES), max_size=6))
    def burst(self, keys: list[tuple[str, Priority]]) -> None:
        """Several adds before any getter runs: one event stands for them all."""
        for key, priority in keys:
            self.queue.add(key, priority)
            self.model.add(key, priority)
        self.settle()

    @rule(key=KEYS, delay=st.sampled_from([0.0, 0.5, 1.0, 2.5, 10.0]))
    def add_after(self, key: str, delay: float) -> None:
        self.queue.add_after(key, delay)
        if delay:
            self.model.add_after(key, self.clock.monotonic() + delay)
        else:
            self.model.add(key, Priority.LIVE)
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 60.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    @rule(seconds=st.sampled_from([-3600.0, 3600.0]))
    def step_the_wall_clock(self, seconds: float) -> None:
        self.clock.step(seconds)
        self.settle()

    @precondition(lambda self: len(self.getters) < 3)
    @rule()
    def start_a_getter(self) -> None:
        self.getters.append(self.loop.create_task(self._get()))
        self.settle()

    @precondition(lambda self: self.getters)
    @rule(which=st.integers(0, 2))
    def cancel_a_getter(self, which: int) -> None:
        self.getters.pop(which % len(self.getters)).cancel()
        self.settle()

    @precondition(lambda self: self.getters and not self.model.closed)
    @rule(which=st.integers(0, 2), key=KEYS, priority=PRIORITIES)
    def cancel_a_getter_that_was_just_woken(self, which: int, key: str, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.model.add(key, priority)
        self.getters.pop(which % len(self.getters)).cancel()
        self.settle()

    @precondition(lambda self: self.getters and not self.model.closed)
    @rule(which=st.integers(0, 2), key=KEYS, priority=PRIORITIES)
    def cancel_a_getter_that_is_to_be_woken(self, which: int, key: str, priority: Priority) -> None:
        self.getters.pop(which % len(self.getters)).cancel()
        self.queue.add(key, priority)
        self.model.add(key, priority)
        self.settle()

    @precondition(lambda self: self.model.processing)
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.processing)))
        if failed:
            failures = self.model.failures.get(key, 0)
            delay = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2**failures)
            self.model.failures[key] = failures + 1
            assert self.queue.retry(key) == delay
            self.model.add_after(key, self.clock.monotonic() + delay)
        else:
            self.model.failures.pop(key, None)
            self.queue.forget(key)
        self.queue.done(key)
        self.model.done(key)
        self.settle()

    @precondition(lambda self: not self.model.closed)
    @rule()
    def close(self) -> None:
        self.queue.close()
        self.model.closed = True
        self.model.timers = []
        self.settle()

    @invariant()
    def keys_are_handed_out_in_the_order_of_the_model(self) -> None:
        assert self.handed == self.expected

    @invariant()
    def a_key_is_queued_or_processed_and_never_both(self) -> None:
        assert not set(self.model.ready) & self.model.processing
        seen = self.queue.statistics()
        assert (seen.ready, seen.delayed, seen.processing) == (
            len(self.model.ready),
            len(self.model.timers),
            len(self.model.processing),
        )


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- the rules by name ---------------------------------------------------------------------------------------------------


def run_virtually(scenario: Callable[[WorkQueue, FakeClock, VirtualLoop], None]) -> None:
    clock = FakeClock()
    loop = VirtualLoop(clock)
    try:
        scenario(WorkQueue(clock=clock), clock, loop)
    finally:
        loop.settle()
        loop.close()


def take(queue: WorkQueue, loop: VirtualLoop) -> str | None:
    return loop.run_until_complete(queue.get())


def test_many_adds_of_a_key_are_one_pass() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        for _ in range(5):
            queue.add("a")
        assert take(queue, loop) == "a"
        queue.done("a")
        assert queue.statistics().ready == 0

    run_virtually(scenario)


def test_a_key_added_while_it_is_processed_is_handed_out_once_more_and_not_at_once() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        queue.add("a")
        assert take(queue, loop) == "a"
        queue.add("a")
        queue.add("b")
        assert take(queue, loop) == "b"
        assert queue.statistics().ready == 0
        queue.done("a")
        assert take(queue, loop) == "a"

    run_virtually(scenario)


def test_a_live_event_overtakes_a_resync_and_raises_a_key_that_waits_there() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        for key in "abc":
            queue.add(key, Priority.RESYNC)
        queue.add("c")
        queue.add("d")
        queue.add("d", Priority.RESYNC)
        assert [take(queue, loop) for _ in range(4)] == ["c", "d", "a", "b"]

    run_virtually(scenario)


def test_of_two_timers_of_a_key_the_earlier_wins_and_the_other_is_silent() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        queue.add_after("a", 10)
        queue.add_after("a", 5)
        queue.add_after("a", 20)
        assert queue.statistics().delayed == 1
        clock.advance(5)
        assert take(queue, loop) == "a"
        queue.done("a")
        clock.advance(60)
        waiting = loop.create_task(queue.get())
        loop.settle()
        assert not waiting.done()
        waiting.cancel()

    run_virtually(scenario)


def test_a_waiting_getter_wakes_for_a_timer_that_was_set_after_it_began_to_wait() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        waiting = loop.create_task(queue.get())
        loop.settle()
        queue.add_after("late", 30)
        queue.add_after("soon", 3)
        loop.settle()
        clock.advance(3)
        loop.settle()
        assert waiting.result() == "soon"

    run_virtually(scenario)


def test_the_backoff_of_a_key_doubles_up_to_its_limit_and_starts_anew_when_forgotten() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        delays = [queue.retry("a") for _ in range(12)]
        assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
        assert delays[-1] == 60.0
        assert queue.retry("b") == 0.1
        queue.forget("a")
        assert queue.retry("a") == 0.1
        assert [queue.retry("c") for _ in range(5000)][-1] == 60.0

    run_virtually(scenario)


def test_a_cancelled_getter_passes_its_wake_up_on() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        first, second = loop.create_task(queue.get()), loop.create_task(queue.get())
        loop.settle()
        queue.add("a")
        first.cancel()
        loop.settle()
        assert first.cancelled()
        assert second.result() == "a"

    run_virtually(scenario)


def test_a_closed_queue_hands_out_what_is_ready_then_none_to_every_getter() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        queue.add("a")
        queue.add_after("b", 1)
        queue.close()
        queue.add("c")
        queue.add_after("d", 1)
        queue.retry("e")
        clock.advance(100)
        getters = [loop.create_task(queue.get()) for _ in range(3)]
        loop.settle()
        assert [getter.result() for getter in getters] == ["a", None, None]

    run_virtually(scenario)


def test_statistics_tell_how_long_the_oldest_key_has_waited() -> None:
    def scenario(queue: WorkQueue, clock: FakeClock, loop: VirtualLoop) -> None:
        assert queue.statistics().oldest_s == 0
        queue.add("a")
        clock.advance(2)
        queue.add("b")
        clock.advance(3)
        seen = queue.statistics()
        assert (seen.ready, seen.adds, seen.retries, seen.oldest_s) == (2, 2, 0, 5)
        assert take(queue, loop) == "a"
        assert queue.statistics().oldest_s == 3

    run_virtually(scenario)


async def test_every_event_leads_to_a_pass_that_starts_after_it() -> None:
    """No wake-up is lost between real workers: each pass sees at least the count that stood when its key was added."""
    queue = WorkQueue()
    events = dict.fromkeys("abcdefgh", 0)
    seen = dict(events)

    async def work() -> None:
        while (key := await queue.get()) is not None:
            started_with = events[key]
            await asyncio.sleep(0)
            seen[key] = started_with
            queue.done(key)

    async def produce(key: str) -> None:
        for _ in range(50):
            events[key] += 1
            queue.add(key, Priority.RESYNC if events[key] % 3 else Priority.LIVE)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as workers:
        for _ in range(3):
            workers.create_task(work())
        async with asyncio.TaskGroup() as producers:
            for key in events:
                producers.create_task(produce(key))
        queue.close()

    assert seen == events
