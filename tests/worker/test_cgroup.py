import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from simrun.worker import cgroup
from simrun.worker.cgroup import Meter, Reading
from simrun.worker.heartbeat import Journal

MIB = 2**20
NO_LIMIT_V1 = 9223372036854771712


def write(directory, **contents):
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (directory / name.replace("__", ".")).write_text(f"{content}\n")


@pytest.fixture
def v1(tmp_path):
    """A container of version 1 in a pod whose limit is lower."""
    write(tmp_path / "memory", memory__limit_in_bytes=NO_LIMIT_V1)
    write(tmp_path / "memory/pod", memory__limit_in_bytes=48 * MIB)
    container = tmp_path / "memory/pod/c"
    write(
        container,
        memory__limit_in_bytes=64 * MIB,
        memory__usage_in_bytes=40 * MIB,
        memory__max_usage_in_bytes=60 * MIB,
        memory__failcnt=90981,
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 2",
        memory__stat=(
            f"rss 1\nshmem 2\nhierarchical_memory_limit {48 * MIB}\n"
            f"total_cache {9 * MIB}\ntotal_rss {20 * MIB}\ntotal_shmem {3 * MIB}\ntotal_swap {MIB}"
        ),
    )
    write(tmp_path / "cpuacct/pod/c", cpuacct__usage=1_500_000_999)
    return tmp_path, container


@pytest.fixture
def v2(tmp_path):
    """A container of version 2 whose pod has a lower limit."""
    write(tmp_path / "cgroup")
    write(tmp_path / "cgroup/pod", memory__max=48 * MIB)
    container = tmp_path / "cgroup/pod/c"
    write(
        container,
        memory__max=64 * MIB,
        memory__current=40 * MIB,
        memory__peak=60 * MIB,
        memory__swap__current=MIB,
        memory__events="low 0\nhigh 0\nmax 1256\noom 5\noom_kill 3\noom_group_kill 1",
        memory__stat=(
            f"anon {20 * MIB}\nfile {9 * MIB}\nkernel {4 * MIB}\nshmem {3 * MIB}\nslab_reclaimable {2 * MIB}"
        ),
        cpu__stat="usage_usec 1500000\nuser_usec 1000000",
    )
    return tmp_path, container


def proc_of(root, memberships, mountinfo):
    write(root / "proc", cgroup=memberships, mountinfo=mountinfo.format(root=root))
    return root / "proc"


V1_MOUNTS = (
    "1 1 0:1 / {root}/memory rw - cgroup cgroup rw,memory\n"
    "2 1 0:2 / {root}/cpuacct rw - cgroup cgroup rw,cpuacct"
)
V2_MOUNT = "1 1 0:1 / {root}/cgroup rw - cgroup2 cgroup2 rw"


def test_version_1_is_found_and_read(v1):
    root, _ = v1
    found = cgroup.find(proc_of(root, "4:memory:/pod/c\n2:cpuacct:/pod/c", V1_MOUNTS))

    assert found is not None
    assert found.read() == Reading(
        current=40 * MIB, peak=60 * MIB, unreclaimable=24 * MIB, oom_kill=2, cpu_usec=1_500_000
    )


def test_version_2_is_found_and_read(v2):
    root, _ = v2
    found = cgroup.find(proc_of(root, "0::/pod/c", V2_MOUNT))

    assert found is not None
    assert found.read() == Reading(
        current=40 * MIB, peak=60 * MIB, unreclaimable=26 * MIB, oom_kill=3, cpu_usec=1_500_000
    )


def test_memory_on_version_1_wins_where_both_are_mounted(v1):
    root, container = v1
    write(root / "cgroup", memory__current=1)
    found = cgroup.find(proc_of(root, "4:memory:/pod/c\n0::/", f"{V1_MOUNTS}\n{V2_MOUNT}"))

    assert found is not None
    assert (found.version, found.memory) == (1, container)


def test_the_root_of_version_2_is_the_machine_and_no_cgroup_of_ours(tmp_path):
    write(tmp_path / "cgroup", memory__stat="anon 1", cpu__stat="usage_usec 1")

    assert cgroup.find(proc_of(tmp_path, "0::/", V2_MOUNT)) is None


