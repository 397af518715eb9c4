from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from simrun.worker import processes
from simrun.worker.processes import TreeMeter

MIB = 2**20
HOG = r"""
import os, sys
kept = bytearray(b"x" * (64 * 2**20))
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        break
os.write(1, b"ready\n")
sys.stdin.read()
"""


@pytest.fixture
def hog() -> Iterator[subprocess.Popen[str]]:
    """A process with 64 MiB that it shares with two children."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOG, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "ready\n"
    yield process
    end(process)


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.read()  # until the last of them has ended
    process.stdout.close()
    process.wait()


def test_a_tree_is_the_process_and_its_descendants(hog: subprocess.Popen[str]) -> None:
    tree = processes.tree(hog.pid)
    assert tree[0] == hog.pid
    assert len(tree) == 3
    assert hog.pid in processes.tree(os.getpid())


def test_pages_that_processes_share_count_once(hog: subprocess.Popen[str]) -> None:
    tree = processes.tree(hog.pid)
    resident = processes.resident(tree)
    assert resident.own > 3 * 64 * MIB
    exact = processes.proportional(tree)
    assert exact is not None
    assert 64 * MIB < exact.own < 100 * MIB
    assert exact.own <= exact.total


def test_the_meter_keeps_the_peak_and_counts_no_kills(hog: subprocess.Popen[str]) -> None:
    meter = TreeMeter(512 * MIB, root=hog.pid)
    first = meter.journal()
    assert first["limit"] == 512 * MIB
    assert first["oom_kills"] is None
    assert hog.stdin is not None
    hog.stdin.close()
    hog.wait()
    use = meter.memory_use()
    assert 64 * MIB < use["peak_unreclaimable"] < 100 * MIB
    assert use["samples"] == 2
    assert (use["oom_kills"], meter.oom_kills()) == (0, 0)


def test_processes_that_have_ended_are_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert processes.tree(process.pid) == [process.pid]
    assert processes.resident([process.pid]) == processes.Use()
    assert processes.proportional([process.pid]) == processes.Use()
