import pytest

from simrun.worker.cgroup_mounts import UNIFIED, find_places


@pytest.fixture
def system(tmp_path):
    """Give a maker of /proc/self; `{root}` in mountinfo stands for where the tree is."""

    def make(cgroup, mountinfo, *directories):
        proc = tmp_path / "proc"
        proc.mkdir()
        (proc / "cgroup").write_text(cgroup)
        (proc / "mountinfo").write_text(mountinfo.format(root=tmp_path))
        for directory in directories:
            (tmp_path / directory).mkdir(parents=True)
        return proc

    return make


V1 = (
    "30 23 0:27 / {root}/memory rw,nosuid shared:9 master:1 - cgroup cgroup rw,memory\n"
    "31 23 0:28 / {root}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "22 1 8:1 / / rw - ext4 /dev/vda rw\n"
)
V2 = "30 23 0:27 {where} {{root}}/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n"


def test_version_1_has_a_hierarchy_per_controller(system, tmp_path):
    proc = system("5:cpu,cpuacct:/a/b\n4:memory:/a/b\n", V1, "memory/a/b", "cpu,cpuacct/a/b")
    places = find_places(proc, "memory", "cpuacct", UNIFIED)

    assert places["memory"] == (tmp_path / "memory/a/b", tmp_path / "memory", "/a/b")
    assert places["cpuacct"].directory == tmp_path / "cpu,cpuacct/a/b"
    assert UNIFIED not in places


def test_version_2_in_a_private_namespace_is_the_mount_point(system, tmp_path):
    proc = system("0::/\n", V2.format(where="/"), "cgroup")

    assert find_places(proc, UNIFIED)[UNIFIED].directory == tmp_path / "cgroup"


def test_version_2_of_the_host_is_below_the_mount_point(system, tmp_path):
    proc = system("0::/kubepods/pod1/c1\n", V2.format(where="/"), "cgroup/kubepods/pod1/c1")

    assert find_places(proc, UNIFIED)[UNIFIED].directory == tmp_path / "cgroup/kubepods/pod1/c1"


def test_a_container_that_is_bound_to_its_own_part_sees_it_at_the_mount_point(system, tmp_path):
    proc = system("0::/docker/c1\n", V2.format(where="/docker/c1"), "cgroup")
    assert find_places(proc, UNIFIED)[UNIFIED].directory == tmp_path / "cgroup"


def test_below_what_is_bound_the_rest_of_the_path_counts(system, tmp_path):
    proc = system("0::/docker/c1/job\n", V2.format(where="/docker/c1"), "cgroup/job")
    assert find_places(proc, UNIFIED)[UNIFIED].directory == tmp_path / "cgroup/job"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/../../other", "/"),
        ("/docker/c1", "/docker/c2"),
        ("/docker/c11", "/docker/c1"),
        ("/gone", "/"),
    ],
)
def test_what_cannot_be_seen_falls_back_to_the_mount_point(system, tmp_path, path, where):
    proc = system(f"0::{path}\n", V2.format(where=where), "cgroup")

    assert find_places(proc, UNIFIED)[UNIFIED].directory == tmp_path / "cgroup"


def test_blanks_and_colons_in_names_are_understood(system, tmp_path):
    mountinfo = V1.replace("{root}/memory", "{root}/my\\040memory")
    proc = system("4:memory:/a:b\n", mountinfo, "my memory/a:b")

    assert find_places(proc, "memory")["memory"].directory == tmp_path / "my memory/a:b"


def test_a_kernel_without_cgroups_has_none(tmp_path):
    assert find_places(tmp_path, "memory", UNIFIED) == {}


def test_a_controller_that_is_not_mounted_is_not_found(system):
    proc = system("4:memory:/a\n", "22 1 8:1 / / rw - ext4 /dev/vda rw\n")

    assert find_places(proc, "memory") == {}
