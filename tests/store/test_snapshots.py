"""Snapshots in a store: whole or not at all, never changed, of one group."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from simrun.base.errors import Conflict, InvalidInput, NotFound
from simrun.model.snapshot import OWN_DIRECTORY, Snapshot, digest_of
from simrun.store.intake import SnapshotLimits
from simrun.store.layout import StoreLayout
from simrun.store.runs import RunStore
from simrun.store.snapshots import Making, SnapshotStore
from simrun.store.sources import hashed, look_through
from simrun.store.verification import verify
from simrun.worker import files
from tests.mounts import two_views


@pytest.fixture
def snapshots(store: RunStore) -> SnapshotStore:
    return SnapshotStore(store.layout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    top = tmp_path / "mesh"
    (top / "deep" / "er").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "a.txt").write_text("a\n")
    (top / "deep" / "er" / "b.bin").write_bytes(bytes(range(256)) * 10)
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    return top


def make(snapshots: SnapshotStore, source: Path, **values: Any) -> Snapshot:
    return snapshots.create(source, Making(**{"group": "g", "created": 1.8e9, **values}))[0]


def temporary(snapshots: SnapshotStore) -> list[str]:
    return [name for name in os.listdir(snapshots.layout.snapshots) if name.startswith(".")]


def test_a_directory_becomes_a_snapshot_with_all_that_is_in_it(
    snapshots: SnapshotStore, data: Path
) -> None:
    made, new = snapshots.create(data, Making("g", 1.8e9, owner="ann", name="mesh"))
    assert new
    assert (made.name, made.group, made.owner, made.files, made.bytes, made.created) == (
        *("mesh", "g", "ann", 3),
        2 + 2560 + 10,
        1.8e9,
    )
    top = snapshots.path("mesh")
    assert (top / "a.txt").read_text() == "a\n"
    assert (top / "deep/er/b.bin").read_bytes() == (data / "deep/er/b.bin").read_bytes()
    assert (top / "empty").is_dir()
    assert os.access(top / "run.sh", os.X_OK)
    assert snapshots.get("mesh") == made
    assert snapshots.all() == [made]
    paths = [entry.path for entry in snapshots.entries("mesh")]
    assert paths == ["a.txt", "deep/er/b.bin", "empty/", "run.sh"]
    assert verify(snapshots, "mesh") == []
    assert temporary(snapshots) == []


def test_what_a_snapshot_holds_cannot_be_written_to(snapshots: SnapshotStore, data: Path) -> None:
    make(snapshots, data, name="mesh")
    for directory, directories, names in os.walk(snapshots.path("mesh")):
        for name in (".", *directories, *names):
            assert os.stat(os.path.join(directory, name)).st_mode & 0o222 == 0


def test_a_pod_of_another_uid_reads_and_cannot_write(snapshots: SnapshotStore, data: Path) -> None:
    (data / "a.txt").chmod(0o600)
    make(snapshots, data, name="mesh")
    # Nothing is imported after the change of users, who may not read this Python
    code = (
        "import os; os.setuid(12345); os.write(1, os.read(os.open('a.txt', os.O_RDONLY), 9));"
        "os.open('a.txt', os.O_WRONLY)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=snapshots.path("mesh"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "a\n"
    assert "PermissionError" in ran.stderr


def test_the_same_content_in_the_same_group_is_the_same_snapshot(
    snapshots: SnapshotStore, data: Path, tmp_path: Path
) -> None:
    made = make(snapshots, data, name="mesh")
    assert snapshots.create(data, Making("g", 1.9e9, name="other")) == (made, False)
    copy = tmp_path / "copy"
    (data / "a.txt").rename(data / "moved")
    (data / "moved").rename(data / "a.txt")
    os.utime(data / "a.txt", (1, 1))
    data.rename(copy)
    assert snapshots.create(copy, Making("g", 1.9e9)) == (made, False)
    assert snapshots.all() == [made]


def test_another_group_has_a_snapshot_of_its_own(snapshots: SnapshotStore, data: Path) -> None:
    mine, others = make(snapshots, data), make(snapshots, data, group="h")
    assert mine.digest == others.digest
    assert mine.name != others.name
    assert snapshots.all({"h"}) == [others]
    assert snapshots.find("g", mine.digest) == mine
    assert snapshots.get(mine.name, {"g"}) == mine
    with pytest.raises(NotFound, match="no snapshot"):
        snapshots.get(mine.name, {"h"})


def test_a_name_that_nobody_chose_tells_what_it_was_made_from(
    snapshots: SnapshotStore, data: Path
) -> None:
    made = make(snapshots, data)
    assert made.name.startswith("mesh-")
    assert snapshots.create(data, Making("g", 0.0))[0].name == made.name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".a", "-a", "a\n", "x" * 64, "ä", "a b"])
def test_what_cannot_be_a_name_is_refused(snapshots: SnapshotStore, data: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="name"):
        make(snapshots, data, name=name)
    with pytest.raises(NotFound):
        snapshots.get(name)
    assert os.listdir(snapshots.layout.snapshots) == []


def test_a_name_stands_for_one_content(snapshots: SnapshotStore, data: Path) -> None:
    first = make(snapshots, data, name="mesh")
    (data / "a.txt").write_text("b\n")
    with pytest.raises(Conflict, match="'mesh' has other content"):
        make(snapshots, data, name="mesh")
    with pytest.raises(Conflict, match="the name 'mesh' is taken"):
        make(snapshots, data, name="mesh", group="h")
    (snapshots.layout.snapshots / "by-hand").mkdir()
    with pytest.raises(Conflict, match="the name 'by-hand' is taken"):
        make(snapshots, data, name="by-hand")
    assert snapshots.all() == [first]
    assert temporary(snapshots) == []


def test_ten_at_once_make_one(snapshots: SnapshotStore, data: Path) -> None:
    made: list[tuple[Snapshot, bool]] = []
    threads = [
        threading.Thread(target=lambda: made.append(snapshots.create(data, Making("g", 0.0))))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({item.name for item, _ in made}) == 1
    assert [new for _, new in made].count(True) == 1
    assert len(os.listdir(snapshots.layout.snapshots)) == 1


def test_links_inside_are_followed(snapshots: SnapshotStore, data: Path) -> None:
    (data / "to-file").symlink_to("deep/er/b.bin")
    (data / "to-directory").symlink_to(data / "deep")
    made = make(snapshots, data)
    top = snapshots.path(made.name)
    assert not (top / "to-file").is_symlink()
    assert (top / "to-directory/er/b.bin").stat().st_size == 2560


def test_everything_that_cannot_go_in_is_named_and_never_opened(
    snapshots: SnapshotStore, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    (data / "out").symlink_to(tmp_path / "secret")
    (data / "nothing").symlink_to("not-there")
    (data / "circle").symlink_to(".")
    (data / "self").symlink_to("self")
    os.mkfifo(data / "fifo")
    os.mknod(data / "null", 0o20666, os.makedev(1, 3))
    (data / os.fsdecode(b"latin-\xe4")).write_text("x")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(data / "sock"))
        with pytest.raises(InvalidInput) as caught:
            make(snapshots, data)
    text = str(caught.value)
    for part in (
        "out: is a link out of the directory",
        "nothing: is a link to nothing",
        "circle: is a link that leads in a circle",
        "self: is a link to nothing",
        "fifo: is a FIFO",
        "null: is a device",
        "sock: is a socket",
        "has a name that is not UTF-8",
    ):
        assert part in text
    assert os.listdir(snapshots.layout.snapshots) == []


def test_more_than_the_limits_is_refused(store: RunStore, data: Path) -> None:
    for limits, text in (
        (SnapshotLimits(files=2), "more than 2 files"),
        (SnapshotLimits(bytes=100), "more than 100 bytes"),
    ):
        with pytest.raises(InvalidInput, match=text):
            make(SnapshotStore(store.layout, limits), data)


def test_nothing_makes_no_snapshot(snapshots: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="no file in it"):
        make(snapshots, tmp_path / "empty")
    with pytest.raises(NotFound, match="no file or directory"):
        make(snapshots, tmp_path / "missing")
    assert os.listdir(snapshots.layout.snapshots) == []


def test_a_file_becomes_a_snapshot_of_itself(snapshots: SnapshotStore, data: Path) -> None:
    made = make(snapshots, data / "a.txt")
    assert made.name.startswith("a.txt-")
    assert [entry.path for entry in snapshots.entries(made.name)] == ["a.txt"]


def test_a_file_that_changes_while_it_is_read_stops_it(
    snapshots: SnapshotStore, data: Path
) -> None:
    def write(_count: int) -> None:
        with open(data / "a.txt", "a") as file:
            file.write("more")

    with pytest.raises(InvalidInput, match="changed while it was read"):
        snapshots.create(data, Making("g", 0.0), write)
    assert os.listdir(snapshots.layout.snapshots) == []


def test_the_store_is_left_out_of_a_snapshot_of_the_directory_it_lies_in(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "work" / ".simrun")
    store.open()
    (tmp_path / "work" / "a").write_text("a")
    snapshots = SnapshotStore(store.layout)
    made = make(snapshots, tmp_path / "work")
    assert [entry.path for entry in snapshots.entries(made.name)] == ["a"]


def test_a_snapshot_taken_as_data_has_its_own_content_only(
    snapshots: SnapshotStore, data: Path
) -> None:
    made = make(snapshots, data)
    assert snapshots.create(snapshots.path(made.name), Making("g", 0.0)) == (made, False)


def test_verify_names_what_differs(snapshots: SnapshotStore, data: Path) -> None:
    (data / "gone").write_text("x")
    (data / "longer").write_text("x")
    (data / "script").write_text("x")
    (data / "link").write_text("x")
    make(snapshots, data, name="mesh")
    top = snapshots.path("mesh")
    for directory in (top, top / "deep"):
        directory.chmod(0o755)
    for name in ("a.txt", "longer"):
        (top / name).chmod(0o644)
    (top / "a.txt").write_text("b\n")
    (top / "longer").write_text("xx")
    (top / "script").chmod(0o755)
    (top / "gone").unlink()
    (top / "link").unlink()
    (top / "link").symlink_to("/dev/zero")
    (top / "empty").rmdir()
    (top / "deep" / "new").write_text("n")
    found = verify(snapshots, "mesh")
    assert [line.split(":")[0] for line in found] == [
        *("a.txt", "empty/", "gone", "link", "longer", "script", "deep/new"),
    ]
    text = "\n".join(found)
    for part in ("has sha256", "is missing", "no file any more", "has 2 bytes, not 1"):
        assert part in text
    assert "deep/new: is not of the snapshot" in text


def test_verify_knows_a_list_that_is_not_that_of_the_digest(
    snapshots: SnapshotStore, data: Path
) -> None:
    make(snapshots, data, name="mesh")
    listing = snapshots.path("mesh") / OWN_DIRECTORY / "files.jsonl"
    lines = listing.read_bytes().splitlines(keepends=True)
    listing.chmod(0o644)
    listing.write_bytes(b"".join(lines[1:]))
    found = verify(snapshots, "mesh")
    assert any("is not the list of sha256:" in line for line in found)
    assert "a.txt: is not of the snapshot" in found


def test_a_snapshot_that_is_used_is_not_deleted(snapshots: SnapshotStore, data: Path) -> None:
    made = make(snapshots, data)
    with pytest.raises(Conflict, match="is used by run1, run2"):
        snapshots.delete(made.name, lambda: ["run1", "run2"])
    assert snapshots.get(made.name) == made
    assert snapshots.delete(made.name, list) == made
    assert os.listdir(snapshots.layout.snapshots) == []
    with pytest.raises(NotFound):
        snapshots.delete(made.name, list)


def test_nothing_is_deleted_while_a_run_that_may_use_it_comes_into_being(
    snapshots: SnapshotStore, data: Path
) -> None:
    made = make(snapshots, data)
    asked = threading.Semaphore(0)

    def users() -> list[str]:
        asked.release()
        return []

    with snapshots.held(), snapshots.held():
        thread = threading.Thread(target=snapshots.delete, args=(made.name, users))
        thread.start()
        assert asked.acquire(timeout=20)  # the first look waits for nobody
        assert not asked.acquire(timeout=0.2)
        assert snapshots.get(made.name) == made
    assert asked.acquire(timeout=20)
    thread.join()
    assert snapshots.all() == []


MAKER = """
import sys
from pathlib import Path
from simrun.store.layout import StoreLayout
from simrun.store.snapshots import Making, SnapshotStore

