"""kill -9 of the service at every point where something lasting happens, and what is there after the next start.

crash_points.py says what a point is, crash_runs.py what goes on meanwhile, crash_ends.py what is looked at afterwards.

    python -m tests.scenario.crashing SCENARIO             all points; JSON that names those at which something went wrong
    python -m tests.scenario.crashing SCENARIO --list      the points of an undisturbed run, in their order
    python -m tests.scenario.crashing SCENARIO --at POINT  one of them

The host forks a cell per point, which has everything imported; the cell forks the driver that is to die, then the one that brings
everything to its end, and adopts whatever they leave, so it knows when nothing runs any more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.scenario.crash_ends import differences, summary
from tests.scenario.crash_points import Points, instrument, points_of
from tests.scenario.crash_runs import SCENARIOS, Place, Scenario, drive

_SECONDS = 60.0


# --- one process that drives the service -----------------------------------------------------------------------------------


def driver(scenario: Scenario, place: Place, trace: Path, die_at: str | None, begins: str) -> None:
    """Run the service with its client to the end of the scenario, or to the point where it dies."""
    points = Points(place.root, trace, die_at, begins)
    instrument(points)
    asyncio.run(asyncio.wait_for(drive(scenario, place, points.reached), _SECONDS))


def forked(work: Callable[[], None], log: Path) -> int:
    """Do something in a fork of this process; how it ended, as os.waitstatus_to_exitcode says it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent hears of it by the code, people by the log
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    while True:
        ended, status = os.waitpid(-1, 0)  # orphans that were given to us are reaped meanwhile
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


# --- one point -----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of a cell whose processes died at `deaths`, one after the other, and of the last one, which lived."""

    deaths: list[str]
    reached: bool = False
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    traces: list[list[tuple[float, str]]] = field(default_factory=list)
    """What each process went through, with times."""
    summary: dict[str, Any] = field(default_factory=dict)


def cell(scenario: Scenario, place: Place, deaths: list[str]) -> Outcome:
    """Die at a point, start again (and die at another), start again, and look at what is there."""
    _become_subreaper()
    began = time.monotonic()
    outcome = Outcome(deaths)
    log = place.root / "driver.log"
    codes = []
    for number, die_at in enumerate([*deaths, None]):
        trace = place.root / f"trace{number}"
        begins = "start" if number else scenario.begins
        life = partial(driver, scenario, place, trace, die_at, begins)
        codes.append(forked(life, log))
        outcome.traces.append(_read_trace(trace))
    outcome.reached = all(code == -signal.SIGKILL for code in codes[:-1])
    if not outcome.reached:
        outcome.problems.append(f"a point was not reached: {codes}\n{log.read_text()[-6000:]}")
    elif codes[-1] != 0:
        outcome.problems.append(f"the last start did not end well\n{log.read_text()[-6000:]}")
    else:
        if left := _left_over():
            outcome.problems.append(f"still running: {left}")
        outcome.summary = summary(scenario, place)
    outcome.seconds = time.monotonic() - began
    return outcome


def _become_subreaper() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def _left_over() -> list[str]:
    """Wait until everything that was started has ended; what has not after some seconds, which is killed then."""
    end = time.monotonic() + 20
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return []
        if pid:
            continue
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    left = []
    while True:
        for pid in _children():
            with contextlib.suppress(OSError):
                left.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip())
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return left


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _read_trace(path: Path) -> list[tuple[float, str]]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [(float(at), name) for at, _, name in (line.partition(" ") for line in lines)]


# --- all points ----------------------------------------------------------------------------------------------------------


class Host:
    """Runs cells, some at a time, each in a directory of its own below `top`."""

    def __init__(self, scenario: Scenario, top: Path, jobs: int) -> None:
        self._scenario, self._top, self._jobs = scenario, top, jobs
        self._running: dict[int, tuple[list[str], Path]] = {}
        self._prepared: Path | None = None

    def prepare(self) -> None:
        """Make what the scenario starts from, once."""
        if self._scenario.prepared_by is None:
            return
        before = SCENARIOS[self._scenario.prepared_by]
        self._prepared = self._top / "prepared"
        outcome = Host(before, self._top / "before", 1).one([], self._prepared)
        assert not outcome.problems, outcome.problems

    def one(self, deaths: list[str], keep: Path | None = None) -> Outcome:
        """Run one cell alone."""
        (outcome,) = self.many([deaths], keep)
        return outcome

    def many(self, todo: Iterable[list[str]], keep: Path | None = None) -> Iterator[Outcome]:
        """Run a cell for each list of points to die at; outcomes come as they end."""
        waiting = iter(todo)
        exhausted = False
        while True:
            while not exhausted and len(self._running) < self._jobs:
                try:
                    self._start(next(waiting))
                except StopIteration:
                    exhausted = True
            if not self._running:
                return
            pid, status = os.wait()
            if pid not in self._running:
                continue
            deaths, root = self._running.pop(pid)
            result = root / "outcome.json"
            if status == 0 and result.exists():
                outcome = Outcome(**json.loads(result.read_text()))
            else:
                log = (root / "cell.log").read_text()
                outcome = Outcome(deaths, problems=[f"the cell failed: {status}\n{log}"])
            if keep is not None:
                _copy_tree(root, keep)
            shutil.rmtree(root, ignore_errors=True)
            yield outcome

    def _start(self, deaths: list[str]) -> None:
        self._top.mkdir(exist_ok=True)
        place = Place(Path(tempfile.mkdtemp(dir=self._top)))
        if self._prepared is not None:
            for name in ("store", "outside"):
                _copy_tree(self._prepared / name, place.root / name)
        place.outside.mkdir(exist_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fd = os.open(place.root / "cell.log", os.O_WRONLY | os.O_CREAT, 0o644)
                os.dup2(fd, 2)
                outcome = cell(self._scenario, place, deaths)
                (place.root / "outcome.json").write_text(json.dumps(outcome.__dict__))
                code = 0
            except BaseException:  # noqa: BLE001 - told by the log
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        self._running[pid] = (deaths, place.root)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, copy_function=_copy_linked())