def test_cpu_time_of_another_place_is_not_taken(v1):
    root, _ = v1
    write(root / "cpuacct", cpuacct__usage=10**15)
    found = cgroup.find(proc_of(root, "4:memory:/pod/c\n2:cpuacct:/", V1_MOUNTS))

    assert found is not None
    assert found.read().cpu_usec is None


def test_the_lowest_limit_of_all_ancestors_holds(v1, v2):
    for root, container in (v1, v2):
        mount = root / container.relative_to(root).parts[0]
        assert cgroup.at(container, mount).limit() == 48 * MIB
        assert cgroup.at(container, mount).own_limit() == 64 * MIB


def test_version_1_knows_of_limits_above_what_can_be_seen(v1):
    _, container = v1

    assert cgroup.at(container).limit() == 48 * MIB


def test_no_limit_is_none(tmp_path):
    write(tmp_path / "v1", memory__limit_in_bytes=NO_LIMIT_V1, memory__usage_in_bytes=0)
    write(tmp_path / "v2", memory__max="max")

    for name in ("v1", "v2"):
        assert cgroup.at(tmp_path / name).limit() is None
        assert not cgroup.at(tmp_path / name).is_of(64 * MIB)


def test_a_cgroup_made_for_the_attempt_is_known_by_its_limit(v2):
    _, container = v2
    made = cgroup.at(container)

    assert made.is_of(64 * MIB)
    assert made.is_of(64 * MIB + 100), "the kernel keeps whole pages"
    assert not made.is_of(48 * MIB)


def test_kernels_before_5_18_do_not_tell_the_share_of_the_kernel(v2):
    _, container = v2
    (container / "memory.stat").write_text(
        "anon 100\nshmem 10\nkernel_stack 1\npagetables 2\npercpu 3\nsock 4\nslab 50\nslab_reclaimable 20\n"
    )
    (container / "memory.swap.current").unlink()

    assert cgroup.at(container).read().unreclaimable == 100 + 10 + 1 + 2 + 3 + 4 + 50 - 20


def test_files_that_are_missing_are_none(tmp_path):
    write(tmp_path / "empty")

    assert cgroup.at(tmp_path / "empty").read() == Reading()
    assert cgroup.at(tmp_path / "gone").read() == Reading()
    assert cgroup.at(tmp_path / "gone").limit() is None


# --- the meter --------------------------------------------------------------------------------------------------------------


def test_a_meter_keeps_the_highest_of_its_samples(v2):
    _, container = v2
    (container / "memory.peak").unlink()  # a kernel before 5.19
    meter = Meter(cgroup.at(container))
    for current, anon in ((50, 30), (10, 5)):
        write(container, memory__current=current * MIB, memory__stat=f"anon {anon * MIB}")
        meter.sample()

    assert meter.memory_use() == {
        "limit": 64 * MIB,
        "peak": 50 * MIB,
        "peak_unreclaimable": 31 * MIB,
        "oom_kills": 0,
        "samples": 4,
    }


def test_a_meter_counts_the_kills_since_it_was_made(v2):
    _, container = v2
    meter = Meter(cgroup.at(container))
    assert meter.oom_kills() == 0
    write(container, memory__events="max 9000\noom 9\noom_kill 5")

    assert meter.oom_kills() == 2
    assert meter.memory_use()["oom_kills"] == 2
    assert meter.journal()["oom_kills"] == 2


def test_pressure_is_no_kill(v1, v2):
    (_, one), (_, two) = v1, v2
    meters = [Meter(cgroup.at(one)), Meter(cgroup.at(two))]
    write(one, memory__failcnt=10**6)
    write(two, memory__events="max 10000\noom 500\noom_kill 3\noom_group_kill 1")

    assert [meter.oom_kills() for meter in meters] == [0, 0]


def test_cpu_seconds_count_from_when_the_meter_was_made(v2):
    _, container = v2
    meter = Meter(cgroup.at(container))
    write(container, cpu__stat="usage_usec 4000000")

    assert meter.cpu_s() == 2.5
    assert meter.journal()["cpu_usec"] == 2_500_000


def test_a_meter_fits_the_journal(v2):
    _, container = v2
    journal = Journal(1, 0.0, 0.0, **Meter(cgroup.at(container)).journal())

    assert (journal.limit, journal.current, journal.peak) == (64 * MIB, 40 * MIB, 60 * MIB)


