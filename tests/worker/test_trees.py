from __future__ import annotations

import os
from pathlib import Path

import pytest

from simrun.worker import trees
from simrun.worker.endings import StoreError, TerminatedError


def test_sync_counts_regular_files_and_opens_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"1")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "up").symlink_to("..")
    assert trees.sync(tmp_path) == trees.Size(files=2, bytes=6)


def test_remove_takes_whatever_is_there_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    top = tmp_path / "top"
    (top / "locked" / "deeper").mkdir(parents=True)
    (top / "locked" / "deeper" / "file").touch()
    (top / "out").symlink_to(outside)
    os.mkfifo(top / "pipe")
    (top / "locked" / "deeper").chmod(0o500)
    (top / "locked").chmod(0o000)
    trees.remove(top)
    assert not top.exists()
    assert (outside / "kept").exists()
    trees.remove(top)  # nothing there is fine


def test_remove_takes_a_single_file_or_link(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    trees.remove(tmp_path / "link")
    assert (tmp_path / "target").exists()
    trees.remove(tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


def test_copy_follows_links_and_keeps_what_may_be_run(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (tmp_path / "data").write_text("far")
    (source / "link").symlink_to(tmp_path / "data")
    size = trees.copy(source, tmp_path / "target")
    assert size == trees.Size(files=2, bytes=13)
    assert os.access(tmp_path / "target" / "sub" / "run.sh", os.X_OK)
    assert not (tmp_path / "target" / "link").is_symlink()
    assert (tmp_path / "target" / "link").read_text() == "far"


def test_copy_refuses_links_in_a_circle_and_what_is_no_file(tmp_path: Path) -> None:
    circle = tmp_path / "circle"
    circle.mkdir()
    (circle / "again").symlink_to(circle)
    with pytest.raises(StoreError, match="circle"):
        trees.copy(circle, tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="neither a file nor a directory"):
        trees.copy(tmp_path / "pipe", tmp_path / "b")


def test_copy_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3 * 2**20))

    def check() -> None:
        raise TerminatedError("stop")

    with pytest.raises(TerminatedError):
        trees.copy(tmp_path / "big", tmp_path / "copy", check)
