"""What the service does while its store is full, read-only, silent, damaged or behind; with real file systems that are so."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from simrun.model.record import RunState, TaskState
from simrun.service import main
from simrun.service.controller import MERGE_MARKER_GRACE_S, has_merge_marker
from tests.mounts import two_views
from tests.scenario.crash_runs import submission
from tests.scenario.serving import Service, is_stopped, service, wait
from tests.service.world import FakeClock, make_world
from tests.worker.campaign import Campaign

pytestmark = pytest.mark.timeout(150)

GATED = "while [ ! -e $HOME/gate ]; do sleep 0.05; done"

HELD = submission({"held": {"type": "held"}}, {"held": {"command": f"echo held; {GATED}"}})
QUICK = submission({"quick": {"type": "quick"}}, {"quick": {"command": "echo quick"}})
SPLIT = submission(
    {"sweep": {"type": "sweep"}},
    {"sweep": {"command": GATED, "split": {"workers": 2, "units": {"list": [1, 2, 3]}}}},
)


def running(served: Service, run_id: str) -> Callable[[], bool]:
    return lambda: "running" in served.run(run_id)["tasks"].values()


# --- full and read-only ----------------------------------------------------------------------------------------------------


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of 4 MiB, in memory."""
    with tempfile.TemporaryDirectory(prefix="simrun-disk-") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "-l", name], check=True)


@contextmanager
def full(store: Path) -> Iterator[str]:
    """Fill the disk to the last byte."""
    ballast = store / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield "No space left on device"
    ballast.unlink()


@contextmanager
def read_only(store: Path) -> Iterator[str]:
    """Lay a read-only mount over the store: what is open stays open, nothing more can be opened for writing."""
    with tempfile.TemporaryDirectory(prefix="simrun-read-only-") as name, ExitStack() as mounts:
        # Read-only before it is laid over the store, where somebody would open a file in between
        for command in (
            ["--bind", store, name],
            ["-o", "remount,bind,ro", name],
            ["--bind", name, store],
        ):
            subprocess.run(["mount", *command], check=True)
            if command[0] == "--bind":
                mounts.callback(subprocess.run, ["umount", "-l", command[-1]], check=True)
        yield "Read-only file system"


Fault = Callable[[Path], AbstractContextManager[str]]


@pytest.mark.parametrize("fault", [full, read_only])
def test_runs_wait_for_a_store_that_cannot_be_written_and_the_api_says_what_is_wrong(
    fault: Fault,
) -> None:
    with small_disk() as disk, service(disk / "store") as served:
        served.start()
        for run_id, what in (("held", HELD), ("split", SPLIT)):
            served.submitted(run_id, what)
            wait(f"{run_id} to run", running(served, run_id))
        before = (disk / "store" / "runs" / "held" / "run.json").read_bytes()

        with fault(disk / "store") as text:
            served.open_gate()
            # The commands have ended, and there is no place for the word that they have
            wait("the workers to end", lambda: not served.commands())
            refused = served.submit("late", QUICK)
            assert (refused.status, text in refused.body["detail"]) == (503, True)
            cancelled = served.ask("/api/v1/runs/held/cancel", {})
            assert (cancelled.status, text in cancelled.body["detail"]) == (503, True)
            ready = served.ask("/readyz")
            assert (ready.status, text in str(ready.body["reasons"])) == (503, True)

            assert served.ask("/healthz").status == 200
            assert served.run("held")["state"] == "running"
            rows = served.ask("/api/v1/runs").body["runs"]
            assert {row["id"] for row in rows} >= {"held", "split"}
            assert (disk / "store" / "runs" / "held" / "run.json").read_bytes() == before

        for run_id in ("held", "split"):
            assert served.ended(run_id, 60)["state"] == "succeeded"
        assert served.submit("late", QUICK).status in (200, 201)
        assert served.ended("late")["state"] == "succeeded"
        assert served.ask("/readyz").status == 200


@pytest.mark.parametrize("fault", [full, read_only])
def test_a_start_on_a_store_that_cannot_be_written_is_refused_with_the_reason(
    fault: Fault,
) -> None:
    with small_disk() as disk, service(disk / "store") as served:
        served.start()
        assert served.stop() == 0
        with fault(disk / "store") as text:
            with pytest.raises(AssertionError):
                served.start()
            assert served.process is not None
            assert served.process.wait(20) == 1
            assert text in served.log()
            assert "Traceback" not in served.log()
        served.start()


