"""Snapshots and runs: what a run may name, what a live one keeps from being deleted, local paths that become one."""

from __future__ import annotations

from pathlib import Path

import pytest

from simrun.base.errors import Conflict, InvalidInput
from simrun.model.workflow import Submission, parse_source
from simrun.service.attachments import Attachment
from simrun.service.snapshots import Users, check_again, pinned, take_local_data
from simrun.service.submission import create_run, new_record
from simrun.store.runs import RunStore
from simrun.store.snapshots import Making, SnapshotStore
from tests.mounts import two_views
from tests.service.world import submission


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "store")
    made.open()
    return made


@pytest.fixture
def snapshots(store: RunStore) -> SnapshotStore:
    return SnapshotStore(store.layout)


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "fine.vtk").write_text("fine\n")
    return tmp_path / "mesh"


def reading(*inputs: str, optional: bool = False, **request: str) -> Submission:
    """A workflow with a task for each input."""
    kind = {"command": ["true"], "inputs": {"mesh": {"optional": optional}}}
    tasks = {f"t{n}": {"type": "t", "inputs": {"mesh": text}} for n, text in enumerate(inputs)}
    return submission(tasks, {"t": kind}, **request)


def create(store: RunStore, what: Submission, run_id: str = "run1") -> None:
    create_run(store, new_record(what, run_id, 0.0), what, [])


