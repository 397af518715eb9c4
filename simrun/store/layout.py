"""Where everything is in a run store. One place for every name, so that no other module joins paths by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simrun.worker.protocol import TaskDir

RUN_RECORD = "run.json"
SUBMISSION = "submission.json"
_LAUNCH_PLANS = "launch-plans"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The directory of one run."""

    root: Path

    @property
    def record(self) -> Path:
        """run.json; the run exists when this does."""
        return self.root / RUN_RECORD

    @property
    def submission(self) -> Path:
        """submission.json: workflow and types, resolved."""
        return self.root / SUBMISSION

    @property
    def code(self) -> Path:
        """Plugin files that came with the workflow, under their paths beside it."""
        return self.root / "code"

    @property
    def tasks(self) -> Path:
        """One directory per task."""
        return self.root / "tasks"

    def task(self, task: str) -> TaskDir:
        """Give the directory of a task."""
        return TaskDir(self.tasks / task)


@dataclass(frozen=True, slots=True)
class PlanDir:
    """The directory of one launch plan. No version is called `active` (see model.launchplan)."""

    root: Path

    @property
    def active(self) -> Path:
        """active.json: the only word on which version is active."""
        return self.root / "active.json"

    def version(self, version: str) -> Path:
        """Give <version>.json: the version exists when this does."""
        return self.root / f"{version}.json"

    def files(self, version: str) -> Path:
        """Give the directory of the local files that came with a version."""
        return self.root / f"{version}.files"

    def tombstone(self, version: str) -> Path:
        """Give the file that says that a version was deleted."""
        return self.root / f"{version}.deleted"


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The top of a run store."""

    root: Path

    @property
    def runs(self) -> Path:
        """runs/<run>/."""
        return self.root / "runs"

    @property
    def live(self) -> Path:
        """live/<run>: empty files of runs that may have something to do; a hint for a quick start."""
        return self.root / "live"

    @property
    def deleted(self) -> Path:
        """runs-deleted/<run>: tombstones."""
        return self.root / "runs-deleted"

    @property
    def snapshots(self) -> Path:
        """snapshots/<name>/."""
        return self.root / "snapshots"

    @property
    def snapshots_made(self) -> Path:
        """snapshots-made.lock: held while a snapshot is given its name."""
        return self.root / "snapshots-made.lock"

    @property
    def snapshots_used(self) -> Path:
        """snapshots-used.lock: held, shared, while a run that may use one is made; alone while one is deleted."""
        return self.root / "snapshots-used.lock"

    @property
    def uploads(self) -> Path:
        """.uploads/<temporary name>/: what requests bring, until it has its place."""
        return self.root / ".uploads"

    @property
    def resources(self) -> Path:
        """resources/<type>/<key>.json."""
        return self.root / "resources"

    @property
    def launch_plans(self) -> Path:
        """launch-plans/<group>/<name>/."""
        return self.root / _LAUNCH_PLANS

    def launch_plan(self, group_dir: str, name: str) -> PlanDir:
        """Give the directory of a launch plan; a group stands there as its label value."""
        # In one go: a start asks for thousands
        return PlanDir(self.root.joinpath(_LAUNCH_PLANS, group_dir, name))

    @property
    def scheduler(self) -> Path:
        """scheduler/snapshot.json, scheduler/catchup/, scheduler/pauses/."""
        return self.root / "scheduler"

    @property
    def schedules_changed(self) -> Path:
        """scheduler/changed: written whenever a plan is activated, deactivated, paused or resumed; a hint."""
        return self.scheduler / "changed"

    @property
    def damaged(self) -> Path:
        """damaged/: copies of records that could not be read."""
        return self.root / "damaged"

    @property
    def lock(self) -> Path:
        """simrun.lock: the holder of a local store."""
        return self.root / "simrun.lock"

    def run(self, run: str) -> RunDir:
        """Give the directory of a run."""
        return RunDir(self.runs / run)

    def tombstone(self, run: str) -> Path:
        """Give the file that says that a run was deleted."""
        return self.deleted / run

    def live_mark(self, run: str) -> Path:
        """Give the hint that a run may have something to do."""
        return self.live / run

    def observation(self, type_dir: str, run: str, task: str, worker: str, attempt: int) -> Path:
        """Give the file of an observation; its name is its key, so recording it twice is recording it once."""
        return self.resources / type_dir / f"{run}-{task}-{worker}-{attempt}.json"
