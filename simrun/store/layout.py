"""Where everything is in a run store. One place for every name, so that no other module joins paths by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simrun.worker.protocol import TaskDir

RUN_RECORD = "run.json"
SUBMISSION = "submission.json"


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
    def resources(self) -> Path:
        """resources/<type>/<key>.json."""
        return self.root / "resources"

    @property
    def launch_plans(self) -> Path:
        """launch-plans/<group>/<name>/."""
        return self.root / "launch-plans"

    @property
    def scheduler(self) -> Path:
        """scheduler/snapshot.json and scheduler/catchup/."""
        return self.root / "scheduler"

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
