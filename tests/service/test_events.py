"""The stream of all runs: whatever readers and changes do, every reader comes to know every final state, and never misses unawares."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from simrun.model.record import RunRecord, RunState, RunTimes
from simrun.service.events import AT_ONCE, KEPT_S, Events, Groups
from simrun.service.runrow import RunRow, row_of
from tests.service.world import FakeClock

GROUPS = ("astro", "bio")


def record(run_id: str, revision: int, clock: FakeClock, **values: Any) -> RunRecord:
    given = {"group": "astro", "state": RunState.RUNNING} | values
    ended = clock.wall() if given["state"].terminal else None
    return RunRecord(
        id=run_id, revision=revision, times=RunTimes(created=1.0, ended=ended), **given
    )


def events_of(data: bytes) -> list[tuple[str, str, Any]]:
    """Give (kind, id, data) of what a reader was sent."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        if not block.startswith(":"):
            kind, ident, body = block.split("\n")
            found.append((kind[7:], ident[4:], json.loads(body[6:])))
    return found


@dataclass(eq=False)
class Reader:
    """What one reader knows, and where it is; as a page would keep it."""

    groups: Groups
    place: int | None = None
    last_id: str | None = None
    runs: dict[str, int] = field(default_factory=dict)

    def take(self, data: bytes) -> None:
        for kind, ident, body in events_of(data):
            self.last_id = ident
            if kind == "snapshot":
                self.runs = {run["id"]: run["revision"] for run in body["runs"]}
            elif kind == "deleted":
                self.runs.pop(body["id"], None)
            else:
                assert body["revision"] > self.runs.get(body["id"], -1), "went back, or came twice"
                self.runs[body["id"]] = body["revision"]

    def step(self, events: Events) -> bool:
        """Take the next piece, as the API does; whether there was one."""
        if self.place is None or not events.has(self.place):
            self.place, data = events.snapshot(self.groups)
        elif self.place < events.seq:
            self.place, data = events.after(self.place, self.groups)
        else:
            return False
        self.take(data)
        return True


class Stream(RuleBasedStateMachine):
    """Runs change, readers come, lag, go away and come back, the process starts again."""

    readers = Bundle("readers")

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock()
        self.boots = 0
        self.now: dict[str, tuple[str, int, bool]] = {}
        self.known: list[Reader] = []
        self.boot()

    def boot(self) -> None:
        rows = [
            row_of(record(run_id, revision, self.clock, group=group))
            for run_id, (group, revision, live) in self.now.items()
            if live
        ]
        self.boots += 1
        self.events = Events(lambda: _given(rows), self.clock, size=6, boot=f"b{self.boots}")
        asyncio.run(self.events.ready())

    @rule(numbers=st.lists(st.integers(0, 4), min_size=1, max_size=7), ends=st.booleans())
    def change(self, numbers: list[int], ends: bool) -> None:
        for number in numbers:
            run_id, group = f"r{number}", GROUPS[number % 2]
            revision = self.now.get(run_id, (group, 0, True))[1] + 1
            state = RunState.SUCCEEDED if ends else RunState.RUNNING
            self.now[run_id] = group, revision, not ends
            self.events.tell(record(run_id, revision, self.clock, group=group, state=state))

    @rule(number=st.integers(0, 4))
    def tell_again(self, number: int) -> None:
        """What was told already, and what is older, changes nothing."""
        run_id = f"r{number}"
        before = self.events.seq
        if run_id in self.events._runs:
            group, revision, _ = self.now[run_id]
            self.events.tell(record(run_id, revision, self.clock, group=group))
            self.events.tell(record(run_id, revision - 1, self.clock, group=group))
        assert self.events.seq == before

    @rule(number=st.integers(0, 4))
    def delete(self, number: int) -> None:
        if (there := self.now.pop(f"r{number}", None)) is not None:
            self.events.gone(record(f"r{number}", there[1], self.clock, group=there[0]))

    @rule(target=readers, groups=st.none() | st.frozensets(st.sampled_from(GROUPS)))
    def connect(self, groups: Groups) -> Any:
        reader = Reader(groups)
        self.known.append(reader)
        return multiple(reader)

    @rule(reader=readers)
    def read(self, reader: Reader) -> None:
        reader.step(self.events)

    @rule(reader=readers, behind=st.booleans())
    def connect_again(self, reader: Reader, behind: bool) -> None:
        """With what it was told last, or with an id from nowhere."""
        reader.place = self.events.place(reader.last_id if behind else "b1.999999")

    @rule()
    def restart(self) -> None:
        self.boot()
        for reader in self.known:
            reader.place = self.events.place(reader.last_id)

    @rule()
    def time_passes(self) -> None:
        self.clock.advance(KEPT_S / 2)

    @invariant()
    def whoever_reads_on_knows_every_state(self) -> None:
        for reader in getattr(self, "known", []):
            copy = Reader(reader.groups, reader.place, reader.last_id, dict(reader.runs))
            while copy.step(self.events):
                pass
            seen = {
                run_id: revision
                for run_id, (group, revision, live) in self.now.items()
                if reader.groups is None or group in reader.groups
            }
            for run_id, revision in seen.items():
                # What ended before the snapshot's time, or this process, may be unknown, never wrong
                live = self.now[run_id][2]
                assert copy.runs.get(run_id) == revision or (not live and run_id not in copy.runs)
            assert set(copy.runs) <= set(seen)


