"""scheduler/snapshot.json: written whole, and no loss when it can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simrun.aio.threads import Pool
from simrun.scheduler.history import History, Why
from simrun.scheduler.snapshots import LaneRecord, Snapshotter, record_of
from tests.scheduler.world import at


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Snapshotter]:
    pool = Pool("files", 1)
    yield Snapshotter(tmp_path, pool)
    pool.close()


RECORD = LaneRecord(version="3", activated=at("09:00"), considered=at("09:59:59.9"))
TEXT = RECORD.model_dump_json(exclude_defaults=True)


async def test_what_was_saved_is_loaded(notes: Snapshotter, tmp_path: Path) -> None:
    history = History()
    history.fired(at("10:00"), "f1", at("10:01"), "created")
    history.lost(Why.POLICY, 3, at("09:00"), at("09:30"), "catch_up: none")
    await notes.save(at("10:05"), {"lab.a": TEXT, "lab.gone": record_of(history)})
    found = await notes.load()
    assert found.at == at("10:05")
    assert found.schedules["lab.a"] == RECORD
    kept = found.schedules["lab.gone"].history
    assert (kept.counts, kept.last, list(kept.losses)) == (
        history.counts,
        history.last,
        list(history.losses),
    )
    assert [item.name for item in (tmp_path / "scheduler").iterdir()] == ["snapshot.json"]


async def test_without_one_there_is_an_empty_one(notes: Snapshotter) -> None:
    assert (await notes.load()).schedules == {}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b'{"schema":1,"at":"2026-03-02T10:0', "damaged"),
        (b'{"schema":1,"at":"yesterday"}', "damaged"),
        (b'{"schema":2,"at":"2026-03-02T10:05:00Z","schedules":{}}', "newer"),
        (b"\x80\x00", "damaged"),
    ],
)
async def test_what_can_not_be_read_is_kept_aside_and_counts_as_none(
    notes: Snapshotter, tmp_path: Path, content: bytes, kind: str
) -> None:
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "snapshot.json").write_bytes(content)
    for _ in range(2):
        assert (await notes.load()).schedules == {}
    (kept,) = (tmp_path / "damaged").iterdir()
    assert kept.read_bytes() == content
    assert kept.name.startswith(f"scheduler-snapshot-{kind}-")


async def test_the_form_before_this_one_is_read(notes: Snapshotter, tmp_path: Path) -> None:
    (tmp_path / "scheduler").mkdir()
    old = b'{"schema":0,"schedules":{"lab.a":"2026-03-02T10:05:00Z"}}'
    (tmp_path / "scheduler" / "snapshot.json").write_bytes(old)
    record = (await notes.load()).schedules["lab.a"]
    assert record.mark_for("any", at("09:00"), at("10:10")) == at("10:05")


def test_a_record_counts_only_for_the_activation_that_it_names() -> None:
    assert RECORD.mark_for("3", at("09:00"), at("11:00")) == at("09:59:59.9")
    assert RECORD.mark_for("4", at("09:00"), at("11:00")) is None
    assert RECORD.mark_for("3", at("09:30"), at("11:00")) is None
    idle = LaneRecord(version="3", activated=at("09:00"))
    assert idle.mark_for("3", at("09:00"), at("11:00")) == at("11:00")


async def test_progress_is_kept_by_schedule_and_what_is_cut_is_left_out(
    notes: Snapshotter, tmp_path: Path
) -> None:
    await notes.save_progress("lab.a", TEXT)
    await notes.save_progress("lab.b", TEXT)
    (tmp_path / "scheduler" / "catchup" / "lab.b").write_bytes(b'{"schema":1,"vers')
    assert await notes.load_progress() == {"lab.a": RECORD}
    await notes.clear_progress()
    assert await notes.load_progress() == {}
