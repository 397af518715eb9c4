"""Launch plans in the store: versions that never change, and one word on which is active."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from simrun.base.errors import Conflict, DamagedRecord, NotFound
from simrun.base.labeltext import label_value
from simrun.store.launch_plans import LaunchPlanStore, PlanPlace
from simrun.worker import files
from tests.store.plans import version


@pytest.fixture
def plans(tmp_path: Path) -> LaunchPlanStore:
    return LaunchPlanStore(tmp_path)


def test_a_version_is_kept_as_it_was_made(plans: LaunchPlanStore, tmp_path: Path) -> None:
    made, new = plans.create(version("1"))
    assert new
    assert plans.read("lab", "nightly", "1") == made
    assert (tmp_path / "launch-plans/lab/nightly/1.json").is_file()
    head = plans.head("lab", "nightly", "1")
    assert (head.schedule, head.fingerprint) == (made.schedule, made.fingerprint)


def test_the_same_again_is_the_same_and_another_is_refused(plans: LaunchPlanStore) -> None:
    plans.create(version("1", created_at=1.0))
    again, new = plans.create(version("1", created_at=2.0))
    assert (again.created_at, new) == (1.0, False)
    with pytest.raises(Conflict, match="versions never change"):
        plans.create(version("1", description="other"))


def test_files_are_there_before_the_version_is(plans: LaunchPlanStore, tmp_path: Path) -> None:
    def prepare(directory: Path) -> None:
        assert not (directory.parent / "1.json").exists()
        (directory / "code").mkdir()
        (directory / "code/plugin.py").write_text("new")

    left = tmp_path / "launch-plans/lab/nightly/1.files"  # of a creation that was cut off
    left.mkdir(parents=True)
    (left / "half").write_text("old")
    made, _ = plans.create(version("1"), prepare)
    assert files.listing(plans.files_of(made)) == {"code"}


@pytest.mark.parametrize("name", ["active", ".", "..", "a/b", "", "x" * 64])
def test_what_can_be_no_version_is_refused_and_becomes_no_path(
    plans: LaunchPlanStore, name: str
) -> None:
    with pytest.raises(ValidationError):
        version(name)
    plans.create(version("1"))
    with pytest.raises(NotFound):
        plans.read("lab", "nightly", name)
    with pytest.raises(NotFound):
        plans.delete("lab", "nightly", name)


def test_a_group_has_no_share_in_another_whose_directory_is_the_same(
    plans: LaunchPlanStore,
) -> None:
    plans.create(version("1", group="Research Group"))
    same = label_value("Research Group")
    with pytest.raises(NotFound):
        plans.read(same, "nightly", "1")
    with pytest.raises(Conflict):
        plans.create(version("1", group=same))
    assert plans.read("Research Group", "nightly", "1").group == "Research Group"


def test_numbers_of_versions_are_never_used_twice(plans: LaunchPlanStore) -> None:
    assert plans.next_version("lab", "nightly") == "1"
    for name in ("1", "7", "rc"):
        plans.create(version(name, description=name))
    plans.delete("lab", "nightly", "7")
    assert plans.next_version("lab", "nightly") == "8"
    with pytest.raises(Conflict, match="was deleted"):
        plans.create(version("7"))
    assert plans.versions("lab", "nightly") == ["1", "rc"]


def test_the_active_version_can_not_be_deleted(plans: LaunchPlanStore) -> None:
    plans.create(version("1"), lambda directory: (directory / "code").mkdir())
    plans.activate("lab", "nightly", "1", by="ana", now=5.0)
    with pytest.raises(Conflict, match="is active"):
        plans.delete("lab", "nightly", "1")
    plans.deactivate("lab", "nightly", by="ana", now=6.0)
    plans.delete("lab", "nightly", "1")
    assert plans.versions("lab", "nightly") == []
    with pytest.raises(NotFound):
        plans.activate("lab", "nightly", "1", by="ana", now=7.0)


def test_activation_is_one_word_and_keeps_its_time(plans: LaunchPlanStore) -> None:
    plans.create(version("1"))
    plans.create(version("2", description="2"))
    assert plans.active("lab", "nightly") is None
    assert plans.activate("lab", "nightly", "1", by="ana", now=5.0).activated_at == 5.0
    assert plans.activate("lab", "nightly", "1", by="bob", now=6.0).activated_at == 5.0
    assert plans.activate("lab", "nightly", "2", by="bob", now=7.0).activated_at == 7.0
    active = plans.deactivate("lab", "nightly", by="cay", now=8.0, version="1")
    assert active.version == "2"  # not the one that was meant
    assert plans.deactivate("lab", "nightly", by="cay", now=8.0).version is None
    assert plans.deactivate("lab", "nightly", by="dan", now=9.0).by == "cay"
    assert plans.activate("lab", "nightly", "2", by="ana", now=10.0).activated_at == 10.0


def test_an_active_json_that_can_not_be_read_is_healed_by_activation(
    plans: LaunchPlanStore, tmp_path: Path
) -> None:
    plans.create(version("1"))
    (tmp_path / "launch-plans/lab/nightly/active.json").write_text("{")
    with pytest.raises(DamagedRecord):
        plans.active("lab", "nightly")
    plans.activate("lab", "nightly", "1", by="ana", now=5.0)
    assert plans.active("lab", "nightly") is not None


def test_every_change_of_active_json_has_another_signature(plans: LaunchPlanStore) -> None:
    plans.create(version("1"))
    place = PlanPlace("lab", "nightly")
    seen = [plans.signature(place)]
    for step in range(3):
        plans.activate("lab", "nightly", "1", by="ana", now=float(step))
        seen.append(plans.signature(place))
        plans.deactivate("lab", "nightly", by="ana", now=float(step))
        seen.append(plans.signature(place))
    assert seen[0] is None
    assert all(one != other for one, other in itertools.pairwise(seen))


def test_a_damaged_version_is_told_and_stops_no_list(
    plans: LaunchPlanStore, tmp_path: Path
) -> None:
    plans.create(version("1"))
    plans.create(version("2", description="2", created_at=2.0))
    (tmp_path / "launch-plans/lab/nightly/1.json").write_text('{"schema": 1')
    with pytest.raises(DamagedRecord):
        plans.read("lab", "nightly", "1")
    assert [head.version for head in plans.heads("lab", "nightly")] == ["2"]
    assert plans.versions("lab", "nightly") == ["1", "2"]


def race(root: Path, *jobs: tuple[str, str]) -> list[str]:
    """Let processes do things at one moment; what each of them says."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.plan_racer", root, what, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for what, name in jobs
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("x")
        process.stdin.flush()
    return [process.communicate(timeout=50)[0].strip() for process in started]