async def _given(rows: list[RunRow]) -> list[RunRow]:
    return rows


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.fixture
def events(clock: FakeClock) -> Events:
    return Events(lambda: _given([]), clock, size=1000, boot="boot")


def test_a_change_is_encoded_once_and_a_piece_of_changes_joined_once_for_all_readers(
    events: Events, clock: FakeClock
) -> None:
    for revision in range(3):
        events.tell(record("r1", revision, clock))

    pieces = {id(events.after(0, None)[1]) for _ in range(450)}

    assert len(pieces) == 1
    assert [ident for _, ident, _ in events_of(events.after(0, None)[1])] == [
        "boot.1",
        "boot.2",
        "boot.3",
    ]


def test_readers_that_come_at_once_share_the_snapshot(events: Events, clock: FakeClock) -> None:
    events.tell(record("r1", 1, clock))

    first, again = events.snapshot(None)[1], events.snapshot(None)[1]
    events.tell(record("r1", 2, clock))

    assert first is again
    assert events.snapshot(None)[1] != first


def test_a_reader_that_lags_is_given_its_changes_in_pieces(
    events: Events, clock: FakeClock
) -> None:
    for revision in range(AT_ONCE + 10):
        events.tell(record("r1", revision, clock))

    place, piece = events.after(0, None)

    assert (place, len(events_of(piece))) == (AT_ONCE, AT_ONCE)
    assert events.after(place, None)[0] == AT_ONCE + 10


@pytest.mark.parametrize(
    "last_id",
    [
        None,
        "",
        "boot",
        "boot.",
        "boot.x",
        "boot.-1",
        "boot.1.1",
        "boot.٣",
        "boot.2",
        "other.1",
        "boot." + "9" * 50,
        "boot.1\n",
    ],
)
def test_an_id_that_stands_for_no_place_of_this_process_means_a_snapshot(
    events: Events, clock: FakeClock, last_id: str | None
) -> None:
    events.tell(record("r1", 1, clock))

    assert events.place(last_id) is None
    assert events.place("boot.1") == 1
    assert events.place("boot.0") == 0


def test_what_has_ended_stays_in_the_snapshot_for_five_minutes(
    events: Events, clock: FakeClock
) -> None:
    events.tell(record("r1", 1, clock, state=RunState.FAILED))
    events.tell(record("r2", 1, clock))

    def listed() -> list[str]:
        ((_, _, body),) = events_of(events.snapshot(None)[1])
        return [run["id"] for run in body["runs"]]

    clock.advance(KEPT_S - 1)
    assert listed() == ["r1", "r2"]
    clock.advance(2)
    assert listed() == ["r2"]
    assert len(events._runs) == 1


async def test_what_was_told_while_the_table_was_loaded_wins_over_what_was_loaded(
    clock: FakeClock,
) -> None:
    going = asyncio.Event()

    async def load() -> list[RunRow]:
        await going.wait()
        return [row_of(record(run_id, 1, clock)) for run_id in ("changed", "deleted", "quiet")]

    events = Events(load, clock)
    readers = [asyncio.ensure_future(events.ready()) for _ in range(3)]
    await asyncio.sleep(0)
    events.tell(record("changed", 2, clock))
    events.gone(record("deleted", 1, clock))
    going.set()
    await asyncio.gather(*readers)

    ((_, _, body),) = events_of(events.snapshot(None)[1])
    assert {run["id"]: run["revision"] for run in body["runs"]} == {"changed": 2, "quiet": 1}
