"""Lives of a scheduler as processes of their own over a real run store, which end by themselves or by kill -9.

    python -m tests.scenario.scheduling      reads orders, a JSON object a line, and says how each life ended

It forks each life, so that a life costs no imports. Time in a life is moved by hand, from one instant to the next: a day takes a moment.
What a life came to is written to the file that its order names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from simrun.aio.threads import Pool
from simrun.model.launchplan import instant_of, instant_text
from simrun.model.record import RunState
from simrun.model.workflow import Submission
from simrun.scheduler.scheduler import Scheduler, SchedulerSettings
from simrun.service.attachments import Attachment
from simrun.service.schedules import Schedules
from simrun.service.submission import create_run, new_record
from simrun.store.runs import RunStore
from tests.scheduler.world import Time

P = ParamSpec("P")
T = TypeVar("T")

SETTINGS = SchedulerSettings(rate=float("inf"), longest_sleep_s=float("inf"))


@dataclass(frozen=True)
class Order:
    """What a life is to be.

    kill_after: kill -9 right after so many runs were made. A snapshot is written at the end of a life, and after `save_every` runs.
    """

    store: str
    begin: str
    until: str
    result: str
    kill_after: int | None = None
    save_every: int | None = None


class Lives:
    """Makes runs exist as a session does; nothing runs them."""

    def __init__(self, order: Order, pool: Pool, clock: Time) -> None:
        self.store = RunStore(Path(order.store))
        self._order, self._pool, self._clock = order, pool, clock
        self.made = 0

    async def in_pool(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._pool.run(fn, *args, **kwargs)

    async def submit(
        self, submission: Submission, attachments: Sequence[Attachment], run_id: str
    ) -> str:
        record = new_record(submission, run_id, self._clock.wall())
        await self._pool.run(create_run, self.store, record, submission, list(attachments))
        self.made += 1
        if self.made == self._order.kill_after:
            now = instant_text(instant_of(self._clock.wall()))
            Path(f"{self._order.result}.clock").write_text(now)
            os.kill(os.getpid(), signal.SIGKILL)
        return run_id

    async def cancel(self, run_id: str) -> None:
        record = self.store.read(run_id)
        self.store.write_if_unchanged(record, record.changed(state=RunState.CANCELLED))


async def live(order: Order) -> dict[str, Any]:
    """Be a scheduler from one time to another; what it came to."""
    clock = Time(order.begin)
    pool = Pool("files", 4)
    session = Lives(order, pool, clock)
    session.store.open()
    scheduler = Schedules(session, pool, clock, SETTINGS).scheduler  # type: ignore[arg-type]  # as much of one as is needed
    await scheduler.start()
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(scheduler.work()) for _ in range(4)]
        await _until(scheduler, clock, session, order)
        await scheduler.save()
        for worker in workers:
            worker.cancel()
    numbers = scheduler.statistics
    states = {key: scheduler.state(key) for key in list(scheduler._lanes.by_key)}
    return {
        "created": numbers.created,
        "exists": numbers.exists,
        "failed": numbers.failed,
        "failed_tries": numbers.failed_tries,
        "lost": numbers.lost,
        "trouble": {key: state.plan.trouble for key, state in states.items() if state},
        "failures": [
            json.loads(failure.model_dump_json())
            for state in states.values()
            if state
            for failure in state.history.failures
        ],
    }


async def _until(scheduler: Scheduler, clock: Time, session: Lives, order: Order) -> None:
    end, saved = datetime.fromisoformat(order.until).timestamp(), 0
    while True:
        await scheduler.tick()
        await scheduler.drain()
        if order.save_every and session.made - saved >= order.save_every:
            saved = session.made
            await scheduler.save()
        left = end - clock.wall()
        if left <= 0:
            return
        clock.advance(min(max(scheduler.sleep_s(), 1e-6), left))


def _child(order: Order) -> None:
    logging.disable(logging.CRITICAL)
    result = asyncio.run(live(order))
    Path(order.result).write_text(json.dumps(result))


def _fork(order: Order) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _child(order)
        code = 0
    except BaseException:  # noqa: BLE001 - the parent hears of it by the code, people by the text
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Read orders and fork lives: those of one line at once."""
    print("ready", flush=True)
    for line in sys.stdin:
        pids = [_fork(Order(**order)) for order in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


class Host:
    """The process that forks lives, from the point of view of a test."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.scenario.scheduling"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, self._log.read_text()[-3000:]
        return line

    def live(self, *orders: Order) -> list[dict[str, Any]]:
        """Let lives be lived at once, each to its end; what each came to, {} for one that was killed."""
        assert self._process.stdin is not None
        for order in orders:
            Path(order.result).unlink(missing_ok=True)
        self._process.stdin.write(json.dumps([asdict(order) for order in orders]) + "\n")
        self._process.stdin.flush()
        codes = json.loads(self._read())
        assert all(code in (0, -signal.SIGKILL) for code in codes), self._log.read_text()[-3000:]
        return [_result(order) for order in orders]

    def close(self) -> None:
        self._process.communicate(timeout=30)


def _result(order: Order) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(Path(order.result).read_text())
        return found
    return {}


@contextlib.contextmanager
def hosted(log: Path) -> Iterator[Host]:
    """Have a host for as long as this lasts."""
    host = Host(log)
    try:
        yield host
    finally:
        host.close()


if __name__ == "__main__":
    main()