def test_a_run_keeps_the_digest_of_what_it_names(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    made, _ = snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    create(store, reading("snapshot:mesh/fine.vtk", "snapshot:mesh"))
    assert store.submission("run1").snapshots == {"mesh": made.digest}


def test_what_a_run_may_not_name_is_told_all_at_once_and_nothing_is_made(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    snapshots.create(mesh, Making("others", 0.0, name="theirs"))
    what = reading(
        *("snapshot:mash/fine.vtk", "snapshot:theirs", "snapshot:mesh/fin.vtk"),
        *("snapshot:mesh", "snapshot:./mesh"),
    )
    with pytest.raises(InvalidInput) as caught:
        create(store, what)
    assert [problem.field for problem in caught.value.problems] == [
        f"tasks.t{n}.inputs.mesh" for n in (0, 1, 2, 4)
    ]
    missing, theirs, path, local = caught.value.problems
    assert missing.message == theirs.message == "group 'default' has no such snapshot"
    assert "mesh" in (missing.remedy or "")
    assert "simrun snapshot create DIR --name theirs" in (theirs.remedy or "")
    assert "no 'fin.vtk' in snapshot 'mesh'" in path.message
    assert "fine.vtk" in (path.remedy or "")
    assert "local path" in local.message
    assert store.run_ids() == []
    assert store.live_ids() == []


def test_an_optional_input_may_be_missing_in_a_snapshot_but_not_the_snapshot(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    create(store, reading("snapshot:mesh/coarse.vtk", optional=True))
    with pytest.raises(InvalidInput, match="no such snapshot"):
        create(store, reading("snapshot:other/coarse.vtk", optional=True), "run2")


def test_what_was_put_there_by_hand_is_everybodys_and_has_no_digest(
    store: RunStore, snapshots: SnapshotStore
) -> None:
    (snapshots.layout.snapshots / "era5").mkdir()
    (snapshots.layout.snapshots / "era5" / "1990").write_text("x")
    create(store, reading("snapshot:era5/1990", group="any"))
    assert store.submission("run1").snapshots == {}
    with pytest.raises(InvalidInput, match="no '1991' in snapshot 'era5'"):
        create(store, reading("snapshot:era5/1991"), "run2")


def test_a_submission_that_was_made_for_other_content_is_refused(
    snapshots: SnapshotStore, mesh: Path
) -> None:
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    what = reading("snapshot:mesh").model_copy(update={"snapshots": {"mesh": "sha256:0"}})
    with pytest.raises(InvalidInput, match="has other content now"):
        pinned(snapshots, what)


def test_a_repeated_submission_gives_the_run_though_its_snapshot_is_gone(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    what = reading("snapshot:mesh")
    create(store, what)
    snapshots.delete("mesh", list)
    create(store, what)
    with pytest.raises(Conflict, match=r"run run1 can't go on: .*no such snapshot"):
        check_again(store, "run1")


def test_live_runs_that_name_a_snapshot_are_its_users(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    for name in ("mesh", "mesh-2"):
        (mesh / name).write_text(name)
        snapshots.create(mesh, Making("default", 0.0, name=name))
    create(store, reading("snapshot:mesh/fine.vtk"), "run1")
    create(store, reading("snapshot:mesh-2"), "run2")
    create(store, reading("snapshot:mesh"), "run3")
    (store.layout.live / "run4").touch()  # a creation that came to nothing
    users = Users(store, "mesh")
    assert users() == ["run1", "run3"]
    store.unmark_live("run1")
    create(store, reading("snapshot:mesh"), "run5")
    assert users() == ["run3", "run5"]
    with pytest.raises(Conflict, match="is used by run3, run5"):
        snapshots.delete("mesh", users)


def test_a_run_goes_on_only_with_the_content_that_it_began_with(
    store: RunStore, snapshots: SnapshotStore, mesh: Path
) -> None:
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    create(store, reading("snapshot:mesh"))
    check_again(store, "run1")
    snapshots.delete("mesh", list)
    (mesh / "fine.vtk").write_text("finer\n")
    snapshots.create(mesh, Making("default", 0.0, name="mesh"))
    with pytest.raises(Conflict, match="has other content now"):
        check_again(store, "run1")


def test_local_paths_become_snapshots_once(
    store: RunStore, snapshots: SnapshotStore, mesh: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.csv").write_text("a\n1\n")
    what = reading("snapshot:./mesh", "snapshot:./mesh", "snapshot:./one.csv", "./one.csv")
    first = take_local_data(snapshots, what, tmp_path, 0.0)
    again = take_local_data(snapshots, what, tmp_path, 1.0)
    assert first == again
    names = {item.name.rpartition("-")[0]: item.name for item in snapshots.all({"default"})}
    inputs = [task.inputs["mesh"] for task in first.workflow.tasks.values()]
    assert inputs == [
        f"snapshot:{names['mesh']}",
        f"snapshot:{names['mesh']}",
        f"snapshot:{names['one.csv']}/one.csv",
        "./one.csv",
    ]
    create_run(
        store,
        new_record(first, "run1", 0.0),
        first,
        [Attachment(tmp_path / "one.csv", "tasks/t3/in/mesh")],
    )
    assert len(store.submission("run1").snapshots) == 2


def test_local_paths_that_cannot_become_one_are_told_by_their_inputs(
    snapshots: SnapshotStore, mesh: Path, tmp_path: Path
) -> None:
    (mesh / "link").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput) as caught:
        take_local_data(snapshots, reading("snapshot:./mesh", "snapshot:../nowhere"), tmp_path, 0.0)
    first, second = caught.value.problems
    assert first.field == "tasks.t0.inputs.mesh"
    assert first.message == "link: is a link out of the directory, to /etc/passwd"
    assert (second.field, second.message) == ("tasks.t1.inputs.mesh", "no such directory")


@pytest.mark.parametrize("text", ["snapshot:", "snapshot:a b", "snapshot:a/../b", "snapshot:-a"])
def test_what_names_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be snapshot:NAME"):
        parse_source(text)


@pytest.mark.parametrize("path", [".", "..", "./a", "../a", "/a", "./a/b c"])
def test_a_local_path_is_known_by_how_it_begins(path: str) -> None:
    source = parse_source(f"snapshot:{path}")
    assert (source.kind, source.path) == ("data", path)


def test_a_run_of_another_host_keeps_its_snapshot_though_its_submission_was_denied_a_moment_ago(
    mesh: Path,
) -> None:
    with two_views() as (here, there):
        mine, theirs = RunStore(here), RunStore(there)
        mine.open()
        SnapshotStore(mine.layout).create(mesh, Making("default", 0.0, name="mesh"))
        run = mine.layout.run("run1")
        run.root.mkdir()
        assert not theirs.layout.run("run1").submission.exists()
        create(mine, reading("snapshot:mesh"))
        assert not theirs.layout.run("run1").submission.exists()

        assert Users(theirs, "mesh")() == ["run1"]
        assert theirs.submission("run1") == mine.submission("run1")
