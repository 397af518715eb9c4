"""Archives from outside: what tar programs write is read, everything else is refused by name."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from simrun.base.errors import InvalidInput
from simrun.model.snapshot import OWN_DIRECTORY, digest_of
from simrun.store import tars
from simrun.store.intake import SnapshotLimits
from simrun.store.runs import RunStore
from simrun.store.snapshots import Making, SnapshotStore
from simrun.store.sources import hashed, look_through
from simrun.store.verification import verify

Archive = Callable[..., Path]


@pytest.fixture
def snapshots(store: RunStore) -> SnapshotStore:
    return SnapshotStore(store.layout)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Write an archive of members: (name, content) or TarInfo."""

    def write(
        *members: tuple[str, bytes] | tarfile.TarInfo, form: int = tarfile.PAX_FORMAT
    ) -> Path:
        path = tmp_path / "a.tar"
        with tarfile.open(path, "w", format=form) as tar:
            for member in members:
                if isinstance(member, tarfile.TarInfo):
                    tar.addfile(member)
                else:
                    info = tarfile.TarInfo(member[0])
                    info.size = len(member[1])
                    tar.addfile(info, io.BytesIO(member[1]))
        return path

    return write


def take(snapshots: SnapshotStore, path: Path, **how: str) -> str:
    making = Making("g", 0.0, **how)
    return snapshots.create_from_tar(path, making, "upload")[0].name


def link(name: str, kind: bytes, target: str = "a") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize("form", ["ustar", "pax", "gnu", "v7"])
def test_what_tar_writes_is_the_directory_it_was_made_of(
    snapshots: SnapshotStore, tmp_path: Path, form: str
) -> None:
    top = tmp_path / "d"
    (top / "empty").mkdir(parents=True)
    (top / "x").write_text("x\n")
    (top / "x").chmod(0o755)
    (top / "zero").write_bytes(b"")
    if form != "v7":
        deep = top / ("long" * 20) / ("name" * 20)
        deep.mkdir(parents=True)
        (deep / "file-é").write_bytes(os.urandom(1_500_000))
    subprocess.run(
        ["tar", "-C", top, f"--format={form}", "-cf", tmp_path / "d.tar", "."], check=True
    )
    name = take(snapshots, tmp_path / "d.tar")
    expected = digest_of(hashed(look_through(top, SnapshotLimits())))
    assert snapshots.get(name).digest == expected
    assert verify(snapshots, name) == []


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/../../x", "/etc/passwd", "a/..", "..", "a//../b", "./../x", "a/./b", "a\0b"),
        *("x" * 256, "/".join("a" * 65), "a/" * 1500 + "a"),
    ],
)
def test_a_path_that_leads_out_or_nowhere_is_refused(
    snapshots: SnapshotStore, archive: Archive, tmp_path: Path, name: str
) -> None:
    before = {str(path) for path in tmp_path.rglob("*")}
    path = archive((name, b"x"), ("fine", b"y"))
    if "\0" in name:
        path = raw(path, name.encode())
    with pytest.raises(InvalidInput, match="file"):
        take(snapshots, path)
    assert os.listdir(snapshots.layout.snapshots) == []
    assert {str(path) for path in tmp_path.rglob("*")} - before <= {
        str(path),
        str(snapshots.layout.snapshots_made),
    }


def raw(path: Path, name: bytes) -> Path:
    """Put a name into a pax header, where it may hold anything."""
    record = b" path=" + name + b"\n"
    record = str(len(record) + 2).encode() + record
    header = tarfile.TarInfo("h")
    header.size, header.type = len(record), b"x"
    block = header.tobuf(tarfile.USTAR_FORMAT)
    path.write_bytes(block + record.ljust(512, b"\0") + path.read_bytes())
    return path


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a FIFO"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (b"Z", "a kind that is not known"),
    ],
)
def test_what_is_neither_file_nor_directory_is_refused_by_name(
    snapshots: SnapshotStore, archive: Archive, kind: bytes, text: str
) -> None:
    with pytest.raises(InvalidInput, match=f"is .*{text}.*'odd'"):
        take(snapshots, archive(("a", b"a"), link("odd", kind)))
    assert os.listdir(snapshots.layout.snapshots) == []


def test_a_hard_link_to_what_came_before_is_that_file_again(
    snapshots: SnapshotStore, tmp_path: Path
) -> None:
    top = tmp_path / "d"
    (top / "z").mkdir(parents=True)
    (top / "a").write_text("a" * 1000)
    (top / "link").symlink_to("a")
    os.link(top / "a", top / "z" / ("long" * 40))
    for form in ("gnu", "pax"):
        command = ["tar", "-C", top, f"--format={form}", "-hcf", tmp_path / "d.tar", "."]
        subprocess.run(command, check=True)
        name = take(snapshots, tmp_path / "d.tar")
        entries = list(snapshots.entries(name))
        assert [entry.path for entry in entries] == ["a", "link", "z/" + "long" * 40]
        assert snapshots.get(name).digest == digest_of(hashed(look_through(top, SnapshotLimits())))
        assert verify(snapshots, name) == []