def test_of_processes_that_create_one_version_one_does(
    plans: LaunchPlanStore, tmp_path: Path
) -> None:
    said = race(tmp_path, ("create", "a"), ("create", "b"), ("create", "a"))
    made = plans.read("lab", "nightly", "1").description
    assert said.count("new") == 1
    assert said.count("conflict") == (1 if made == "a" else 2)


def test_processes_that_activate_and_deactivate_at_once_leave_one_whole_word(
    plans: LaunchPlanStore, tmp_path: Path
) -> None:
    for name in ("1", "2", "3"):
        plans.create(version(name, description=name))
    race(tmp_path, ("activate", "1"), ("activate", "2"), ("deactivate", "3"))
    active = plans.active("lab", "nightly")
    # A deactivation that comes first finds nothing to do and leaves no word
    assert active is not None
    assert (active.version, active.by, active.activated_at) in [
        ("1", "1", 1.0),
        ("2", "2", 2.0),
        (None, "3", 3.0),
    ]
    left = files.listing(tmp_path / "launch-plans/lab/nightly")
    assert left == {"1.json", "2.json", "3.json", "active.json"}


def test_a_kill_9_before_any_change_leaves_a_whole_store_and_doing_it_again_ends_the_same() -> None:
    # In memory: many small writes are tried here, and no disk
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="simrun-plans-") as top:
        done = subprocess.run(
            [sys.executable, "-m", "tests.store.plan_crasher", top],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["problems"] == {}
    assert found["changes"] > 25
