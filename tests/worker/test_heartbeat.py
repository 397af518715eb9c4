import errno
import os
import threading
import zlib

import pytest

from simrun.worker.heartbeat import (
    LONGEST_GAP_S,
    RECORD_BYTES,
    Heartbeat,
    Journal,
    Ticker,
    Watcher,
    boottime,
    heartbeat_path,
    read_journal,
)
from simrun.worker.protocol import TaskDir

HOLDER = "t-w1-0.01234567"
LARGE = Journal(
    seq=2**63,
    unix=1.7e9 + 0.123456,
    boottime=1e7 + 0.123456,
    limit=2**63,
    current=2**63,
    peak=2**63,
    unreclaimable=2**63,
    peak_unreclaimable=2**63,
    cpu_usec=2**63,
    oom_kills=2**63,
)


@pytest.fixture
def task_dir(tmp_path):
    return TaskDir(tmp_path)


@pytest.fixture
def heartbeat(task_dir):
    """Give a maker of heartbeats that beat only when told, unless another interval is asked for."""
    made = []

    def make(measure=dict, interval=3600.0):
        made.append(Heartbeat(task_dir, HOLDER, measure, interval=interval))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def journal_of(task_dir):
    return read_journal(heartbeat_path(task_dir, HOLDER).read_bytes())


# --- the record -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", [LARGE, Journal(1, 0.0, 0.0)])
def test_a_record_has_a_fixed_size_and_gives_back_what_it_says(journal):
    assert len(journal.encode()) == RECORD_BYTES
    assert read_journal(journal.encode()) == journal


@pytest.mark.parametrize("at", range(0, RECORD_BYTES, 31))
def test_a_record_torn_between_two_beats_says_nothing(at):
    one, other = LARGE.encode(), Journal(12, 1.0, 2.0, limit=5).encode()
    torn = one[:at] + other[at:]

    assert read_journal(torn) in (None, LARGE, Journal(12, 1.0, 2.0, limit=5))
    assert read_journal(torn) is None or torn in (one, other)


@pytest.mark.parametrize(
    "data", [None, b"", b"x" * RECORD_BYTES, bytes(RECORD_BYTES), LARGE.encode()[:-1]]
)
def test_what_is_no_record_says_nothing(data):
    assert read_journal(data) is None


def test_a_field_of_a_newer_harness_is_left_out():
    body = b'{"seq":3,"unix":1.0,"boottime":2.0,"gpu":7}'
    data = b"%08x %s\n" % (zlib.crc32(body), body.ljust(RECORD_BYTES - 10))

    assert read_journal(data) == Journal(3, 1.0, 2.0)


# --- beating ----------------------------------------------------------------------------------------------------------------


def test_the_first_beat_is_there_when_start_returns(task_dir, heartbeat):
    before = boottime()
    beating = heartbeat(lambda: {"current": 7, "oom_kills": 0})

    journal = journal_of(task_dir)
    assert (journal.seq, journal.current, journal.oom_kills, journal.limit) == (1, 7, 0, None)
    assert before <= journal.boottime <= boottime()
    assert 0 <= beating.silent_for() <= boottime() - before


def test_each_beat_changes_the_bytes(task_dir, heartbeat):
    beating = heartbeat()
    records = set()
    for _ in range(3):
        beating.beat()
        records.add(heartbeat_path(task_dir, HOLDER).read_bytes())

    assert len(records) == 3
    assert journal_of(task_dir).seq == 4


def test_it_beats_by_itself(heartbeat):
    beaten = threading.Semaphore(0)
    heartbeat(lambda: beaten.release() or {}, interval=0.01)

    assert all(beaten.acquire(timeout=30) for _ in range(5))


