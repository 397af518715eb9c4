"""The parts of the test cluster that can be judged without starting it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from onenode import archive, daemons, layout, lock, programs, shell

LOCK = """\
cycler==0.12.1 \\
    --hash=sha256:01
    # via matplotlib
matplotlib==3.11.2 \\
    --hash=sha256:02
    # via simrun (pyproject.toml)
numpy==2.4.6 \\
    --hash=sha256:03
    # via
    #   matplotlib
    #   simrun (pyproject.toml)
pytest==9.2.0 \\
    --hash=sha256:04
    # via simrun (pyproject.toml:dev)
python-dateutil==4.0.0 \\
    --hash=sha256:05
    # via
    #   kubernetes-asyncio
    #   matplotlib
tzdata==2026.6 \\
    --hash=sha256:06
    # via python-dateutil
"""


def test_the_image_takes_what_the_wanted_packages_need_and_nothing_else() -> None:
    kept = lock.subset(LOCK, {"matplotlib"})

    pins = [line.split()[0] for line in kept.splitlines() if line[0].isalpha()]
    assert pins == [
        "cycler==0.12.1",
        "matplotlib==3.11.2",
        "numpy==2.4.6",
        "python-dateutil==4.0.0",
        "tzdata==2026.6",
    ]
    assert "sha256:05" in kept
    assert "sha256:04" not in kept


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(ValueError, match="the lock file has no rebound"):
        lock.subset(LOCK, {"rebound", "numpy"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/run").write_text("#!/bin/sh\n")
    (tree / "bin/run").chmod(0o4700)
    (tree / "bin/go").symlink_to("run")
    (tree / "secret").write_text("x")
    (tree / "secret").chmod(0o600)
    return tree


def test_an_unchanged_folder_is_an_unchanged_layer(tree: Path, tmp_path: Path) -> None:
    first = archive.pack(tree, tmp_path / "first.tar")
    os.utime(tree / "bin/run", (1, 1))
    second = archive.pack(tree, tmp_path / "second.tar")
    (tree / "secret").write_text("y")
    third = archive.pack(tree, tmp_path / "third.tar")

    assert first.digest == second.digest != third.digest
    assert archive.cached(tmp_path / "first.tar") == first


def test_a_user_who_owns_nothing_can_read_a_layer_and_not_rise_in_it(
    tree: Path, tmp_path: Path
) -> None:
    os.mkfifo(tree / "pipe")
    layer = archive.pack(tree, tmp_path / "layer.tar")

    with tarfile.open(layer.path) as tar:
        modes = {info.name: info.mode for info in tar if not info.issym()}
        owners = {info.uid for info in tar}
    assert modes == {".": 0o755, "./bin": 0o755, "./bin/run": 0o755, "./secret": 0o644}
    assert owners == {0}


def test_an_archive_leaves_out_the_layers_that_are_there_already(
    tree: Path, tmp_path: Path
) -> None:
    low = archive.pack(tree / "bin", tmp_path / "low.tar")
    high = archive.pack(tree, tmp_path / "high.tar")
    image = archive.image("registry.test/x:1", [low, high], ["/bin/run"])

    archive.export(image, tmp_path / "image.tar", without={low.digest})

    with tarfile.open(tmp_path / "image.tar") as tar:
        names = set(tar.getnames())
    assert f"blobs/{high.digest.replace(':', '/')}" in names
    assert f"blobs/{low.digest.replace(':', '/')}" not in names
    assert f"blobs/{image.digest.replace(':', '/')}" in names


@pytest.fixture
def two_named_etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """The pids of two programs of the same name, the first in this cluster's folder, the second
    elsewhere.
    """
    monkeypatch.setattr(layout, "BIN", tmp_path / "bin")
    processes = []
    for folder in (tmp_path / "bin/etcd-v0", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        program = shutil.copy("/bin/sleep", folder / "etcd")
        processes.append(subprocess.Popen([program, "600"]))
    shell.wait_for("the programs", lambda: all(map(daemons._command_line, pids(processes))))
    yield processes[0].pid, processes[1].pid
    for process in processes:
        process.kill()
        process.wait()


def pids(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    return [process.pid for process in processes]


def test_only_programs_of_this_cluster_are_found_and_stopped(
    two_named_etcd: tuple[int, int],
) -> None:
    own, foreign = two_named_etcd

    assert daemons.find("etcd") == [own]
    daemons.stop("etcd")

    assert daemons.find("etcd") == []
    assert daemons._command_line(foreign)


def test_a_folder_with_something_mounted_in_it_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(shell, "mounts_below", lambda path: [path / "mounted"])

    with pytest.raises(shell.ClusterError, match="still mounted: unmount it"):
        shell.remove(tmp_path)

    assert (tmp_path / "file").exists()


def test_mounts_are_listed_deepest_first() -> None:
    found = shell.mounts_below(Path("/"))

    assert Path("/proc") in found
    assert found[-1] == Path("/")


def test_modules_that_kubernetes_keeps_in_its_own_tree_are_taken_at_the_matching_version() -> None:
    go_mod = "require (\n\tk8s.io/api v0.0.0\n\tk8s.io/klog/v2 v2.130.1\n\tk8s.io/kubelet v0.0.0\n)"

    assert programs._staging_replacements(go_mod, "v1.34.4") == [
        "replace k8s.io/api => k8s.io/api v0.34.4",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.34.4",
    ]


def test_a_changed_version_is_another_place_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs.KUEUE.folder
    monkeypatch.setitem(layout.VERSIONS, "KUEUE", "v0.99.0")

    assert programs.KUEUE.folder != before
    assert not programs.KUEUE.complete()
    assert programs.ETCD.folder.name == f"etcd-{layout.VERSIONS['ETCD']}"
