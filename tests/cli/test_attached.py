"""Following a run from its terminal, with real signals. The local part of C61 of the trial cases."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from simrun.base.errors import BackendUnavailable, Conflict
from simrun.cli import attached
from simrun.cli.attached import SIGNALS, Left, follow
from simrun.cli.display import Display
from simrun.cli.view import RunView
from simrun.model.record import RunRecord, RunState, RunTimes


class Run:
    """A session with one run, whose steps wait for events that the tests set."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.opened = asyncio.Event()
        self.open_may_end = asyncio.Event()
        self.open_may_end.set()
        self.submitting = asyncio.Event()
        self.submit_may_end = asyncio.Event()
        self.submit_may_end.set()
        self.started = asyncio.Event()
        self.over = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.killed = asyncio.Event()
        self.state = RunState.RUNNING
        self.workers_end_on_cancel = True
        self.closing = asyncio.Event()
        self.close_may_end = asyncio.Event()
        self.close_may_end.set()
        self.cancel_error: Exception | None = None
        self.updates_error: Exception | None = None

    detaches = False

    @asynccontextmanager
    async def open(self, display: Display) -> AsyncIterator[Run]:
        self.opened.set()
        await self.open_may_end.wait()
        try:
            yield self
        finally:
            self.closing.set()
            await self.close_may_end.wait()
            self.did.append("closed")

    async def submit(self) -> str:
        self.submitting.set()
        await self.submit_may_end.wait()
        return "r1"

    async def updates(self, run_id: str) -> AsyncIterator[RunView]:
        yield RunView(run=run_id, state="running", tasks=())
        self.started.set()
        await self.over.wait()
        if self.updates_error:
            raise self.updates_error
        yield RunView(run=run_id, state=str(self.state), tasks=())

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        self.did.append(f"{'kill' if kill else 'cancel'} {run_id}")
        (self.killed if kill else self.cancelled).set()
        if self.cancel_error and not kill:
            raise self.cancel_error
        if kill or self.workers_end_on_cancel:
            self.state = RunState.CANCELLED
            self.over.set()

    async def record(self, run_id: str) -> RunRecord:
        return RunRecord(id=run_id, state=self.state, times=RunTimes(created=0))

    def end(self, state: RunState) -> None:
        self.state = state
        self.over.set()


class Shown:
    """A display that remembers."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.notices: list[str] = []

    def show(self, view: RunView) -> None:
        self.states.append(view.state)

    def tick(self) -> None:
        pass

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def close(self) -> None:
        pass


def press(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture
async def run() -> Run:
    return Run()


@pytest.fixture
def shown() -> Shown:
    return Shown()


async def following(run: Run, shown: Shown, kill_wait_s: float = 30) -> RunRecord:
    return await follow(run.open, Run.submit, shown, kill_wait_s=kill_wait_s)


async def test_a_run_is_shown_to_its_end_and_its_last_record_given(run: Run, shown: Shown) -> None:
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        run.end(RunState.SUCCEEDED)

    assert follower.result().state == "succeeded"
    assert shown.states == ["running", "succeeded"]
    assert run.did == ["closed"]


async def test_the_signals_are_given_back_afterwards(run: Run, shown: Shown) -> None:
    before = [signal.getsignal(number) for number in SIGNALS[1:]]
    run.end(RunState.FAILED)

    await following(run, shown)

    assert [signal.getsignal(number) for number in SIGNALS[1:]] == before


@pytest.mark.parametrize("number", SIGNALS)
async def test_c61_ctrl_c_cancels_the_run_waits_for_its_workers_and_is_a_cancelled_run(
    run: Run, shown: Shown, number: signal.Signals
) -> None:
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        press(number)

    assert follower.result().state == "cancelled"
    assert run.did == ["cancel r1", "closed"]
    assert "Ctrl-C again kills" in shown.notices[0]


async def test_c61_the_second_ctrl_c_kills(run: Run, shown: Shown) -> None:
    run.workers_end_on_cancel = False
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        press()
        await run.cancelled.wait()
        press()

    assert follower.result().state == "cancelled"
    assert run.did == ["cancel r1", "kill r1", "closed"]


async def test_the_second_ctrl_c_is_heard_while_leaving_waits_for_the_workers(
    run: Run, shown: Shown
) -> None:
    run.close_may_end.clear()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        press()
        await run.closing.wait()
        press()
        await run.killed.wait()
        run.close_may_end.set()

    assert follower.result().state == "cancelled"
    assert run.did == ["cancel r1", "kill r1", "closed"]


class Distant(Run):
    """A run on a cluster that may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.asked = asyncio.Event()

    def trouble(self) -> list[str]:
        self.asked.set()
        return ["pods can't be followed"] if self.away else []

    def age_s(self) -> float | None:
        return None


async def test_an_interrupted_run_is_left_when_its_cluster_does_not_answer(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "TICK_S", 0.01)
    run = Distant()
    run.workers_end_on_cancel = False
    run.away = True
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(follow(run.open, Run.submit, shown, away_wait_s=0.05)))
        await run.started.wait()
        press(signal.SIGTERM)

    assert isinstance(follower.result(), Left)
    assert run.did == ["cancel r1", "closed"]
    assert "the next simrun over this store ends them" in shown.notices[-1]