async def test_that_a_submission_failed_is_told_as_soon_as_the_disk_allows_it(
    clock: FakeClock,
) -> None:
    with small_disk() as disk:
        world = make_world(disk / "store", clock)
        world.create(SPLIT)
        with full(disk / "store"):

            async def job(run_id: str) -> None:
                raise ValueError(f"{run_id} has no image")

            world.controller.start_submission("run1", job)
            await asyncio.sleep(0.3)
            assert world.record().state is RunState.SUBMITTING
            assert world.controller.in_flight("run1")
        record = await world.until("run1", RunState.FAILED)
        assert record.message == "submission failed: run1 has no image"
        world.pool.close()


# --- silent ------------------------------------------------------------------------------------------------------------------


class FileServer:
    """A FUSE file system that stops answering, as a file server does whose network is gone."""

    def __init__(self, source: Path, place: Path) -> None:
        self.place = place
        # The kernel tells it as sshfs: a network file system, beside which simrun keeps its own state on a local disk
        command = ["bindfs", "-f", "-o", "subtype=sshfs", str(source), str(place)]
        self._process = subprocess.Popen(command)
        wait("the mount", place.is_mount)

    @contextmanager
    def may_hang(self) -> Iterator[None]:
        """Let it answer at the end in any case, else what waits for it can't be ended."""
        try:
            yield
        finally:
            self.answer()

    def hang(self, served: Service) -> None:
        """Take no more calls. One that was taken and is not answered would keep its process from ending, even by SIGKILL."""
        with served.paused():
            self._process.send_signal(signal.SIGSTOP)
            wait("the file server to stop", lambda: is_stopped(self._process.pid))

    def answer(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.answer()
        subprocess.run(["fusermount", "-u", "-z", str(self.place)], check=True)
        self._process.wait(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "source").mkdir()
    (tmp_path / "mount").mkdir()
    yield (made := FileServer(tmp_path / "source", tmp_path / "mount"))
    made.close()


def hang_calls(served: Service, count: int) -> list[threading.Thread]:
    """Ask for what is in the store, which does not answer."""

    def ask() -> None:
        with contextlib.suppress(OSError):
            served.ask("/api/v1/runs/held", seconds=60)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_while_the_store_hangs_api_probes_and_workers_go_on_and_afterwards_everything_ends_right(
    server: FileServer,
) -> None:
    with service(server.place / "store") as served, server.may_hang():
        served.start()
        served.submitted("before", QUICK)
        served.ended("before")
        for run_id, what in (("held", HELD), ("split", SPLIT)):
            served.submitted(run_id, what)
            wait(f"{run_id} to run", running(served, run_id))

        server.hang(served)
        served.open_gate()
        asking = hang_calls(served, 12)  # more than there are threads for files
        ready = served.ask("/readyz")
        assert ready.status == 503
        assert "has not answered" in ready.body["reasons"][0]
        wait("the pool to be full", lambda: len(served.ask("/readyz").body["reasons"]) == 2)
        rows = served.ask("/api/v1/runs").body["runs"]
        assert {row["id"]: row["state"] for row in rows} == {
            "before": "succeeded",
            "held": "running",
            "split": "running",
        }
        assert served.ask("/healthz").status == 200

        server.answer()
        for thread in asking:
            thread.join()
        for run_id in ("held", "split"):
            assert served.ended(run_id)["state"] == "succeeded"
        assert served.ask("/readyz").status == 200


def test_sigterm_ends_a_service_whose_store_hangs_and_the_next_one_goes_on(
    server: FileServer,
) -> None:
    assert main.STOP_WITHIN_S <= 25
    with service(server.place / "store", stop_within=2) as served, server.may_hang():
        served.start()
        served.submitted("held", HELD)
        wait("the run to run", running(served, "held"))
        server.hang(served)
        asking = hang_calls(served, 12)
        wait("the pool to be full", lambda: len(served.ask("/readyz").body["reasons"]) == 2)

        assert served.stop(20) == 1
        assert "leaving without it" in served.log()

        server.answer()
        for thread in asking:
            thread.join()
        served.start()
        served.open_gate()
        assert served.ended("held")["state"] == "succeeded"
        attempts = server.place / "store" / "runs" / "held" / "tasks" / "held" / "attempts"
        assert [path.name for path in attempts.iterdir()] == ["held-0.json"]


# --- damaged -----------------------------------------------------------------------------------------------------------------

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda record: record[: len(record) // 2],
    "cut-in-a-character": lambda record: record[:20] + b'"\xc3',
    "zeros": lambda record: record[:-100] + bytes(100),
    "list": lambda _: b"[]\n",
    "text": lambda _: b"disk quota exceeded\n",
}


def test_damaged_records_are_listed_kept_aside_and_left_alone_and_others_go_on(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with service(store) as served:
        served.start()
        for run_id in ("good", *DAMAGE):
            served.submitted(run_id, HELD)
            wait(f"{run_id} to run", running(served, run_id))
        served.kill()
        for run_id, damage in DAMAGE.items():
            path = store / "runs" / run_id / "run.json"
            path.write_bytes(damage(path.read_bytes()))
        damaged = {run_id: (store / "runs" / run_id / "run.json").read_bytes() for run_id in DAMAGE}

        served.start()
        served.open_gate()
        assert served.ended("good")["state"] == "succeeded"
        wait("the index", lambda: len(_damaged(served)) == len(DAMAGE))
        for run_id, text in _damaged(served).items():
            assert str(store / "runs" / run_id / "run.json") in text
            answer = served.ask(f"/api/v1/runs/{run_id}")
            assert (answer.status, run_id in answer.body["detail"]) == (500, True)
            assert served.submit(run_id, HELD).status == 500  # never written over
        for run_id, content in damaged.items():
            assert (store / "runs" / run_id / "run.json").read_bytes() == content
            assert (store / "damaged" / f"{run_id}.json").read_bytes() == content


def _damaged(served: Service) -> dict[str, str]:
    rows = served.ask("/api/v1/runs?limit=50").body["runs"]
    return {row["id"]: row["damaged"] for row in rows if row["damaged"]}


# --- behind ------------------------------------------------------------------------------------------------------------------

SWEEP = submission(
    {"t": {"type": "t"}},
    {"t": {"command": "true", "split": {"workers": 1, "units": {"list": [1, 2]}}}},
)


async def test_a_merge_on_another_host_is_seen_within_the_grace_whatever_lookups_say(
    clock: FakeClock,
) -> None:
    with two_views() as (here, there):
        world = make_world(here / "store", clock)
        name = await world.start(SWEEP, "run")
        marker = world.task_dir("t", "run") / "out" / ".simrun-merged"
        world.backend.succeed(name, "t-w0")
        assert not marker.exists()  # from now on the kernel says so for a minute without asking
        assert (await world.look("run")).tasks["t"] is TaskState.RUNNING

        worker = Campaign(there / "store")
        ended = worker.run("t-w0")
        assert (ended.code, ended.report.merged) == (0, True)
        assert not marker.exists()
        assert has_merge_marker(world.task_dir("t", "run"))

        clock.advance(MERGE_MARKER_GRACE_S - 1)
        record = await world.look("run")
        assert (record.state, record.merge_pending) == (RunState.SUCCEEDED, {})
        worker.close()
        world.pool.close()


async def test_a_coordinator_on_another_host_that_never_merges_fails_its_task_after_the_grace(
    clock: FakeClock,
) -> None:
    with two_views() as (here, there):
        world = make_world(here / "store", clock)
        name = await world.start(SWEEP, "run")
        world.backend.succeed(name, "t-w0")
        await world.look("run")

        worker = Campaign(there / "store")
        ended = worker.run("t-w0", MERGE="0")  # a harness that leaves the merge to somebody else
        assert (ended.code, ended.report.merged) == (0, False)

        clock.advance(MERGE_MARKER_GRACE_S - 1)
        assert (await world.look("run")).state is RunState.RUNNING
        clock.advance(1)
        record = await world.look("run")
        assert (record.state, record.tasks["t"]) == (RunState.FAILED, TaskState.FAILED)
        assert "does not merge" in (record.message or "")
        worker.close()
        world.pool.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
