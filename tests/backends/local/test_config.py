import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from simrun.backends.local import config as config_module
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.state import EngineState
from simrun.base.errors import InvalidInput


def test_the_defaults_are_all_of_this_machine_and_a_state_inside_the_store(tmp_path):
    config = LocalConfig.for_store(tmp_path)
    assert config.cpus == len(os.sched_getaffinity(0))
    assert 0 < config.memory <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert config.state_dir == tmp_path / "engine"
    assert config.scratch == tmp_path / "engine" / "scratch"
    assert config.orphan_s == 600
    assert config.image is None


def test_mounts_are_the_real_paths(tmp_path):
    config = LocalConfig.for_store(tmp_path, scratch=tmp_path / "fast")
    mounts = config.mounts("r1")
    assert mounts.run == str(tmp_path / "runs" / "r1")
    assert mounts.snapshots == str(tmp_path / "snapshots")
    assert mounts.scratch == str(tmp_path / "fast")


def test_a_relative_store_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LocalConfig.for_store(Path("store")).store == tmp_path / "store"


def test_memory_is_written_as_people_do_and_unknown_settings_are_refused(tmp_path):
    assert LocalConfig.for_store(tmp_path, memory="2Gi").memory == 2 * 2**30
    with pytest.raises(ValidationError, match="cpu_s"):
        LocalConfig.for_store(tmp_path, cpu_s=3)
    with pytest.raises(ValidationError, match="greater than 0"):
        LocalConfig.for_store(tmp_path, cpus=0)


def test_the_environment_sets_how_long_an_engine_may_be_away(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMRUN_ORPHAN_S", "90")
    assert LocalConfig.for_store(tmp_path).orphan_s == 90
    assert LocalConfig.for_store(tmp_path, orphan_s=5).orphan_s == 5


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_wrong_time_is_refused_by_name(tmp_path, monkeypatch, text):
    monkeypatch.setenv("SIMRUN_ORPHAN_S", text)
    with pytest.raises(InvalidInput, match=rf"SIMRUN_ORPHAN_S.*got '{text}'"):
        LocalConfig.for_store(tmp_path)


def test_a_store_on_a_network_file_system_has_its_state_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(config_module, "network_file_system", lambda _path: "nfs4")
    one = LocalConfig.for_store(tmp_path / "one")
    other = LocalConfig.for_store(tmp_path / "other")
    assert tmp_path not in one.state_dir.parents
    assert one.state_dir != other.state_dir
    assert one.state_dir == LocalConfig.for_store(tmp_path / "one").state_dir


def test_a_state_on_a_network_file_system_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr("simrun.backends.local.state.network_file_system", lambda _path: "nfs4")
    with pytest.raises(
        InvalidInput, match=r"state_dir: is on a network file system \(nfs4\).*disk"
    ):
        EngineState(tmp_path).open()
