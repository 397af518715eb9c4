"""The lock of a local store: who holds it, and that it goes with its process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simrun.base.errors import Locked, UnsupportedStore
from simrun.store.lock import Holder, StoreLock

HOLD = """
import sys
from pathlib import Path
from simrun.store.lock import StoreLock
StoreLock(Path(sys.argv[1])).acquire("serve", 5.0, "http://127.0.0.1:8750")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock of the store in tmp_path."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)


def test_a_second_process_is_refused_and_told_who_holds_the_store(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    try:
        with pytest.raises(Locked) as caught:
            StoreLock(tmp_path).acquire("run", 6.0)
        text = str(caught.value)
        assert f"the store {tmp_path} is held by `simrun serve` at http://127.0.0.1:8750" in text
        assert f"process {holder.pid} on " in text
        assert "--store DIR" in text
        found = StoreLock(tmp_path).holder()
        assert found is not None
        assert (found.command, found.pid, found.url) == (
            "serve",
            holder.pid,
            "http://127.0.0.1:8750",
        )
    finally:
        end(holder)


def test_the_lock_goes_with_its_process_however_that_ends(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=20)
    lock = StoreLock(tmp_path)
    lock.acquire("run", 6.0)
    assert lock.holder() == Holder("run", os.getpid(), os.uname().nodename, 6.0)
    lock.release()


def test_a_released_lock_is_free_and_names_nobody(tmp_path: Path) -> None:
    first, second = StoreLock(tmp_path), StoreLock(tmp_path)
    first.acquire("run", 1.0)
    with pytest.raises(Locked, match="`simrun run`"):
        second.acquire("run", 2.0)
    first.release()
    first.release()
    assert second.holder() is None
    second.acquire("run", 2.0)
    second.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire("run", 1.0)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        lock.release()
        again = StoreLock(tmp_path)
        again.acquire("run", 2.0)
        again.release()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"command":"serve"}', b"\xff"])
def test_a_holder_that_cannot_be_read_is_another_simrun(tmp_path: Path, content: bytes) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire("run", 1.0)
    (tmp_path / "simrun.lock").write_bytes(content)
    with pytest.raises(Locked, match="is held by another simrun"):
        StoreLock(tmp_path).acquire("run", 2.0)
    lock.release()


def test_a_lock_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    (tmp_path / "simrun.lock").mkdir()
    with pytest.raises(UnsupportedStore, match=r"simrun\.lock: cannot be locked"):
        StoreLock(tmp_path).acquire("run", 1.0)


def test_whether_a_lock_is_taken_can_be_asked_without_taking_it(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock = StoreLock(tmp_path)
    assert lock.taken()
    end(holder)
    assert not lock.taken()
    assert lock.holder() is not None  # what it wrote outlives it, and means nothing
    lock.acquire("run", 6.0)
    assert StoreLock(tmp_path).taken()
    lock.release()
    assert not lock.taken()


def test_a_store_that_was_never_locked_is_not_taken(tmp_path: Path) -> None:
    assert not StoreLock(tmp_path).taken()
    assert list(tmp_path.iterdir()) == []


def test_whether_a_lock_is_taken_is_told_without_taking_it(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock = StoreLock(tmp_path)
    try:
        assert lock.taken()
        assert lock.taken()
    finally:
        end(holder)
    assert not lock.taken()
    assert lock.holder() is not None  # what a dead process left, which is why `taken` is asked
    assert not StoreLock(tmp_path / "nowhere").taken()


def test_asking_does_not_make_another_fail(tmp_path: Path) -> None:
    """Asking holds the lock, shared, for a moment."""
    lock = StoreLock(tmp_path)
    (tmp_path / "simrun.lock").touch()
    asking = os.open(tmp_path / "simrun.lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    threading.Timer(0.01, os.close, [asking]).start()

    lock.acquire("run", 1.0)

    lock.release()
