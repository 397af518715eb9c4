"""Following a run from a terminal, and what Ctrl-C does meanwhile.

Of a run of this process the first Ctrl-C cancels it and waits for its workers to end, the second has them killed, the third leaves at once.
SIGTERM and SIGHUP (the terminal was closed) count as Ctrl-C: a foreground run ends its own workers, however it is asked to go. A run that a
server follows goes on without whoever looks on: there the first one leaves.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from simrun.backends.base import Followed
from simrun.base.errors import SimrunError
from simrun.cli.display import Display
from simrun.cli.view import RunView
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission

KILL_WAIT_S = 10.0
"""What killed workers are given to be seen dead; processes in the kernel's uninterruptible sleep take no signal."""
AWAY_WAIT_S = 15.0
"""How long an interrupted run waits for a backend that is out of sight to hear that its workers are to end."""
TICK_S = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Session(Protocol):
    """What follows a run here needs of whoever runs it."""

    @property
    def detaches(self) -> bool:
        """Whether the run goes on when this session is left, so that Ctrl-C leaves it and cancels nothing."""
        ...

    def updates(self, run_id: str) -> AsyncIterator[RunView]:
        """Yield the run as it is now and at each change, until it has ended."""
        ...

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        """End the run: with its workers' grace, or with `kill` at once."""
        ...

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of the run."""
        ...


class RunSession(Session, Protocol):
    """A session that takes a run."""

    async def submit(self, submission: Submission, base: Path, run_id: str | None) -> str:
        """Make the run exist, start it, and give its id; `base` is the directory of the workflow file."""
        ...


S = TypeVar("S", bound=Session)

OpenSession = Callable[[Display], AbstractAsyncContextManager[S]]
"""Opens a session; what that waits for is told on the display."""
Begin = Callable[[S], Awaitable[str]]
"""Makes a run, or finds one, and gives its id."""


class Left(Exception):  # noqa: N818 - no error: the user went away
    """Raised when the user would not wait any longer. `run_id` is None when no run was begun.

    `session` is the one that was left, where it is one that goes on.
    """

    def __init__(self, run_id: str | None, session: Session | None = None) -> None:
        self.run_id, self.session = run_id, session
        super().__init__(run_id)


class Interrupts:
    """Counts the signals that ask to end, and cancels the task that it was made in when there were `patience` of them."""

    def __init__(self, patience: int) -> None:
        self.count = 0
        self.patience = patience
        self._task = asyncio.current_task()
        self._arrived = asyncio.Event()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the signals over for as long as this lasts; not those that nohup or a shell has this process ignore."""
        loop = asyncio.get_running_loop()
        numbers = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in numbers:
            loop.add_signal_handler(number, self.press)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    @property
    def over(self) -> bool:
        """Whether there were as many as the user has patience."""
        return self.count >= self.patience

    def press(self) -> None:
        """Count one."""
        self.count += 1
        self._arrived.set()
        if self.over:
            self.leave()

    def leave(self) -> None:
        """Give up waiting."""
        self.count = max(self.count, self.patience)
        if self._task is not None:
            self._task.cancel()

    async def pressed(self, times: int) -> None:
        """Wait until there were `times` of them."""
        while self.count < times:
            self._arrived.clear()
            await self._arrived.wait()


async def follow(
    open_session: OpenSession[S],
    begin: Begin[S],
    display: Display,
    *,
    kill_wait_s: float = KILL_WAIT_S,
    away_wait_s: float = AWAY_WAIT_S,
) -> RunRecord:
    """Begin a run, show it until it has ended, and give its last record. Raises Left, SimrunError."""
    interrupts = Interrupts(patience=1)
    begun: str | None = None
    left: Session | None = None
    record: RunRecord | None = None
    with interrupts.installed():
        try:
            async with asyncio.TaskGroup() as group:
                async with open_session(display) as session:
                    if session.detaches:
                        left = session
                        begun = await begin(session)
                        await _watch(session, begun, display)
                        return await session.record(begun)
                    # From here on a run may exist: the first Ctrl-C cancels it, as soon as its id is known
                    interrupts.patience = 3
                    begun = await begin(session)
                    ending = group.create_task(
                        _end_on_interrupt(
                            session, begun, interrupts, display, (kill_wait_s, away_wait_s)
                        )
                    )
                    await _watch(session, begun, display)
                    record = await session.record(begun)
                    if interrupts.count == 0:  # the run is over, nothing is left to cancel
                        ending.cancel()
                        interrupts.patience = 1
                # Leaving the session waited for the workers, with an ear for the second Ctrl-C
                ending.cancel()
            return record
        except asyncio.CancelledError:
            if not interrupts.over:
                raise
            if record is not None:
                return record
            raise Left(begun, left) from None
        except BaseExceptionGroup as group:
            raise _single(group) from None


async def _watch(session: Session, run_id: str, display: Display) -> None:
    """Show the run until it has ended."""
    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(_tick(display))
        async for view in session.updates(run_id):
            display.show(view)
        ticking.cancel()


async def _tick(display: Display) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        display.tick()


async def _end_on_interrupt(
    session: Session,
    run_id: str,
    interrupts: Interrupts,
    display: Display,
    waits_s: tuple[float, float],
) -> None:
    kill_wait_s, away_wait_s = waits_s
    await interrupts.pressed(1)
    display.notice(f"cancelling run {run_id} and waiting for its workers; Ctrl-C again kills them")
    async with asyncio.TaskGroup() as group:
        group.create_task(_cancel(session, run_id, display, kill=False))
        if isinstance(session, Followed):
            group.create_task(
                _leave_what_is_away(session, run_id, interrupts, display, away_wait_s)
            )
        await interrupts.pressed(2)
        display.notice(f"killing the workers of run {run_id}; Ctrl-C again leaves at once")
        group.create_task(_cancel(session, run_id, display, kill=True))
        await asyncio.sleep(kill_wait_s)
        interrupts.leave()


async def _leave_what_is_away(
    session: Followed, run_id: str, interrupts: Interrupts, display: Display, away_wait_s: float
) -> None:
    """Leave when nobody can be told to end the workers: that is pending in the record, and done by whoever opens the store next."""
    clock = asyncio.get_running_loop().time
    since = clock()
    while clock() - since < away_wait_s:
        await asyncio.sleep(TICK_S)
        if not session.trouble():
            since = clock()
    reason = next(iter(session.trouble()), "it does not answer")
    display.notice(
        f"leaving run {run_id}, whose workers may go on: {reason}; the next simrun over this store ends them"
    )
    interrupts.leave()


async def _cancel(session: Session, run_id: str, display: Display, *, kill: bool) -> None:
    try:
        await session.cancel(run_id, kill=kill)
    except SimrunError as error:
        display.notice(f"error: run {run_id} could not be cancelled: {error}")


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give what a group of tasks failed with, without the group where it was one thing."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
