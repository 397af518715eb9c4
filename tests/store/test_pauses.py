"""Pauses in the store."""

from __future__ import annotations

from pathlib import Path

from simrun.store.layout import StoreLayout
from simrun.store.pauses import ALL, Pauses
from tests.mounts import two_views


def test_a_pause_lasts_until_it_is_resumed_and_its_end_is_kept(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path)
    assert pauses.get("lab.nightly") is None
    assert pauses.resume("lab.nightly", by="ana", now=1.0) is None
    pauses.pause("lab.nightly", by="ana", now=2.0)
    again = pauses.pause("lab.nightly", by="bob", now=3.0)
    assert (again.by, again.at) == ("ana", 2.0)
    assert str(again) == "paused by ana at 1970-01-01T00:00:02Z"
    ended = pauses.resume("lab.nightly", by="bob", now=4.0)
    assert ended is not None
    assert (ended.paused, ended.resumed_at, ended.resumed_by) == (False, 4.0, "bob")
    assert pauses.resume("lab.nightly", by="cay", now=5.0) == ended
    assert Pauses(tmp_path).all() == {"lab.nightly": ended}


def test_all_is_a_pause_of_its_own(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path)
    pauses.pause(ALL, by="ana", now=2.0)
    assert set(pauses.all()) == {ALL}


def test_a_pause_that_can_not_be_read_is_one(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path)
    pauses.pause("lab.nightly", by="ana", now=2.0)
    (tmp_path / "scheduler" / "pauses" / "lab.nightly.json").write_text("{")
    found = pauses.get("lab.nightly")
    assert found is not None
    assert found.paused
    assert "can't be read" in str(found)


def test_whoever_waits_for_changes_is_told(tmp_path: Path) -> None:
    pauses, hint = Pauses(tmp_path), StoreLayout(tmp_path).schedules_changed
    assert not hint.exists()
    pauses.pause(ALL, by="ana", now=2.0)
    first = hint.stat()
    pauses.resume(ALL, by="ana", now=3.0)
    second = hint.stat()
    assert (first.st_ino, first.st_mtime_ns) != (second.st_ino, second.st_mtime_ns)


def test_a_pause_that_another_host_made_counts_at_once_though_it_was_looked_for_in_vain() -> None:
    with two_views() as (here, there):
        mine, theirs = Pauses(here), Pauses(there)
        (here / "scheduler" / "pauses").mkdir(parents=True)
        assert theirs.get("lab.nightly") is None
        paused = mine.pause("lab.nightly", by="ana", now=2.0)
        assert not (there / "scheduler" / "pauses" / "lab.nightly.json").exists()

        assert theirs.get("lab.nightly") == paused
        assert theirs.all() == {"lab.nightly": paused}
