import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from simrun.worker import files


def failing(real, code, times, *, after=False):
    """Give a function that fails so many times as a store would: before it did anything, or after (a lost reply)."""
    left = [times]

    def call(*arguments, **options):
        if not left[0]:
            return real(*arguments, **options)
        left[0] -= 1
        if after:
            real(*arguments, **options)
        raise OSError(code, os.strerror(code))

    return call


def test_a_new_file_is_there_whole_and_never_written_over(tmp_path):
    files.write_synced(tmp_path / "a", b"x" * 100_000)

    assert (tmp_path / "a").read_bytes() == b"x" * 100_000
    with pytest.raises(FileExistsError):
        files.write_synced(tmp_path / "a", b"y")
    assert (tmp_path / "a").read_bytes() == b"x" * 100_000


def test_a_write_that_fails_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing(os.fsync, errno.ENOSPC, 1))

    with pytest.raises(OSError, match="No space left"):
        files.create(tmp_path / "a", b"x")
    assert list(tmp_path.iterdir()) == []


def test_temporary_names_differ_between_processes_that_look_alike(tmp_path):
    read_end, write_end = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write_end, files.temporary_name(tmp_path).name.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    other = os.read(read_end, 200).decode()
    os.close(read_end)
    os.close(write_end)

    mine = files.temporary_name(tmp_path).name
    assert mine != other
    assert mine.startswith(files.TEMPORARY_PREFIX)
    assert len(mine) < 100


def test_replace_changes_the_whole_content(tmp_path):
    files.replace(tmp_path / "a", b"first")
    files.replace(tmp_path / "a", b"second")

    assert (tmp_path / "a").read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["a"]


def test_replace_bears_a_lost_reply(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "rename", failing(os.rename, errno.EIO, 1, after=True))
    files.replace(tmp_path / "a", b"x")

    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_replace_that_fails_leaves_the_old_content_and_no_litter(tmp_path, monkeypatch):
    files.replace(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "rename", failing(os.rename, errno.EIO, 1))

    with pytest.raises(OSError, match="Input/output"):
        files.replace(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_of_two_links_one_wins(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)

    assert files.link(tmp_path / "one", tmp_path / "target")
    assert not files.link(tmp_path / "other", tmp_path / "target")
    assert (tmp_path / "target").read_text() == "one"


@pytest.mark.parametrize("code", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_whose_reply_was_lost_is_won(tmp_path, monkeypatch, code):
    (tmp_path / "one").touch()
    monkeypatch.setattr(os, "link", failing(os.link, code, 1, after=True))

    assert files.link(tmp_path / "one", tmp_path / "target")


def test_a_link_that_failed_where_another_stands_is_lost(tmp_path, monkeypatch):
    (tmp_path / "one").touch()
    (tmp_path / "target").touch()
    monkeypatch.setattr(os, "link", failing(os.link, errno.EIO, 1))

    assert not files.link(tmp_path / "one", tmp_path / "target")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_link_that_failed_with_nobody_at_the_target_is_an_error(tmp_path, monkeypatch, code):
    (tmp_path / "one").touch()
    monkeypatch.setattr(os, "link", failing(os.link, code, 1))

    with pytest.raises(OSError, match=os.strerror(code)):
        files.link(tmp_path / "one", tmp_path / "target")


def test_of_many_creators_one_wins_and_nothing_is_half_written(tmp_path):
    barrier = threading.Barrier(8)

    def create(number):
        barrier.wait()
        return files.create(tmp_path / "a", b"%d" % number * 10_000)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))

    assert won.count(True) == 1
    assert (tmp_path / "a").read_bytes() == b"%d" % won.index(True) * 10_000
    assert os.listdir(tmp_path) == ["a"]


def test_directories_are_made_with_their_parents(tmp_path):
    files.make_directory(tmp_path / "a" / "b" / "c")
    files.make_directory(tmp_path / "a" / "b" / "c")

    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_directory_that_a_cached_lookup_hides_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.setattr(os, "stat", failing(os.stat, errno.ENOENT, 100))

    files.make_directory(tmp_path / "a")


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError):
        files.make_directory(tmp_path / "file" / "a")


def test_a_listing_leaves_out_what_is_being_written(tmp_path):
    (tmp_path / "a").touch()
    files.temporary_name(tmp_path).touch()

    assert files.listing(tmp_path) == {"a"}
    assert files.listing(tmp_path / "nothing") == set()
    assert files.listing(tmp_path / "a") == set()


def test_a_path_is_looked_for_from_the_top(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()

    assert files.listed(tmp_path, "a", "b")
    assert not files.listed(tmp_path, "a", "c")
    assert not files.listed(tmp_path, "c", "b")


@pytest.mark.parametrize("what", ["open", "listdir"])
def test_a_stale_handle_is_tried_again(tmp_path, monkeypatch, what):
    (tmp_path / "a").write_bytes(b"x")
    module = "builtins" if what == "open" else "os"
    real = open if what == "open" else os.listdir
    monkeypatch.setattr(f"{module}.{what}", failing(real, errno.ESTALE, 2))

    assert (files.read(tmp_path / "a") if what == "open" else files.listing(tmp_path)) in (
        b"x",
        {"a"},
    )


def test_a_handle_that_stays_stale_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr("builtins.open", failing(open, errno.ESTALE, 100))

    with pytest.raises(OSError, match=r"[Ss]tale"):
        files.read(tmp_path / "a")


def test_a_file_that_is_not_there_reads_as_none(tmp_path):
    assert files.read(tmp_path / "a") is None
    assert files.read_json(tmp_path / "a") is None
    (tmp_path / "b").touch()
    assert files.read(tmp_path / "b" / "c") is None


def test_json_is_one_line_and_a_cut_one_is_an_error(tmp_path):
    data = files.encode({"a": ["ü", 1.5, None]})
    assert data == '{"a":["ü",1.5,null]}\n'.encode()
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "cut").write_bytes(data[:8])

    assert files.read_json(tmp_path / "whole") == {"a": ["ü", 1.5, None]}
    with pytest.raises(ValueError, match=r"unexpected end of data"):
        files.read_json(tmp_path / "cut")


def test_numbers_that_json_has_no_word_for_are_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.encode({"x": float("nan")})
