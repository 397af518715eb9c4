"""Who or what ended an attempt, and what follows from it for the run: kills by the kernel and by others, on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simrun.backends.local import groups
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.model.record import RunRecord, RunState
from simrun.model.report import AttemptEvidence, Observation
from simrun.service.opening import open_session
from simrun.service.session import Session
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore
from simrun.worker import cgroup
from tests.scenario.campaign import harness_pids
from tests.scenario.crash_runs import submission

pytestmark = pytest.mark.timeout(120)

MIB = 2**20
FIRST, RETRY = 48 * MIB, 160 * MIB
MEMORY = {"resources": {"cpu": 0.1, "memory": "48Mi", "retry_memory": "160Mi"}}
HOG = "tail /dev/zero"
"""Takes all memory it gets."""
RUN = f"evidence-{os.getpid()}"
GATE = "while [ ! -e $HOME/gate ]; do sleep 0.05; done"
FIRST_ATTEMPT = "[ $SIMRUN_ATTEMPT = 0 ]"


def has_cgroups() -> bool:
    """Whether limits are walls here, held by the kernel; else the whole tree of a polled attempt is killed."""
    return groups.find_parent(cgroup.find()) is not None


@dataclass
class Local:
    """The service in this process, over the engine of this machine."""

    session: Session
    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def store(self) -> RunStore:
        return self.session.store

    async def submit(self, command: str, *, harness: bool = False, **more: Any) -> None:
        """Submit a run of one task, bare or under the harness."""
        kind = {**MEMORY, "command": command, "harness": harness, "grace": 5}
        await self.session.submit(submission({"t": {"type": "t"}}, {"t": kind}, **more), [], RUN)

    async def ended(self) -> RunRecord:
        async for _ in self.session.updates(RUN):
            pass
        return await self.session.record(RUN)

    async def finish(self, command: str, **more: Any) -> RunRecord:
        await self.submit(command, **more)
        return await self.ended()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what other processes do, and nobody tells."""
        async with asyncio.timeout(40):
            while not holds():
                await asyncio.sleep(0.02)

    def attempts(self) -> list[AttemptEvidence]:
        return self.store.evidence(RUN, "t")

    def endings(self) -> list[tuple[str | None, int | None, int | None]]:
        return [(seen.reason, seen.exit_code, seen.memory) for seen in self.attempts()]

    def observations(self) -> dict[int, Observation]:
        found = ResourceStore(self.store.layout.root).of_type("t")
        return {seen.attempt: seen for seen in found}


@pytest.fixture
def enforce() -> str:
    """How limits are held; a test that is to see both ways says so."""
    return "auto"


@pytest.fixture
async def local(tmp_path: Path, enforce: str) -> AsyncIterator[Local]:
    (tmp_path / "home").mkdir()
    config = LocalConfig.for_store(tmp_path / "store", cpus=4, enforce=enforce)
    environ = {**os.environ, "HOME": str(tmp_path / "home")}
    backend = LocalBackend(config, end_attempts=True, environ=environ)
    async with open_session(config.store, lambda _store, _pool: backend) as session:
        yield Local(session, tmp_path)


# --- killed for memory -----------------------------------------------------------------------------------------------------


async def test_c25_a_kill_without_a_report_is_seen_by_the_supervisor_and_a_second_one_fails_the_run(
    local: Local,
) -> None:
    record = await local.finish(f"exec {HOG}")

    assert record.state is RunState.FAILED
    assert record.oom_kills == {"t": [0, 1]}
    assert "with the retry memory of 160 MiB (first attempt: 48 MiB)" in (record.message or "")
    assert local.endings() == [("oom", 137, FIRST), ("oom", 137, RETRY)]
    assert {n: (seen.oom, seen.peak_memory) for n, seen in local.observations().items()} == {
        0: (True, FIRST),
        1: (True, RETRY),
    }


@pytest.mark.parametrize("enforce", ["auto", "polled"])
async def test_killed_for_memory_then_evicted_the_harness_asks_and_gets_the_retry_memory_again(
    local: Local,
) -> None:
    # Attempt 0 is killed for memory, attempt 1 evicted; whoever starts attempt 2 knows of the eviction alone. In a cgroup
    # the harness lives to report the kill; polled, it is killed too, and the service's mark in memory/ is what is left
    await local.submit(f"if {FIRST_ATTEMPT}; then {HOG}; exit 9; fi; {GATE}", harness=True)
    await local.until(lambda: [seen.attempt for seen in local.attempts()] == [0, 1])
    await local.until(lambda: _program(local).exists() and bool(harness_pids(RUN, "t")))
    (harness,) = harness_pids(RUN, "t")
    os.kill(harness, signal.SIGTERM)
    await local.until(lambda: len(local.attempts()) == 4)
    (local.home / "gate").touch()
    record = await local.ended()

    assert record.state is RunState.SUCCEEDED
    assert local.endings() == [
        ("oom", 137, FIRST),
        ("evicted", 143, RETRY),
        ("asked", 137, FIRST),
        ("completed", 0, RETRY),
    ]
    assert (record.oom_kills, record.evictions) == ({"t": [0]}, {"t": 1})
    assert {n: seen.oom for n, seen in local.observations().items()} == {
        0: True,
        1: False,
        3: False,
    }