def test_without_a_cgroup_nothing_is_measured_and_nothing_counted():
    meter = Meter(None)
    meter.sample()

    assert meter.memory_use() == {
        "limit": None,
        "peak": None,
        "peak_unreclaimable": None,
        "oom_kills": 0,
        "samples": 0,
    }
    assert set(meter.journal().values()) == {None}


def test_without_a_cgroup_cpu_seconds_are_those_of_the_process_and_its_ended_children():
    meter = Meter(None)
    burn = "import time\nwhile time.process_time() < 0.25: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)

    # The kernel counts in ticks of 10 ms, and the meter gives a difference of two counts
    assert meter.cpu_s() >= 0.2


def test_samples_from_several_threads_are_all_counted(v2):
    _, container = v2
    meter = Meter(cgroup.at(container))
    threads = [
        threading.Thread(target=lambda: [meter.sample() for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert meter.memory_use()["samples"] == 202


# --- a real kernel ----------------------------------------------------------------------------------------------------------


REMEDY = (
    "run the tests as root where /sys/fs/cgroup is mounted writable (in a container: --privileged), "
    "or in a cgroup that was delegated with its memory controller"
)


@pytest.fixture
def real_cgroup():
    """A cgroup with a limit of 64 MiB."""
    own = cgroup.find()
    if own is None or not os.access(own.mount, os.W_OK):
        pytest.fail(f"no memory cgroup can be made here ({own and own.mount}): {REMEDY}")
    directory = own.mount / f"simrun-test-{os.getpid()}"
    directory.mkdir()
    try:
        limit = directory / ("memory.limit_in_bytes" if own.version == 1 else "memory.max")
        if not limit.exists():
            pytest.fail(
                f"{own.mount} doesn't hand the memory controller down: echo +memory > "
                f"{own.mount}/cgroup.subtree_control; or {REMEDY}"
            )
        limit.write_text(str(64 * MIB))
        swap = directory / ("memory.swappiness" if own.version == 1 else "memory.swap.max")
        with contextlib.suppress(OSError):
            swap.write_text("0")
        yield cgroup.at(directory, own.mount)
    finally:
        directory.rmdir()


def run_in(group, code, *arguments):
    """Run Python code in a cgroup; give its return code."""
    enter = f"open({str(group.memory / 'cgroup.procs')!r}, 'w').write('0')\n"
    return subprocess.run([sys.executable, "-c", enter + code, *arguments], check=False).returncode


def test_a_real_kill_for_memory_raises_the_counter(real_cgroup):
    meter = Meter(real_cgroup)
    code = run_in(real_cgroup, "data = bytearray(200 * 2**20)")

    assert code == -signal.SIGKILL
    assert meter.oom_kills() >= 1
    assert meter.memory_use()["limit"] == 64 * MIB


def test_really_writing_a_large_file_is_neither_a_kill_nor_unreclaimable(real_cgroup, tmp_path):
    meter = Meter(real_cgroup)
    code = run_in(
        real_cgroup,
        "import sys\nwith open(sys.argv[1], 'wb') as f:\n    for _ in range(100): f.write(bytes(2**20))",
        str(tmp_path / "large"),
    )
    use = meter.memory_use()

    assert code == 0
    assert use["oom_kills"] == 0
    assert use["peak"] > 50 * MIB
    assert use["peak_unreclaimable"] < 20 * MIB


def test_really_held_memory_is_seen_while_it_is_held(real_cgroup):
    meter = Meter(real_cgroup)
    enter = f"open({str(real_cgroup.memory / 'cgroup.procs')!r}, 'w').write('0')\n"
    hold = "import sys\ndata = bytearray(b'x') * (30 * 2**20)\nprint('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", enter + hold],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        meter.sample()
        child.communicate("")

    assert 30 * MIB <= meter.memory_use()["peak_unreclaimable"] <= 64 * MIB


def test_this_process_finds_its_own_cgroup():
    found = cgroup.find()
    assert found is not None, f"no memory cgroup is mounted here: {REMEDY}"
    assert str(os.getpid()) in (found.memory / "cgroup.procs").read_text().split()
    assert Path("/sys") in found.memory.parents
