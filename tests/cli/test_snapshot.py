"""`simrun snapshot`, on a store and on a server; workflows that name local data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simrun.model.snapshot import OWN_DIRECTORY
from tests.cli.served import Served
from tests.cli.store import simrun

WORKFLOW = """
types:
  read:
    command: "cat {inputs.mesh}/fine.vtk; ls $SIMRUN_SNAPSHOTS > {outputs.seen}"
    inputs: [mesh]
    outputs: {seen: seen.txt}
    resources: {memory: 64Mi}
tasks:
  only: {type: read, inputs: {mesh: "snapshot:./mesh"}}
"""


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "fine.vtk").write_text("fine\n")
    (tmp_path / "workflow.yaml").write_text(WORKFLOW)
    return tmp_path / "mesh"


def test_from_making_one_to_deleting_it(mesh: Path, tmp_path: Path) -> None:
    at = ("--store", tmp_path / "store")
    made = simrun("snapshot", "create", mesh, "--name", "meshes", "--group", "lab", *at)
    assert (made.exit_code, made.stdout) == (0, "meshes\n")
    again = simrun("snapshot", "create", mesh, "--name", "other", "--group", "lab", *at)
    assert (again.exit_code, again.stdout) == (0, "meshes\n")
    assert "has this content already, as snapshot 'meshes'" in again.stderr
    listed = simrun("snapshot", "list", *at)
    assert "meshes" in listed.stdout
    assert "lab" in listed.stdout
    assert simrun("snapshot", "list", "--group", "other", *at).stdout == ""
    (data,) = json.loads(simrun("snapshot", "list", "-o", "json", *at).stdout)
    assert (data["name"], data["group"], data["files"], data["bytes"]) == ("meshes", "lab", 1, 5)
    shown = simrun("snapshot", "show", "meshes", "--files", *at)
    assert data["digest"] in shown.stdout
    assert "fine.vtk" in shown.stdout
    assert simrun("snapshot", "verify", "meshes", *at).exit_code == 0
    assert simrun("snapshot", "delete", "meshes", *at).exit_code == 0
    assert simrun("snapshot", "show", "meshes", *at).exit_code == 6


def test_what_differs_is_printed_and_is_an_exit_code(mesh: Path, tmp_path: Path) -> None:
    at = ("--store", tmp_path / "store")
    simrun("snapshot", "create", mesh, "--name", "m", *at)
    file = tmp_path / "store" / "snapshots" / "m" / "fine.vtk"
    file.chmod(0o644)
    file.write_text("rough")
    found = simrun("snapshot", "verify", "m", *at)
    assert found.exit_code == 1
    assert found.stdout.startswith("fine.vtk: has sha256 ")
    data = json.loads(simrun("snapshot", "verify", "m", "-o", "json", *at).stdout)
    assert (data["whole"], len(data["differences"])) == (False, 1)


def test_what_is_wrong_is_told_with_its_option(mesh: Path, tmp_path: Path) -> None:
    at = ("--store", tmp_path / "store")
    for arguments, code, text in (
        (("create", mesh, "--name", "../x"), 2, "--name: must be letters"),
        (("create", mesh, "--group", "a:b"), 2, "--group: must not contain ':'"),
        (("create", tmp_path / "none"), 6, "no file or directory"),
        (("verify", "none"), 6, "no snapshot 'none'"),
        (("delete", "none"), 6, "no snapshot 'none'"),
    ):
        found = simrun("snapshot", *arguments, *at)
        assert (found.exit_code, text in found.stderr) == (code, True), found.stderr
    missing = simrun("snapshot", "list", "--store", tmp_path / "nowhere")
    assert missing.exit_code == 6


def test_local_data_is_checked_like_every_file_that_a_workflow_names(
    mesh: Path, tmp_path: Path
) -> None:
    file = tmp_path / "workflow.yaml"
    assert simrun("validate", file).exit_code == 0
    mesh.rename(tmp_path / "moved")
    found = simrun("validate", file)
    assert found.exit_code == 2
    assert "tasks.only.inputs.mesh: no such data file: ./mesh" in found.stderr


def pinned(store: Path, run: str) -> dict[str, str]:
    submission = json.loads((store / "runs" / run / "submission.json").read_text())
    found: dict[str, str] = submission["snapshots"]
    return found


def test_local_data_of_a_run_here_becomes_a_snapshot(mesh: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ran = simrun("run", tmp_path / "workflow.yaml", "-q", "--id", "one", "--store", store)
    assert ran.exit_code == 0, ran.stderr
    (data,) = json.loads(simrun("snapshot", "list", "-o", "json", "--store", store).stdout)
    assert pinned(store, "one") == {data["name"]: data["digest"]}
    seen = store / "runs" / "one" / "tasks" / "only" / "out" / "seen.txt"
    assert seen.read_text() == f"{data['name']}\n"
    deleted = simrun("snapshot", "delete", data["name"], "--store", store)
    assert deleted.exit_code == 0, deleted.stderr  # the run has ended


def test_local_data_of_a_run_on_a_server_is_sent_once_and_can_be_read_only(
    mesh: Path, tmp_path: Path
) -> None:
    file = tmp_path / "workflow.yaml"
    with Served(tmp_path / "store") as served:
        at = ("--server", served.url)
        first = simrun("submit", file, "--wait", "-q", "--id", "first", *at)
        assert first.exit_code == 0, first.stderr
        (data,) = json.loads(simrun("snapshot", "list", "-o", "json", *at).stdout)
        assert data["name"].startswith("mesh-")
        second = simrun("submit", file, "-q", "--id", "second", *at)
        assert second.exit_code == 0, second.stderr
        assert json.loads(simrun("snapshot", "list", "-o", "json", *at).stdout) == [data]
        assert served.simrun("logs", "first", "only").stdout == "fine\n"
        for run in ("first", "second"):
            assert pinned(served.store, run) == {data["name"]: data["digest"]}
        place = served.store / "snapshots" / data["name"]
        assert (place / "fine.vtk").stat().st_mode & 0o777 == 0o444
        assert (place / OWN_DIRECTORY).is_dir()
        shown = simrun("snapshot", "show", data["name"], "--files", *at)
        assert "fine.vtk" in shown.stdout
        assert simrun("snapshot", "verify", data["name"], *at).exit_code == 0
        made = simrun("snapshot", "create", mesh, *at)
        assert made.stdout == f"{data['name']}\n"
