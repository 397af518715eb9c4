"""Snapshots and runs: which ones a submission names, whether it may, which runs use one, and local paths that become one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from simrun.base.errors import Conflict, InvalidInput, NotFound, Problem
from simrun.model.faults import Nearest
from simrun.model.snapshot import Snapshot
from simrun.model.workflow import SNAPSHOT, Submission
from simrun.store import codec
from simrun.store.runs import RunStore
from simrun.store.snapshots import Making, SnapshotStore
from simrun.store.sources import Step, no_step
from simrun.worker import files


@dataclass(frozen=True, slots=True)
class SnapshotUse:
    """An input that reads a snapshot, or (`data`) a local path of which one is to be made."""

    task: str
    port: str
    name: str
    """Of the snapshot, or the local path as written."""
    path: str
    """In the snapshot."""
    optional: bool

    @property
    def field(self) -> str:
        """Where it stands in a submission."""
        return f"tasks.{self.task}.inputs.{self.port}"


def uses(submission: Submission) -> list[SnapshotUse]:
    """Give the inputs that read snapshots."""
    return list(_inputs(submission, "snapshot"))


def local_data(submission: Submission) -> list[SnapshotUse]:
    """Give the inputs that name a local path of which a snapshot has to be made."""
    return list(_inputs(submission, "data"))


def _inputs(submission: Submission, kind: str) -> Iterator[SnapshotUse]:
    for task_id, task in submission.workflow.tasks.items():
        if not any(text.startswith(SNAPSHOT) for text in task.inputs.values()):
            continue
        ports = submission.types[task.type].inputs
        for port, source in task.sources.items():
            if source.kind == kind:
                optional = port in ports and ports[port].optional
                name, path = (
                    (source.name, source.path.strip("/"))
                    if kind == "snapshot"
                    else (source.path, "")
                )
                yield SnapshotUse(task_id, port, name, path, optional)


def pinned(snapshots: SnapshotStore, submission: Submission) -> Submission:
    """Give a submission with the digests of the snapshots that it names (blocking).

    Raises InvalidInput with everything that is not there, not of its group, not what the submission was made for, or still a local path.
    """
    digests: dict[str, str] = {}
    problems: dict[tuple[str, str], tuple[str, str]] = {}
    found = []
    for use in uses(submission):
        key = use.name, "" if use.optional else use.path
        if key not in problems:
            problems[key] = _problem(snapshots, submission, use, digests)
        text, remedy = problems[key]
        if text:
            shown = f"{use.name}/{use.path}" if key[1] else use.name
            found.append(Problem(use.field, text, repr(SNAPSHOT + shown), remedy))
    for use in local_data(submission):
        remedy = "make one with `simrun snapshot create`, and name it here as snapshot:NAME"
        text = "is a local path, of which no snapshot was made"
        found.append(Problem(use.field, text, repr(use.name), remedy))
    if found:
        raise InvalidInput(found)
    return submission.model_copy(update={"snapshots": digests})


def _problem(
    snapshots: SnapshotStore, submission: Submission, use: SnapshotUse, digests: dict[str, str]
) -> tuple[str, str]:
    """Say what keeps a run from reading a snapshot, and the remedy; keep its digest. Nothing when nothing does."""
    group, name = submission.request.group, use.name
    try:
        digest = snapshots.get(name, {group}).digest
    except NotFound:
        if not snapshots.by_hand(name):
            near = Nearest([item.name for item in snapshots.all({group})]).remedy(name)
            make = f"`simrun snapshot create DIR --name {name} --group {group}` makes one"
            return f"group {group!r} has no such snapshot", near or make
    else:
        expected = submission.snapshots.get(name, digest)
        if expected != digest:
            return (
                f"has other content now: {digest}, not {expected}",
                "submit the workflow as a new run",
            )
        digests[name] = digest
    top = snapshots.path(name)
    if use.path and not use.optional and not _is_there(top, use.path):
        above = (top / use.path).parent
        near = Nearest(sorted(files.listing(above))).remedy(Path(use.path).name)
        return f"there is no {use.path!r} in snapshot {name!r}", near or "name a file that is"
    return "", ""


def _is_there(top: Path, path: str) -> bool:
    return os.path.lexists(top / path) or files.listed(top, *Path(path).parts)


def check_again(store: RunStore, run_id: str) -> None:
    """Make sure that a run which is to go on finds its snapshots as they were (blocking). Raises Conflict."""
    submission = store.submission(run_id)
    if not uses(submission):
        return
    snapshots = SnapshotStore(store.layout)
    with snapshots.held():
        try:
            pinned(snapshots, submission)
        except InvalidInput as error:
            raise Conflict(f"run {run_id} can't go on: {error}") from error


class Users:
    """Gives the live runs that name a snapshot; a run that was looked at once is not read again, since what it names never changes.

    A run without a record is none that will use it, while no submission is under way: SnapshotStore.delete keeps them out at its last look.
    """

    def __init__(self, store: RunStore, name: str) -> None:
        self._store, self._name = store, name
        self._others: set[str] = set()

    def __call__(self) -> list[str]:
        """Look (blocking)."""
        return [
            run for run in self._store.live_ids() if run not in self._others and self._uses(run)
        ]

    def _uses(self, run_id: str) -> bool:
        if not self._store.exists(run_id):
            return False
        path = self._store.layout.run(run_id).submission
        data = files.read(path, listed=True) or b""  # it was there before the record
        if f'"{SNAPSHOT}{self._name}'.encode() in data:
            submission = codec.decode(Submission, data, path)
            if any(use.name == self._name for use in uses(submission)):
                return True
        self._others.add(run_id)
        return False


def take_local_data(
    snapshots: SnapshotStore,
    submission: Submission,
    base: Path,
    now: float,
    step: Step = no_step,
) -> Submission:
    """Make snapshots of the local paths that a submission names, relative to `base`, and give it with their names (blocking).

    Raises InvalidInput with everything that can't become one.
    """
    made: dict[str, Snapshot] = {}
    problems = []
    request = submission.request
    for use in local_data(submission):
        if use.name in made:
            continue
        making = Making(request.group, now, request.owner)
        try:
            made[use.name], _ = snapshots.create(base / use.name, making, step)
        except NotFound:
            remedy = f"paths are relative to the workflow file, in {base}"
            problems.append(Problem(use.field, "no such directory", repr(use.name), remedy))
        except InvalidInput as error:
            problems += of_field(error, use)
    if problems:
        raise InvalidInput(problems)
    places = {name: place_of(item, base / name) for name, item in made.items()}
    return with_snapshots(submission, places)


def place_of(snapshot: Snapshot, source: Path) -> str:
    """Say how an input names what was made of a local path: NAME of a directory, NAME/FILE of a file."""
    if source.is_dir():
        return snapshot.name
    return f"{snapshot.name}/{os.path.basename(os.path.realpath(source))}"


def of_field(error: InvalidInput, use: SnapshotUse) -> list[Problem]:
    """Give what is wrong with a local path as problems of the input that names it."""
    return [
        Problem(
            use.field, f"{item.field}: {item.message}".lstrip(": "), repr(use.name), item.remedy
        )
        for item in error.problems
    ]


def with_snapshots(submission: Submission, places: Mapping[str, str]) -> Submission:
    """Give a submission whose local data is named as snapshots: `places` says NAME or NAME/PATH by local path."""
    if not places:
        return submission
    tasks = {}
    for task_id, task in submission.workflow.tasks.items():
        inputs = {
            port: f"{SNAPSHOT}{places[source.path]}" if source.kind == "data" else task.inputs[port]
            for port, source in task.sources.items()
        }
        tasks[task_id] = task.model_copy(update={"inputs": inputs})
    workflow = submission.workflow.model_copy(update={"tasks": tasks})
    return submission.model_copy(update={"workflow": workflow})