async def test_an_interrupted_run_waits_for_its_workers_while_its_cluster_answers(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "TICK_S", 0.01)
    run = Distant()
    run.workers_end_on_cancel = False
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(follow(run.open, Run.submit, shown, away_wait_s=0.05))
        await run.started.wait()
        press(signal.SIGTERM)
        for _ in range(12):
            run.asked.clear()
            await run.asked.wait()
        run.end(RunState.CANCELLED)

    assert follower.result().state == "cancelled"


async def test_killed_workers_that_do_not_go_are_not_waited_for_for_ever(
    run: Run, shown: Shown
) -> None:
    async def deaf(run_id: str, *, kill: bool = False) -> None:
        run.did.append(f"kill={kill}")
        run.cancelled.set()

    run.cancel = deaf  # type: ignore[method-assign]  # workers that nothing ends
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(following(run, shown, kill_wait_s=0.01)))
        await run.started.wait()
        press()
        await run.cancelled.wait()
        press()

    assert isinstance(follower.result(), Left)
    assert run.did == ["kill=False", "kill=True", "closed"]


async def test_the_third_ctrl_c_leaves_at_once(run: Run, shown: Shown) -> None:
    async def deaf(run_id: str, *, kill: bool = False) -> None:
        (run.killed if kill else run.cancelled).set()

    run.cancel = deaf  # type: ignore[method-assign]  # workers that nothing ends
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(following(run, shown)))
        await run.started.wait()
        press()
        await run.cancelled.wait()
        press()
        await run.killed.wait()
        press()

    left = follower.result()
    assert isinstance(left, Left)
    assert left.run_id == "r1"


async def test_ctrl_c_while_the_session_opens_leaves_with_nothing_submitted(
    run: Run, shown: Shown
) -> None:
    run.open_may_end.clear()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(following(run, shown)))
        await run.opened.wait()
        press()

    left = follower.result()
    assert isinstance(left, Left)
    assert left.run_id is None
    assert not run.submitting.is_set()


async def test_ctrl_c_during_the_submission_cancels_the_run_as_soon_as_it_exists(
    run: Run, shown: Shown
) -> None:
    run.submit_may_end.clear()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.submitting.wait()
        press()
        await asyncio.sleep(0)
        assert run.did == []
        run.submit_may_end.set()

    assert follower.result().state == "cancelled"
    assert run.did == ["cancel r1", "closed"]


async def test_ctrl_c_after_the_end_does_not_undo_the_end(run: Run, shown: Shown) -> None:
    run.close_may_end.clear()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        run.end(RunState.SUCCEEDED)
        await run.closing.wait()
        press()

    assert follower.result().state == "succeeded"
    assert "cancel r1" not in run.did


async def test_a_cancel_that_fails_is_told_and_the_run_followed_on(run: Run, shown: Shown) -> None:
    run.cancel_error = BackendUnavailable("the API server does not answer")
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(following(run, shown))
        await run.started.wait()
        press()
        await run.cancelled.wait()
        run.end(RunState.FAILED)

    assert follower.result().state == "failed"
    assert "the API server does not answer" in shown.notices[-1]


async def test_ctrl_c_leaves_a_run_that_goes_on_elsewhere(run: Run, shown: Shown) -> None:
    run.detaches = True
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(following(run, shown)))
        await run.started.wait()
        press()

    left = follower.result()
    assert isinstance(left, Left)
    assert (left.run_id, left.session) == ("r1", run)
    assert run.did == ["closed"]
    assert shown.notices == []


async def test_a_run_that_goes_on_elsewhere_is_followed_to_its_end(run: Run, shown: Shown) -> None:
    run.detaches = True
    run.end(RunState.FAILED)

    assert (await following(run, shown)).state == "failed"


async def test_ctrl_c_before_a_server_has_answered_leaves_too(run: Run, shown: Shown) -> None:
    run.detaches = True
    run.submit_may_end.clear()
    async with asyncio.TaskGroup() as group:
        follower = group.create_task(outcome(following(run, shown)))
        await run.submitting.wait()
        press()

    left = follower.result()
    assert isinstance(left, Left)
    assert (left.run_id, left.session) == (None, run)


async def test_a_signal_that_was_ignored_at_the_start_stays_ignored(run: Run, shown: Shown) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(following(run, shown))
            await run.started.wait()
            press(signal.SIGHUP)
            await asyncio.sleep(0)
            run.end(RunState.SUCCEEDED)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert follower.result().state == "succeeded"
    assert run.did == ["closed"]


async def test_what_goes_wrong_is_raised_as_it_is(run: Run, shown: Shown) -> None:
    run.updates_error = Conflict("somebody else has the run")
    run.over.set()

    with pytest.raises(Conflict, match="somebody else"):
        await following(run, shown)


async def outcome(follower: object) -> object:
    """Give what a coroutine gave, or the Left that it raised."""
    try:
        return await follower  # type: ignore[misc]  # a coroutine
    except Left as left:
        return left
