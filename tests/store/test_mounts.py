"""The file system of a path."""

from pathlib import Path

from simrun.store.mounts import network_file_system


def test_a_local_path_is_on_no_network_file_system(tmp_path):
    assert network_file_system(tmp_path / "not" / "there") is None


def test_the_file_system_of_a_mount_below_is_seen(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 0:50 / /shared rw shared:1 - nfs4 server:/ rw\n"
        "3 2 0:51 / /shared/with\\040space rw - ext4 /dev/b rw\n"
    )
    opened = open
    monkeypatch.setattr(
        "builtins.open",
        lambda path, *args, **other: opened(
            table if path == "/proc/self/mountinfo" else path, *args, **other
        ),
    )
    assert network_file_system(Path("/home/x")) is None
    assert network_file_system(Path("/shared/store")) == "nfs4"
    assert network_file_system(Path("/shared-not")) is None
    assert network_file_system(Path("/shared/with space/store")) is None