def stop(count):
    print("half-way", flush=True)
    sys.stdin.read()

SnapshotStore(StoreLayout(Path(sys.argv[1]))).create(Path(sys.argv[2]), Making("g", 0.0, name="mesh"), stop)
"""


def test_a_killed_maker_leaves_nothing_to_see_and_its_half_is_swept(
    snapshots: SnapshotStore, data: Path
) -> None:
    root = snapshots.layout.root
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(root), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"half-way\n"
        assert snapshots.all() == []
        assert snapshots.sweep(left_s=-3600) == 0  # it lives, and holds its lock
        maker.send_signal(signal.SIGKILL)
    assert snapshots.all() == []
    assert files.listing(root / "snapshots") == set()
    assert len(temporary(snapshots)) == 1
    assert snapshots.sweep() == 0  # too young to be sure of
    assert snapshots.sweep(left_s=-3600) == 1
    assert temporary(snapshots) == []
    assert make(snapshots, data, name="mesh").name == "mesh"


def test_the_digest_does_not_depend_on_where_and_when(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "é\n").write_text("x")
    found = look_through(tmp_path / "d", SnapshotLimits())
    content = hashlib.sha256(b"x").hexdigest()
    line = '{"path":"\\u00e9\\n","size":1,"sha256":"' + content + '"}\n'
    assert digest_of(hashed(found)) == "sha256:" + hashlib.sha256(line.encode()).hexdigest()


def test_what_another_host_made_is_seen_though_it_was_missing_a_moment_ago(data: Path) -> None:
    with two_views() as (here, there):
        RunStore(here).open()
        mine, theirs = SnapshotStore(StoreLayout(here)), SnapshotStore(StoreLayout(there))
        with pytest.raises(NotFound):
            theirs.get("mesh")
        assert not theirs.by_hand("hand")
        assert not (there / "snapshots" / "mesh" / OWN_DIRECTORY / "snapshot.json").exists()
        assert not (there / "snapshots" / "hand").exists()
        made = make(mine, data, name="mesh")
        (here / "snapshots" / "hand").mkdir()
        assert theirs.get("mesh") == made
        assert theirs.by_hand("hand")
        assert verify(theirs, "mesh") == []
        mine.delete("mesh", list)
        with pytest.raises(NotFound):
            theirs.get("mesh")


def test_a_store_without_snapshots_has_none(tmp_path: Path) -> None:
    snapshots = SnapshotStore(StoreLayout(tmp_path / "nowhere"))
    assert snapshots.all() == []
    assert snapshots.sweep() == 0
