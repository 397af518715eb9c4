"""Logs in the store: chosen by worker and attempt, read on where reading stopped, never through a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simrun.base.errors import InvalidInput, NotFound
from simrun.store.logs import CHUNK, Log, LogReader, check_logs, last_lines, logs_of, of_attempt
from simrun.store.runs import RunStore


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def write(store: RunStore, name: str, text: bytes) -> Path:
    path = store.layout.run("r").task("t").logs / f"{name}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write(text)
    return path


def read(reader: LogReader) -> list[tuple[str, bytes]]:
    return [(log.name, piece) for log, piece in reader.read()]


def test_logs_are_in_the_order_of_worker_and_attempt_and_what_is_no_log_is_left_out(
    store: RunStore,
) -> None:
    for name in ("t-w10-0", "t-w2-1", "t-w2-0", "t-merge-0", "odd", "t-w1-x"):
        write(store, name, b"")
    (store.layout.run("r").task("t").logs / "t-w3-0.txt").touch()

    names = [log.name for log in logs_of(store, "r", "t")]

    assert names == ["t-w2-0", "t-w2-1", "t-w10-0", "t-merge-0"]
    assert logs_of(store, "r", "t", "w10") == logs_of(store, "r", "t", "t-w10") == [Log("t-w10", 0)]
    assert logs_of(store, "r", "t", "w1") == []
    assert logs_of(store, "r", "other") == []


def test_an_attempt_is_a_number_the_last_of_each_worker_or_all(store: RunStore) -> None:
    logs = [Log("w0", 0), Log("w0", 1), Log("w1", 0)]

    assert of_attempt(logs, "all") == logs
    assert of_attempt(logs, "last") == logs[1:]
    assert of_attempt(logs, "0") == [Log("w0", 0), Log("w1", 0)]
    for wrong in ("", "first", "-1", "\u0661"):
        with pytest.raises(InvalidInput, match="must be a number, last or all"):
            LogReader(store, "r", "t", attempt=wrong)


def test_reading_goes_on_where_it_stopped_and_takes_in_what_is_new(store: RunStore) -> None:
    write(store, "t-w0-0", b"one\n")
    reader = LogReader(store, "r", "t")

    assert read(reader) == [("t-w0-0", b"one\n")]
    assert read(reader) == []
    write(store, "t-w0-0", b"two")
    write(store, "t-w1-0", b"other\n")
    assert read(reader) == [("t-w0-0", b"two"), ("t-w1-0", b"other\n")]


def test_with_last_earlier_attempts_stay_out_and_later_ones_are_read_whole(store: RunStore) -> None:
    write(store, "t-w0-0", b"first\n")
    write(store, "t-w0-1", b"a\nb\n")
    reader = LogReader(store, "r", "t", attempt="last", lines=1)

    assert read(reader) == [("t-w0-1", b"b\n")]
    write(store, "t-w0-0", b"late words\n")
    write(store, "t-w0-2", b"c\nd\n")
    write(store, "t-w1-0", b"e\nf\n")
    assert read(reader) == [("t-w0-2", b"c\nd\n"), ("t-w1-0", b"e\nf\n")]


def test_a_tail_is_counted_in_bytes_too(store: RunStore) -> None:
    write(store, "t-w0-0", b"0123456789")

    assert read(LogReader(store, "r", "t", size=3)) == [("t-w0-0", b"789")]
    assert read(LogReader(store, "r", "t", size=99)) == [("t-w0-0", b"0123456789")]


def test_a_large_log_comes_in_pieces_up_to_where_it_ended_when_it_was_opened(
    store: RunStore,
) -> None:
    write(store, "t-w0-0", b"x" * (CHUNK + 1))
    reader = LogReader(store, "r", "t")
    pieces = reader.read()

    assert len(next(pieces)[1]) == CHUNK
    write(store, "t-w0-0", b"y" * CHUNK)
    assert [piece for _, piece in pieces] == [b"x"]
    assert [piece for _, piece in reader.read()] == [b"y" * CHUNK]


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_plain_file_is_passed_over_or_refused(
    store: RunStore, tmp_path: Path, kind: str
) -> None:
    write(store, "t-w0-0", b"log\n")
    place = store.layout.run("r").task("t").logs / "t-w1-0.log"
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    if kind == "link":
        place.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()

    assert read(LogReader(store, "r", "t")) == [("t-w0-0", b"log\n")]
    assert last_lines(store, "r", "t", Log("t-w1", 0), 3) == []
    with pytest.raises(NotFound):
        check_logs(store, "r", "t", logs_of(store, "r", "t"))


def test_last_lines_are_text_whatever_the_bytes_are(store: RunStore) -> None:
    write(store, "t-w0-0", b"one\ntwo\n\x80three")

    assert last_lines(store, "r", "t", Log("t-w0", 0), 2) == ["two", "�three"]
    assert last_lines(store, "r", "t", Log("t-w0", 1), 2) == []
