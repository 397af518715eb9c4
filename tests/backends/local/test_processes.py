import os
import subprocess
import sys

import pytest

from simrun.backends.local import footprint, groups, processes
from simrun.backends.local.processes import Identity
from simrun.worker import cgroup


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_known_by_boot_number_and_start(sleeper):
    me = processes.this_process()
    assert me.is_alive()
    assert not me._replace(start=me.start + 1).is_alive()
    assert not me._replace(boot="another").is_alive()
    other = Identity(processes.boot_id(), sleeper.pid, processes.start_time(sleeper.pid))
    assert other.is_alive()
    sleeper.kill()
    sleeper.wait()
    assert not other.is_alive()
    assert processes.start_time(sleeper.pid) is None


def test_a_name_full_of_parentheses_hides_nothing():
    script = "import ctypes; ctypes.CDLL(None).prctl(15, b') 1 2 (x'); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert processes.start_time(process.pid) >= processes.this_process().start
        process.communicate(b"\n")


def test_descendants_are_found_in_every_thread_and_depth():
    script = (
        "import subprocess, threading\n"
        "threading.Thread(target=lambda: subprocess.run(['sh', '-c', 'sleep 600 & echo; wait'])).start()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        found = processes.descendants(process.pid)
        assert len(found) == 2
        assert sorted(processes._children_by_scan(found[0])) == [found[1]]
        assert set(found) < set(processes.descendants(os.getpid()))
        processes.kill([*found, process.pid])
    assert processes.descendants(process.pid) == []


def test_the_exact_figure_counts_shared_pages_once():
    script = """
import os, sys
held = b"x" * (40 * 2**20)
for _ in range(3):
    if os.fork() == 0:
        break
print(flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        for _ in range(4):
            process.stdout.readline()
        tree = [process.pid, *processes.descendants(process.pid)]
        assert len(tree) == 4
        mib = 2**20
        assert footprint.upper_bound(tree) > 160 * mib
        assert 40 * mib < footprint.proportional(tree) < 90 * mib
        process.communicate(b"")
    assert footprint.upper_bound(tree) == footprint.proportional(tree) == 0


# --- cgroups, on trees of files that look like the kernel's ---------------------------------------------------------------


def group(directory, version, **texts):
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name.replace("_", ".", 1)).write_text(text)
    return cgroup.Cgroup(version, directory, directory)


def test_a_version_2_limit_covers_swap_and_may_take_the_whole_group(tmp_path):
    group(tmp_path, 2, memory_max="max", cgroup_procs="")
    for name in ("memory.swap.max", "memory.oom.group"):
        (tmp_path / name).write_text("")
    groups.set_limit(tmp_path, 2**20, whole=True)
    texts = [
        (tmp_path / name).read_text()
        for name in ("memory.max", "memory.swap.max", "memory.oom.group")
    ]
    assert texts == ["1048576", "0", "1"]


def test_a_version_2_limit_of_a_harness_leaves_it_alive_to_report(tmp_path):
    group(tmp_path, 2, memory_max="max")
    (tmp_path / "memory.oom.group").write_text("0")
    groups.set_limit(tmp_path, 2**20)
    assert (tmp_path / "memory.oom.group").read_text() == "0"


def test_no_cgroup_means_polling():
    assert groups.find_parent(None) is None


def test_a_cgroup_that_may_not_be_written_means_polling(tmp_path):
    assert (
        groups.find_parent(group(tmp_path / "gone" / "..", 1)) is None
    )  # a directory, but no cgroup


def test_what_a_killed_process_left_of_its_probe_is_swept():
    own = cgroup.find()
    parent = groups.find_parent(own)
    if parent is None:  # no cgroup may be made here, so none can be left
        assert own is None or not os.access(own.memory, os.W_OK)
        return
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = parent / f"{groups._PROBE}{dead.pid}"
    left.mkdir()
    assert groups.find_parent(own) == parent
    assert not left.exists()


def test_processes_of_others_are_not_moved_about(tmp_path):
    # The kernel refuses the write to subtree_control then, and limits are polled; these files take every text
    own = group(tmp_path, 2, cgroup_procs="1\n2\n", cgroup_subtree_control="cpu")
    groups._delegate(own.memory)
    assert not (tmp_path / groups.SERVICE_LEAF).exists()


def test_a_version_2_cgroup_of_one_s_own_is_divided(tmp_path):
    leaf = tmp_path / groups.SERVICE_LEAF
    group(leaf, 2, cgroup_procs="")
    group(tmp_path, 2, cgroup_procs=f"{os.getpid()}\n", cgroup_subtree_control="")
    groups._delegate(tmp_path)
    assert (leaf / "cgroup.procs").read_text() == "0"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