def _copy_linked() -> Callable[[str, str], None]:
    """Copy files so that names that stand for one file do so in the copy too: claims are links of tokens."""
    copied: dict[tuple[int, int], str] = {}

    def copy(source: str, target: str) -> None:
        status = os.stat(source)
        key = (status.st_dev, status.st_ino)
        if key in copied:
            os.link(copied[key], target)
        else:
            shutil.copy2(source, target)
            copied[key] = target

    return copy


def enumerate_points(scenario: Scenario, top: Path, jobs: int, lives: int) -> dict[str, Any]:
    """Die at every point of a scenario and, in two `lives`, at those that only a start after a crash comes to.

    Gives what came of it all.
    """
    began = time.monotonic()
    host = Host(scenario, top, jobs)
    host.prepare()
    calm = host.one([])
    if calm.problems:
        return {"scenario": scenario.name, "points": 0, "problems": {"none": calm.problems}}
    opening = scenario.begins == "start"
    todo = [[name] for name in points_of(calm.traces[0], opening=opening)]
    known = {name for (name,) in todo}
    problems: dict[str, list[str]] = {}
    tries: Counter[str] = Counter()
    missed = []
    while todo:
        later: list[list[str]] = []
        for outcome in host.many(todo):
            text = ", then ".join(outcome.deaths)
            for number, trace in enumerate(outcome.traces):
                # Of a second life only what no first one came to; a third would bring nothing new
                found = points_of(trace, opening=opening) if number < lives else []
                new = [name for name in dict.fromkeys(found) if name not in known]
                known.update(new)
                later += [[*outcome.deaths[:number], name] for name in new]
            if not outcome.reached:
                tries[text] += 1
                # What one disturbed run came to by chance, another need not come to
                if tries[text] < (_TRIES if len(outcome.deaths) == 1 else 1):
                    later.append(outcome.deaths)
                else:
                    missed.append(text)
            elif found_here := outcome.problems or differences(calm.summary, outcome.summary):
                problems[text] = found_here
        todo = later
        if len(known) > _MOST:
            raise RuntimeError(f"names of points differ from run to run: {sorted(known)}")
    return {
        "scenario": scenario.name,
        "points": len(known),
        "missed": missed,
        "problems": problems,
        "seconds": round(time.monotonic() - began, 1),
    }


_MOST = 400
_TRIES = 3
"""Whether two changes are written as one depends on time: a point that a run did not come to is tried again."""


@contextlib.contextmanager
def working_directory() -> Iterator[Path]:
    """Give a directory in memory: what survives a kill is the kernel's business, not the disk's."""
    memory = Path("/dev/shm")
    where = tempfile.mkdtemp(prefix="simrun-crash-", dir=memory if memory.is_dir() else None)
    try:
        yield Path(where)
    finally:
        shutil.rmtree(where, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--list", action="store_true", help="list the points of an undisturbed run")
    parser.add_argument(
        "--at", action="append", default=[], help="die there only; again: then there"
    )
    parser.add_argument("--lives", type=int, default=2, help="1: not again in the start after it")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    scenario = SCENARIOS[options.scenario]
    with working_directory() as top:
        if not options.list and not options.at:
            print(json.dumps(enumerate_points(scenario, top, options.jobs, options.lives)))
            return
        host = Host(scenario, top, 1)
        host.prepare()
        outcome = host.one(options.at)
        for trace in outcome.traces:
            chosen = points_of(trace, opening=scenario.begins == "start")
            for at, name in trace:
                print(f"{'*' if name in chosen else ' '} {at - trace[0][0]:8.3f} {name}")
        calm = host.one([]) if options.at else outcome
        print(json.dumps(outcome.summary, indent=1))
        print("\n".join([*outcome.problems, *differences(calm.summary, outcome.summary)]))


if __name__ == "__main__":
    main()
