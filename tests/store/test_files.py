"""What a run store asks of its file system, tried on real mounts; removal; and no way out of a run by links."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

import pytest

from simrun.base.errors import NotFound, UnsupportedStore
from simrun.store.files import open_beneath, probe, remove_tree
from simrun.store.runs import RunStore
from simrun.worker import files
from tests.mounts import mounted, two_views, without_hard_links

# --- the probe -----------------------------------------------------------------------------------------------------------


def test_a_local_directory_passes_the_probe_and_nothing_stays_of_it(tmp_path: Path) -> None:
    probe(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_is_refused_by_name_with_the_remedy() -> None:
    with without_hard_links() as place:
        with pytest.raises(UnsupportedStore) as caught:
            probe(place)
        text = str(caught.value)
        assert list(place.iterdir()) == []
    assert str(place) in text
    assert "cannot make a hard link: Operation not permitted" in text
    assert "put the store on a local disk or on NFS" in text


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("-r", "create and fsync a file: Read-only file system"),
        ("--rename-deny", "rename a file: Operation not permitted"),
        ("--delete-deny", "remove a file: Operation not permitted"),
    ],
)
def test_the_probe_says_what_a_file_system_cannot_do(
    option: str, what: str, tmp_path: Path
) -> None:
    with mounted(tmp_path, option) as place, pytest.raises(UnsupportedStore) as caught:
        probe(place)
    assert f"{place}: cannot {what}" in str(caught.value)
    assert f"uid {os.geteuid()} may write" in str(caught.value)


def test_a_store_in_a_place_where_nothing_can_be_made_is_refused_with_path_and_user(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path, "-r") as place, pytest.raises(UnsupportedStore) as caught:
        RunStore(place / "store").open()
    assert "cannot make directories: Read-only file system" in str(caught.value)
    assert str(place) in str(caught.value)


def test_a_file_in_the_place_of_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(UnsupportedStore, match="Not a directory"):
        RunStore(tmp_path / "store").open()


def test_a_store_opens_in_directories_that_are_not_there_yet_and_again(tmp_path: Path) -> None:
    for _ in range(2):
        RunStore(tmp_path / "new" / "store").open()
    assert (tmp_path / "new" / "store" / "runs").is_dir()


# --- stale lookups -------------------------------------------------------------------------------------------------------


def test_a_listing_sees_what_a_lookup_denies_for_a_minute() -> None:
    with two_views() as (here, there):
        assert not os.path.exists(here / "out" / "marker")
        assert not files.listed(here, "out", "marker")

        (there / "out").mkdir()
        (there / "out" / "marker").write_text("")

        assert not os.path.exists(here / "out")
        assert files.listing(here) == {"out"}
        assert files.listed(here, "out")
        assert files.listed(here, "out", "marker")
        assert not files.listed(here, "out", "other")


def test_a_listing_sees_a_file_in_a_directory_that_was_known() -> None:
    with two_views() as (here, there):
        (there / "out").mkdir()
        assert not os.path.exists(here / "out" / "marker")
        (there / "out" / "marker").write_text("")

        assert not os.path.exists(here / "out" / "marker")
        assert files.listed(here, "out", "marker")


def test_an_exclusive_creation_loses_against_a_name_that_its_own_cache_denies() -> None:
    with two_views() as (here, there):
        assert not os.path.exists(here / "claim")
        assert files.create(there / "claim", b"theirs")
        assert not os.path.exists(here / "claim")

        assert not files.create(here / "claim", b"mine")

        assert (there / "claim").read_bytes() == b"theirs"


# --- what is no file -----------------------------------------------------------------------------------------------------


def test_a_fifo_or_a_device_in_the_place_of_a_file_is_refused_and_never_blocks(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "device"):
        with pytest.raises(OSError, match="Not a regular file"):
            files.read(tmp_path / name)


# --- removal -------------------------------------------------------------------------------------------------------------


def test_removal_takes_links_away_and_leaves_what_they_point_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    run = tmp_path / "run"
    (run / "tasks").mkdir(parents=True)
    (run / "tasks" / "out").symlink_to(outside)
    (run / "up").symlink_to("..")
    (run / "broken").symlink_to("nowhere")
    os.mkfifo(run / "fifo")

    remove_tree(run)

    assert not run.exists()
    assert (outside / "precious").read_text() == "kept"


def test_removal_of_what_is_gone_or_a_file_is_fine(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    remove_tree(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_two_removals_at_once_leave_nothing(tmp_path: Path) -> None:
    for number in range(5):
        root = tmp_path / str(number)
        for directory in range(20):
            (root / f"{directory}" / "deep").mkdir(parents=True)
            for name in range(5):
                (root / f"{directory}" / "deep" / f"{name}").write_text("")
        both = threading.Barrier(2)

        def remove(root: Path = root, both: threading.Barrier = both) -> None:
            both.wait()
            remove_tree(root)

        threads = [threading.Thread(target=remove) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not root.exists()


# --- beneath a run -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory in which a pod has left traps."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "run"
    (root / "logs").mkdir(parents=True)
    (root / "logs" / "plain.log").write_text("text")
    (root / "logs" / "link.log").symlink_to(tmp_path / "secret")
    (root / "logs" / "chain.log").symlink_to("link.log")
    (root / "logs" / "zero.log").symlink_to("/dev/zero")
    os.mkfifo(root / "logs" / "fifo.log")
    (root / "out").symlink_to("..")
    return root


def test_a_plain_file_beneath_a_run_is_opened(run: Path) -> None:
    fd = open_beneath(run, "logs", "plain.log")
    assert os.read(fd, 100) == b"text"
    os.close(fd)


@pytest.mark.parametrize(
    "names",
    [
        ("logs", "link.log"),
        ("logs", "chain.log"),
        ("logs", "zero.log"),
        ("logs", "fifo.log"),
        ("logs", "none.log"),
        ("out", "secret"),
        ("..", "secret"),
        ("logs", "..", "..", "secret"),
        ("logs/plain.log",),
        ("logs", "plain.log\0.txt"),
        ("",),
        (".",),
        ("logs", "plain.log", "more"),
    ],
)
def test_nothing_beneath_a_run_leads_out_blocks_or_tells_what_is_outside(
    run: Path, names: tuple[str, ...]
) -> None:
    with pytest.raises(NotFound, match="no file"):
        open_beneath(run, *names)
    assert left_open(run.parent) == []


def test_a_file_that_another_host_wrote_is_opened_though_it_was_denied_a_moment_ago() -> None:
    with two_views() as (here, there):
        (here / "out").mkdir()
        for names in (("out", "a", "b"), ("out", "c")):
            with pytest.raises(NotFound):
                open_beneath(there, *names)
            assert not there.joinpath(*names).exists()
        (here / "out" / "a").mkdir()
        (here / "out" / "a" / "b").write_text("text")
        (here / "out" / "c").write_text("text")
        assert not (there / "out" / "c").exists()  # the kernel answers, not the file server

        for names in (("out", "a", "b"), ("out", "c")):
            fd = open_beneath(there, *names)
            assert os.read(fd, 100) == b"text"
            os.close(fd)
        assert sorted(os.listdir(here / "out")) == ["a", "c"]


def left_open(top: Path) -> list[str]:
    """What this process has open below a directory, or of what a link there leads to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing, or another thread's
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if Path(path).is_relative_to(top) or path == "/dev/zero"]


def test_an_open_store_leaves_no_temporary_files_of_its_probes() -> None:
    with tempfile.TemporaryDirectory() as place:
        RunStore(Path(place)).open()
        assert not [name for name in os.listdir(place) if name.startswith(".")]


def test_a_file_that_a_listing_shows_is_read_though_lookups_of_it_are_denied() -> None:
    with two_views() as (here, there):
        assert files.read(here / "report") is None
        (there / "report").write_text("{}")
        assert files.read(here / "report") is None
        assert "report" in files.listing(here)

        assert files.read(here / "report", listed=True) == b"{}"
        assert files.read(here / "report") == b"{}"


def test_a_name_that_went_away_after_its_listing_is_not_there_and_not_made(tmp_path: Path) -> None:
    assert files.read(tmp_path / "gone", listed=True) is None
    assert list(tmp_path.iterdir()) == []