@pytest.mark.parametrize(
    "target", ["b", "../../secret", "/etc/passwd", "", "d", ".", OWN_DIRECTORY]
)
def test_a_hard_link_to_anything_else_is_refused(
    snapshots: SnapshotStore, archive: Archive, tmp_path: Path, target: str
) -> None:
    (tmp_path / "secret").write_text("s")
    members = (("d/a", b"a"), link("odd", tarfile.LNKTYPE, target), ("b", b"b"))
    with pytest.raises(InvalidInput, match="'odd'"):
        take(snapshots, archive(*members))
    for path in ("d/a", "../odd", "d"):
        with pytest.raises(InvalidInput, match="file"):
            take(snapshots, archive(("d/a", b"a"), link(path, tarfile.LNKTYPE, "d/a")))
    assert os.listdir(snapshots.layout.snapshots) == []


def test_hard_links_count_like_files(store: RunStore, archive: Archive) -> None:
    links = [link(f"l{n}", tarfile.LNKTYPE) for n in range(5)]
    path = archive(("a", b"a" * 100), *links)
    for limits in (SnapshotLimits(files=5), SnapshotLimits(bytes=599)):
        with pytest.raises(InvalidInput, match="has more than"):
            take(SnapshotStore(store.layout, limits), path)
    take(SnapshotStore(store.layout, SnapshotLimits(files=6, bytes=600)), path)


def test_a_link_and_a_file_behind_it_write_nothing_outside(
    snapshots: SnapshotStore, archive: Archive, tmp_path: Path
) -> None:
    path = archive(link("d", tarfile.SYMTYPE, str(tmp_path)), ("d/planted", b"x"))
    with pytest.raises(InvalidInput, match="a symbolic link"):
        take(snapshots, path)
    assert not (tmp_path / "planted").exists()


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_two_of_one_name_are_refused(
    snapshots: SnapshotStore, archive: Archive, names: tuple[str, str]
) -> None:
    with pytest.raises(InvalidInput, match="is there twice"):
        take(snapshots, archive(*((name, b"x") for name in names)))
    assert os.listdir(snapshots.layout.snapshots) == []


def test_what_is_simruns_own_in_an_archive_counts_not(
    snapshots: SnapshotStore, archive: Archive
) -> None:
    name = take(snapshots, archive(("a", b"a"), (f"{OWN_DIRECTORY}/snapshot.json", b"{}")))
    assert [entry.path for entry in snapshots.entries(name)] == ["a"]
    assert verify(snapshots, name) == []


def test_a_digest_that_is_not_that_of_what_came_is_refused(
    snapshots: SnapshotStore, archive: Archive
) -> None:
    with pytest.raises(InvalidInput, match="digest: is not what arrived"):
        take(snapshots, archive(("a", b"a")), digest="sha256:" + "0" * 64)
    assert os.listdir(snapshots.layout.snapshots) == []


@pytest.mark.parametrize("keep", [0, 100, 512, 700, 1024, 1100, 1536])
def test_an_archive_that_is_cut_is_refused(
    snapshots: SnapshotStore, archive: Archive, keep: int
) -> None:
    path = archive(("a", b"a" * 600), form=tarfile.USTAR_FORMAT)
    os.truncate(path, keep)
    with pytest.raises(InvalidInput, match="ends in the middle"):
        take(snapshots, path)
    assert os.listdir(snapshots.layout.snapshots) == []


def test_a_compressed_archive_is_refused_with_the_remedy(
    snapshots: SnapshotStore, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        tar.add(__file__, "a")
    with pytest.raises(InvalidInput, match="compressed; make one with"):
        take(snapshots, tmp_path / "a.tgz")


def test_a_header_that_claims_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    header = tarfile.TarInfo("h")
    header.size, header.type = 2**30, b"x"
    with pytest.raises(InvalidInput, match="a header in it has"):
        list(tars.members(io.BytesIO(header.tobuf(tarfile.USTAR_FORMAT) + b"x" * 2000)))


def test_sizes_in_a_pax_header_and_in_binary_count() -> None:
    big = tarfile.TarInfo("big")
    big.size = 9 * 2**30  # too much for the octal digits
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        read = tars.members(io.BytesIO(big.tobuf(form) + b"x" * 100))
        member, _ = next(read)
        assert (member.path, member.size) == ("big", 9 * 2**30)
        with pytest.raises(InvalidInput, match="ends in the middle"):
            next(read)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2600), st.integers(0, 255)), min_size=1, max_size=6),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_a_damaged_archive_is_read_or_refused_but_never_anything_else(
    damage: list[tuple[int, int]], form: int
) -> None:
    info = tarfile.TarInfo("d" * 120 + "/é")
    info.size = 300
    data = bytearray(info.tobuf(form) + b"x" * 512 + b"\0" * 1024)
    for place, value in damage:
        data[place % len(data)] = value
    try:
        for member, read in tars.members(io.BytesIO(bytes(data))):
            assert isinstance(member.path, str)
            while read(100):
                pass
    except InvalidInput:
        pass


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=1536))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        list(tars.members(io.BytesIO(data)))
    except InvalidInput:
        pass
