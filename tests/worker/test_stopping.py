from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from simrun.worker.endings import DeadlineError
from simrun.worker.stopping import Stopper


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_limit_counts_from_the_start_of_the_worker() -> None:
    clock = Clock()
    stopper = Stopper(grace_s=10, timeout_s=5, started=98, now=clock)
    stopper.check()
    assert stopper.at_most(60) == 3
    assert stopper.at_most(None) == 3
    clock.now = 103
    with pytest.raises(DeadlineError, match="time limit of 5 s"):
        stopper.check()
    assert stopper.at_most(60) == 0


def test_without_a_time_limit_nothing_is_shortened() -> None:
    stopper = Stopper(grace_s=10, now=Clock())
    assert stopper.at_most(60) == 60
    assert stopper.at_most(None) is None
    assert stopper.requested() is None


def test_a_bell_may_ring_more_often_than_it_is_heard() -> None:
    stopper = Stopper(grace_s=10)
    for _ in range(70_000):
        stopper.bell.ring()
    stopper.bell.wait(0)
    stopper.bell.wait(0)
    stopper.bell.close()


def test_sigterm_is_heard_though_it_was_blocked_by_whoever_started_the_harness() -> None:
    script = """
import sys, time
from simrun.worker.endings import TerminatedError
from simrun.worker.stopping import Stopper
stopper = Stopper(grace_s=8)
stopper.install()
print("ready", flush=True)
try:
    stopper.wait(50)
except TerminatedError:
    left = stopper.kill_at() - time.monotonic()
    print("stopped", 5 < left <= 6)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]),  # noqa: PLW1509 - one thread here
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=50)
    assert output == "stopped True\n"
