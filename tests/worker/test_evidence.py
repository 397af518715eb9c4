from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simrun.worker import environment, evidence
from simrun.worker.endings import MemoryAskedError, SimulationError
from simrun.worker.environment import Environment
from simrun.worker.heartbeat import Journal
from simrun.worker.protocol import GIB

FIRST, RETRY = GIB, 2 * GIB


class Past:
    """What earlier attempts of worker t-w1 left, and an attempt 5 that looks at it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def env(self, attempt: int = 5, **more: str) -> Environment:
        told = {
            "SIMRUN_RUN": "r",
            "SIMRUN_TASK": "t",
            "SIMRUN_WORKER": "t-w1",
            "SIMRUN_ATTEMPT": str(attempt),
            "SIMRUN_TASK_DIR": str(self.root),
            "SIMRUN_POD_UID": "me",
            "SIMRUN_MEMORY_PER_WORKER_GB": "1",
            "SIMRUN_RETRY_MEMORY_GB": "2",
            **more,
        }
        return environment.read({k: v for k, v in told.items() if v}, "worker")

    def put(self, place: str, name: str, data: Any) -> None:
        path = self.root / place / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())

    def report(
        self, name: str, exit_code: int = 137, kills: int = 1, memory: int = FIRST, **more: Any
    ) -> None:
        body = {"exit_code": exit_code, "reason": "oom", "pod_uid": "other", **more}
        self.put(
            "reports", f"{name}.json", {**body, "memory": {"oom_kills": kills, "limit": memory}}
        )

    def judge(self, memory: int | None = FIRST, **more: Any) -> None:
        env = self.env(**more)
        evidence.judge(env, evidence.gather(env), memory)


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def test_without_evidence_an_attempt_goes_on(past: Past) -> None:
    past.judge()


def test_a_reported_kill_makes_it_ask_unless_it_has_the_retry_memory(past: Past) -> None:
    past.report("t-w1-3")
    with pytest.raises(MemoryAskedError, match=r"attempt 3 was killed .* 1 GiB: asks .* 2 GiB"):
        past.judge()
    past.judge(RETRY)
    past.judge(RETRY - 1)  # decimal text is rounded


def test_without_a_retry_memory_nothing_is_asked_or_refused(past: Past) -> None:
    past.report("t-w1-3")
    past.report("t-w1-4", memory=RETRY)
    past.judge(SIMRUN_RETRY_MEMORY_GB="")


def test_who_does_not_know_its_memory_does_not_ask(past: Past) -> None:
    past.report("t-w1-3")
    past.judge(None)


@pytest.mark.parametrize(
    "report",
    [
        {"kills": 0},
        {"kills": 0, "reason": "asked"},
        {"exit_code": 143, "kills": 0},
        {"pod_uid": "me"},
    ],
)
def test_what_is_no_evidence(past: Past, report: dict[str, Any]) -> None:
    past.report("t-w1-3", **report)
    past.judge()


@pytest.mark.parametrize("name", ["t-w0-3", "t-w10-3", "t-w1-6", "x-t-w1-3"])
def test_other_workers_and_later_attempts_say_nothing(past: Past, name: str) -> None:
    past.report(name)
    past.judge()


def test_attempts_of_an_earlier_round_say_nothing(past: Past) -> None:
    past.report("t-w1-3")
    past.judge(attempt=1, SIMRUN_ATTEMPT_BASE="4")


def test_a_rise_that_was_got_over_before_an_eviction_makes_it_ask(past: Past) -> None:
    past.report("t-w1-3", exit_code=143)
    with pytest.raises(MemoryAskedError):
        past.judge()


def test_a_rise_in_a_heartbeat_makes_it_ask_but_is_no_kill(past: Past) -> None:
    for attempt, rise in ((2, 0), (3, 1), (4, 1)):
        journal = Journal(seq=1, unix=1.0, boottime=1.0, limit=RETRY, oom_kills=rise)
        past.put("heartbeats", f"t-w1-{attempt}.0123abcd", journal.encode())
    with pytest.raises(MemoryAskedError, match="attempt 3"):
        past.judge()
    past.judge(RETRY)  # two signs, but no kill: not refused


def test_a_torn_heartbeat_and_a_damaged_report_are_no_evidence(past: Past) -> None:
    past.put("heartbeats", "t-w1-3.0123abcd", b"torn")
    past.put("reports", "t-w1-3.json", b"{")
    os.mkfifo(past.root / "reports" / "t-w1-4.json")
    past.judge()


def test_its_own_heartbeat_says_nothing(past: Past) -> None:
    journal = Journal(seq=1, unix=1.0, boottime=1.0, oom_kills=1)
    past.put("heartbeats", "t-w1-5.me", journal.encode())
    past.judge()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"memory": 1073741824}'])
def test_what_the_service_stored_is_a_kill(past: Past, content: bytes) -> None:
    past.put("memory", "t-w1-3", content)
    with pytest.raises(MemoryAskedError):
        past.judge()


def test_a_second_kill_with_the_retry_memory_is_refused(past: Past) -> None:
    past.report("t-w1-1")
    past.report("t-w1-3", memory=RETRY)
    with pytest.raises(SimulationError, match=r"attempt 3 was killed .* after attempt 1; raise"):
        past.judge()
    with pytest.raises(SimulationError):
        past.judge(RETRY)


def test_a_first_kill_with_the_retry_memory_is_not_refused(past: Past) -> None:
    past.report("t-w1-3", memory=RETRY)
    past.judge(RETRY)


def test_a_second_kill_with_the_first_memory_asks_again(past: Past) -> None:
    past.report("t-w1-1")
    past.report("t-w1-3")
    with pytest.raises(MemoryAskedError):
        past.judge()


def test_the_memory_of_a_stored_kill_is_looked_up_in_attempts(past: Past) -> None:
    past.report("t-w1-1")
    past.put("memory", "t-w1-3", b"")
    past.judge(RETRY)  # nobody says what it had: no refusal
    past.put("attempts", "t-w1-3.json", {"memory": RETRY})
    with pytest.raises(SimulationError):
        past.judge(RETRY)


def test_a_vanished_pod_under_the_same_number_is_an_earlier_one(past: Past) -> None:
    past.report("t-w1-5", pod_uid="vanished")
    with pytest.raises(MemoryAskedError):
        past.judge()


def test_a_report_kept_beside_another_counts(past: Past) -> None:
    past.report("t-w1-3", kills=0)
    past.report("t-w1-3.0123abcd")
    with pytest.raises(MemoryAskedError):
        past.judge()
