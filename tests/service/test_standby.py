"""Services over one store: one leads, the others stand by; who leads no more writes nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from simrun.backends.base import Attempt, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.base.clock import SystemClock
from simrun.base.errors import Locked
from simrun.base.term import NotLeading
from simrun.model.record import RunState
from simrun.service import opening
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.session import Session
from simrun.service.standby import elected
from simrun.store.lock import StoreLock
from simrun.worker import files
from tests.service.world import World, make_world


class FakeTerm:
    """A term that a test ends."""

    def __init__(self, epoch: int = 7) -> None:
        self.epoch: int | None = epoch
        self.over = False

    def valid(self) -> bool:
        return not self.over


class FakeElection:
    """An election that a test decides."""

    def __init__(self) -> None:
        self.leader = "the other one"
        self.turn = asyncio.Event()
        self.lost = asyncio.Event()
        self.released = 0

    async def acquire(self) -> FakeTerm:
        await self.turn.wait()
        return FakeTerm()

    @asynccontextmanager
    async def holding(self, term: FakeTerm) -> AsyncIterator[FakeTerm]:
        yield term

    async def release(self) -> None:
        self.released += 1


def led(world: World, term: FakeTerm) -> World:
    """A service over the same store with a term of its own."""
    return make_world(world.store.layout.root, world.clock, world.backend, term=term)


@pytest.fixture
def listening() -> socket.socket:
    return listen("127.0.0.1", 0)


async def test_who_stands_by_is_alive_and_not_ready_and_says_who_leads(
    listening: socket.socket,
) -> None:
    election, stop = FakeElection(), asyncio.Event()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def stand_by() -> bool:
        async with elected(election, listening, stop) as term:
            return term is not None and term.valid()

    leads = asyncio.ensure_future(stand_by())
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        async with http.get(f"{url}/readyz") as answer:
            assert answer.status == 503
            assert "the other one leads" in await answer.text()
        async with http.post(f"{url}/api/v1/runs") as answer:
            assert answer.status == 503
            assert "stands by" in (await answer.json())["detail"]
    election.turn.set()

    assert await leads
    listening.listen()  # it is still ours
    listening.close()


async def test_who_is_stopped_while_it_stands_by_never_leads(listening: socket.socket) -> None:
    election, stop = FakeElection(), asyncio.Event()

    async def stand_by() -> bool:
        async with elected(election, listening, stop) as term:
            return term is None

    ends = asyncio.ensure_future(stand_by())
    stop.set()

    assert await ends
    listening.close()


async def test_who_is_stopped_in_the_moment_of_its_election_gives_it_back(
    listening: socket.socket,
) -> None:
    election, stop = FakeElection(), asyncio.Event()
    election.turn.set()
    stop.set()

    async with elected(election, listening, stop) as term:
        assert term is None

    listening.close()


# --- writes


async def test_a_leader_writes_its_epoch_into_each_record(world: World) -> None:
    name = await world.start()
    leader = led(world, FakeTerm(7))
    world.backend.attempt(name, "sweep-w0", Attempt(n=0, phase=Phase.RUNNING, pod_uid="a"))

    record = await leader.look()

    assert record.epoch == 7


async def test_who_leads_no_more_decides_nothing_and_does_nothing(world: World) -> None:
    name = await world.start()
    term = FakeTerm(7)
    old = led(world, term)
    term.over = True
    world.backend.succeed(name, "sweep-w0")
    before, calls = world.record(), len(world.backend.calls)

    with pytest.raises(NotLeading):
        await old.controller.reconcile_run("run1")
    with pytest.raises(NotLeading):
        await old.controller.cancel("run1")
    with pytest.raises(NotLeading):
        await old.controller.settle("run1")

    assert world.record() == before
    assert len(world.backend.calls) == calls


async def test_a_leader_that_thinks_it_still_leads_is_fenced_off_by_the_epoch(
    world: World,
) -> None:
    name = await world.start()
    old, new = led(world, FakeTerm(7)), led(world, FakeTerm(8))
    world.backend.attempt(name, "sweep-w0", Attempt(n=0, phase=Phase.RUNNING, pod_uid="a"))
    written = await new.look()
    assert written.epoch == 8

    refused = await old.controller.write(written, written.changed(message="from before"))

    assert refused is None
    assert world.record().message is None


async def test_a_term_that_ends_during_a_pass_ends_before_its_write(world: World) -> None:
    name = await world.start()
    term = FakeTerm(7)
    old = led(world, term)
    world.backend.attempt(name, "sweep-w0", Attempt(n=0, phase=Phase.RUNNING, pod_uid="a"))
    status = world.backend.status

    async def slow(asked: str) -> object:
        found = await status(asked)
        term.over = True
        return found

    old.backend.status = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(NotLeading):
        await old.controller.reconcile_run("run1")

    assert world.record().tasks["sweep"] == "waiting"


async def test_a_submission_of_who_leads_no_more_is_left_to_the_next(world: World) -> None:
    world.create()
    term = FakeTerm(7)
    old = led(world, term)
    term.over = True
    assert old.controller.resume is not None
    old.controller.start_submission("run1", old.controller.resume)
    while old.controller.in_flight("run1"):
        await asyncio.sleep(0)

    assert world.record().state is RunState.SUBMITTING
    new = led(world, FakeTerm(8))
    assert new.controller.resume is not None
    await new.controller.resume("run1")
    assert world.record().state is RunState.RUNNING


async def test_a_submission_waits_for_a_backend_that_is_away(world: World) -> None:
    world.create()
    world.backend.fail_next("submit", 2)
    assert world.controller.resume is not None
    world.controller.start_submission("run1", world.controller.resume)
    async with asyncio.timeout(20):
        while not world.controller.held_up("run1"):
            await asyncio.sleep(0.01)
        assert "submit fails" in world.controller.held_up("run1")
        while world.controller.in_flight("run1"):
            await asyncio.sleep(0.01)

    assert world.record().state is RunState.RUNNING
    assert world.controller.held_up("run1") == ""


async def test_a_leader_that_is_paused_while_it_writes_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    term = FakeTerm(7)
    world.store.leads = term.valid
    old = world.record()
    written = files.write_synced

    def paused(path: Path, data: bytes, *, durable: bool = True) -> None:
        written(path, data, durable=durable)
        term.over = True  # it wakes up long after its term

    monkeypatch.setattr(files, "write_synced", paused)

    assert world.store.write_if_unchanged(old, old.changed(message="late")) is None
    assert world.record() == old
    assert files.listing(world.store.layout.run("run1").root) == before_names(world)


async def test_what_another_leader_wrote_during_a_write_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    old = world.record()
    world.store.leads = lambda: True  # as far as it knows
    other = make_world(world.store.layout.root, world.clock, world.backend)
    written = files.write_synced

    def slow(path: Path, data: bytes, *, durable: bool = True) -> None:
        written(path, data, durable=durable)
        monkeypatch.setattr(files, "write_synced", written)
        assert other.store.write_if_unchanged(old, old.changed(message="new", epoch=8)) is not None

    monkeypatch.setattr(files, "write_synced", slow)

    assert world.store.write_if_unchanged(old, old.changed(message="late", epoch=7)) is None
    assert world.record().message == "new"


def before_names(world: World) -> set[str]:
    """What a run's directory holds: no temporary file among it."""
    names = files.listing(world.store.layout.run("run1").root)
    return {name for name in names if not name.startswith(".")}


# --- the lock of the store


async def test_a_leader_opens_a_store_whose_lock_a_former_leader_still_has_and_takes_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = ScriptedBackend()
    monkeypatch.setattr(opening, "TAKE_AGAIN_S", 0.01)

    def service(term: FakeTerm, url: str) -> AbstractAsyncContextManager[Session]:
        return open_session(
            tmp_path, lambda _store, _pool: backend, command="serve", url=url, term=term
        )

    lock = StoreLock(tmp_path)
    async with AsyncExitStack() as later:
        async with service(FakeTerm(1), "http://old"):
            await later.enter_async_context(service(FakeTerm(2), "http://new"))
            holder = lock.holder()
            assert holder is not None
            assert holder.url == "http://old"
        async with asyncio.timeout(20):
            while (holder := lock.holder()) is None or holder.url != "http://new":
                await asyncio.sleep(0.01)


async def test_a_leader_leaves_a_store_to_a_foreground_run(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire("run", SystemClock().wall())

    with pytest.raises(Locked):
        async with open_session(
            tmp_path,
            lambda _store, _pool: ScriptedBackend(),
            command="serve",
            term=FakeTerm(2),
        ):
            pass
    lock.release()