def test_it_beats_without_figures_when_measuring_fails(task_dir, heartbeat):
    heartbeat(lambda: {"current": 1 // 0})

    assert journal_of(task_dir).seq == 1
    assert journal_of(task_dir).current is None


def test_a_beat_that_fails_is_told_and_the_next_opens_the_file_anew(
    task_dir, heartbeat, monkeypatch
):
    beating = heartbeat()
    with monkeypatch.context() as patch:

        def pwrite(fd, data, offset):
            raise OSError(errno.ESTALE, "Stale file handle")

        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match="Stale"):
            beating.beat()
    heartbeat_path(task_dir, HOLDER).rename(task_dir.root / "moved")
    beating.beat()

    assert journal_of(task_dir).seq == 3


def test_stopping_leaves_the_last_figures(task_dir):
    figures = {"peak": 1}
    beating = Heartbeat(task_dir, HOLDER, lambda: figures, interval=3600.0)
    beating.start()
    figures["peak"] = 2
    beating.stop()

    assert journal_of(task_dir).peak == 2


def test_a_store_that_fails_at_the_start_is_an_error(task_dir):
    task_dir.heartbeats.touch()

    with pytest.raises(NotADirectoryError):
        Heartbeat(task_dir, HOLDER, dict).start()


def test_a_heartbeat_is_not_handed_to_children(task_dir, heartbeat):
    beating = heartbeat()

    assert not os.get_inheritable(beating._fd)


# --- ticking ----------------------------------------------------------------------------------------------------------------


def test_an_action_that_fails_is_called_again_and_its_error_kept_until_it_succeeds():
    calls = threading.Semaphore(0)
    failures = iter([ValueError("first"), ValueError("second")])
    seen = []

    def action():
        seen.append(ticker.error)
        calls.release()
        if (failure := next(failures, None)) is not None:
            raise failure

    ticker = Ticker("test", action, 0.01)
    ticker.start()
    assert all(calls.acquire(timeout=30) for _ in range(4))
    assert ticker.stop()

    assert [str(error) for error in seen[:3]] == ["None", "first", "second"]
    assert seen[3] is None
    assert ticker.error is None


def test_no_call_begins_after_stop():
    calls = []
    ticker = Ticker("test", lambda: calls.append(1), 3600.0)
    ticker.start()

    assert ticker.stop(timeout=30)
    assert len(calls) <= 1


def test_stop_does_not_wait_for_ever_for_an_action_that_hangs():
    release, began = threading.Event(), threading.Event()
    ticker = Ticker("test", lambda: began.set() or release.wait(30), 3600.0)
    ticker.start()
    began.wait(30)

    assert not ticker.stop(timeout=0.01)
    release.set()
    assert ticker.stop(timeout=30)


def test_a_ticker_that_was_never_started_can_be_stopped():
    assert Ticker("test", list, 1.0).stop()


# --- watching ---------------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watcher(task_dir, clock):
    return Watcher(task_dir, 90.0, clock=clock)


def look_for(watcher, clock, seconds, names=(HOLDER,)):
    """Look every ten seconds; give the verdict of the last look."""
    stale = watcher.look(names)
    for _ in range(seconds // 10):
        clock.now += 10.0
        stale = watcher.look(names)
    return stale


def test_a_heartbeat_that_stands_still_is_stale_after_the_time_and_not_before(
    heartbeat, watcher, clock
):
    heartbeat()

    assert look_for(watcher, clock, 80) == set()
    assert look_for(watcher, clock, 10) == {HOLDER}


def test_a_change_starts_the_time_anew(heartbeat, watcher, clock):
    beating = heartbeat()
    assert look_for(watcher, clock, 80) == set()
    beating.beat()

    assert look_for(watcher, clock, 80) == set()
    assert look_for(watcher, clock, 20) == {HOLDER}


def test_a_stale_holder_that_beats_again_is_alive(heartbeat, watcher, clock):
    beating = heartbeat()
    assert look_for(watcher, clock, 100) == {HOLDER}
    beating.beat()

    assert watcher.look([HOLDER]) == set()


def test_clocks_of_other_machines_play_no_part(task_dir, watcher, clock):
    task_dir.heartbeats.mkdir()
    for seq in range(12):
        record = Journal(seq, unix=1e9 - seq * 1e6, boottime=-5.0 * seq).encode()
        heartbeat_path(task_dir, HOLDER).write_bytes(record)
        assert look_for(watcher, clock, 10) == set()


def test_a_holder_that_never_beats_is_stale_too(watcher, clock):
    assert look_for(watcher, clock, 80) == set()
    assert look_for(watcher, clock, 20) == {HOLDER}


def test_each_holder_is_judged_from_when_it_was_first_asked_for(heartbeat, watcher, clock):
    heartbeat()
    assert look_for(watcher, clock, 60) == set()

    assert look_for(watcher, clock, 40, [HOLDER, "t-w2-0.x"]) == {HOLDER}
    assert look_for(watcher, clock, 60, [HOLDER, "t-w2-0.x"]) == {HOLDER, "t-w2-0.x"}


def test_a_holder_that_was_not_asked_for_meanwhile_starts_anew(heartbeat, watcher, clock):
    heartbeat()
    assert look_for(watcher, clock, 80) == set()
    watcher.look([])

    assert look_for(watcher, clock, 80) == set()


def test_a_watcher_that_slept_itself_does_not_count_its_sleep(heartbeat, watcher, clock):
    heartbeat()
    watcher.look([HOLDER])
    clock.now += 10_000.0

    assert watcher.look([HOLDER]) == set()
    assert look_for(watcher, clock, 90 - int(LONGEST_GAP_S)) == {HOLDER}


def test_no_name_is_looked_up_that_a_listing_does_not_show(task_dir, watcher, monkeypatch):
    # On NFS the lookup would be remembered, and the first beat stay unseen for up to a minute
    opened = []
    real_open = open
    monkeypatch.setattr(
        "builtins.open", lambda path, *more: opened.append(str(path)) or real_open(path, *more)
    )
    watcher.look([HOLDER])

    assert opened == []