def _program(local: Local) -> Path:
    """The log of the second attempt: its program runs once there is one."""
    return local.store.layout.run(RUN).task("t").logs / "t-1.log"


async def test_killed_for_memory_then_evicted_a_bare_command_comes_to_the_retry_memory_by_a_second_kill(
    local: Local,
) -> None:
    # It cannot ask; but a second kill with the first memory is no reason to give up
    command = f"case $SIMRUN_ATTEMPT in 0|2) exec {HOG};; 1) kill -TERM $$;; esac"
    record = await local.finish(command)

    assert record.state is RunState.SUCCEEDED
    assert local.endings() == [
        ("oom", 137, FIRST),
        ("evicted", 143, RETRY),
        ("oom", 137, FIRST),
        ("completed", 0, RETRY),
    ]
    assert (record.oom_kills, record.evictions) == ({"t": [0, 2]}, {"t": 1})


async def test_a_kill_is_one_whatever_code_the_parent_of_what_was_killed_makes_of_it(
    local: Local,
) -> None:
    record = await local.finish(f"{FIRST_ATTEMPT} || exit 0; {HOG}; exit 7", harness=True)

    assert record.state is RunState.SUCCEEDED
    assert record.oom_kills == {"t": [0]}
    assert local.endings() == [("oom", 137, FIRST), ("completed", 0, RETRY)]


async def test_a_kill_in_an_attempt_that_is_then_evicted_is_a_kill(local: Local) -> None:
    # 143, but the counter rose: the memory was too little whoever sent SIGTERM afterwards
    record = await local.finish(f"{FIRST_ATTEMPT} || exit 0; {HOG}; kill -TERM $$")

    assert record.state is RunState.SUCCEEDED
    assert (record.oom_kills, record.evictions) == ({"t": [0]}, {})
    assert local.endings()[0] == ("oom", 137, FIRST)


@pytest.mark.parametrize("harness", [False, True])
async def test_an_exit_with_0_is_a_success_whatever_was_killed_below_it(
    local: Local, harness: bool
) -> None:
    record = await local.finish(f"{FIRST_ATTEMPT} && {HOG}; exit 0", harness=harness)

    assert record.state is RunState.SUCCEEDED
    # A kill below a bare command in a cgroup of version 2, and any polled one, takes the command too
    own = cgroup.find()
    alone = has_cgroups() and (harness or (own is not None and own.version == 1))
    assert record.oom_kills == ({} if alone else {"t": [0]})
    if alone:
        assert local.endings() == [("completed", 0, FIRST)]
    if alone and harness:
        (report,) = local.store.reports(RUN, "t").values()
        assert report.memory.oom_kills > 0
        assert "killed a process for memory" in report.message
        assert not local.observations()[0].oom


# --- not killed for memory ---------------------------------------------------------------------------------------------------


async def test_an_exit_with_137_and_a_peak_at_the_limit_are_no_kill_for_memory(
    local: Local,
) -> None:
    # The page cache fills the cgroup to its limit, and somebody sends SIGKILL
    fill = "dd if=/dev/zero of=$TMPDIR/big bs=1M count=96 2>&1; cat $TMPDIR/big > /dev/null"
    record = await local.finish(f"{FIRST_ATTEMPT} || exit 0; {fill}; kill -KILL $$")

    assert record.state is RunState.SUCCEEDED
    assert (record.oom_kills, record.evictions) == ({}, {"t": 1})
    assert local.endings()[0] == ("evicted", 137, FIRST)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_harness_that_somebody_ends_was_evicted_and_its_task_is_done_again(
    local: Local, number: signal.Signals
) -> None:
    await local.submit(f"{FIRST_ATTEMPT} && {GATE}; exit 0", harness=True)
    await local.until(lambda: bool(harness_pids(RUN, "t")) and bool(local.attempts()))
    log = local.store.layout.run(RUN).task("t").logs / "t-0.log"
    await local.until(log.exists)
    os.kill(harness_pids(RUN, "t")[0], number)
    record = await local.ended()

    assert record.state is RunState.SUCCEEDED
    assert (record.oom_kills, record.evictions) == ({}, {"t": 1})
    first, second = local.attempts()
    assert (first.reason, first.exit_code) == ("evicted", 128 + number)
    assert second.reason == "completed"


async def test_evictions_beyond_the_budget_of_the_run_fail_it_and_say_so(local: Local) -> None:
    record = await local.finish("kill -TERM $$", max_evictions=2)

    assert record.state is RunState.FAILED
    assert "evicted 3 times, more than max_evictions (2) allows" in (record.message or "")
    assert record.oom_kills == {}
    assert [seen.reason for seen in local.attempts()[:3]] == ["evicted"] * 3


async def test_an_ordinary_failure_is_not_tried_again_by_the_backend(local: Local) -> None:
    record = await local.finish("echo alas; exit 5")

    assert record.state is RunState.FAILED
    assert "exit code 5" in (record.message or "")
    assert local.endings() == [("error", 5, FIRST)]
    assert (record.oom_kills, record.evictions) == ({}, {})
