"""What the tests of the service work with: a store, a scripted backend, a controller over them, and a run to follow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simrun.aio.threads import Pool
from simrun.backends.scripted import ScriptedBackend
from simrun.base.term import UNLIMITED, Term
from simrun.model.record import RunRecord, RunState
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Workflow
from simrun.service.controller import Controller
from simrun.service.submission import Submitter, create_run, new_record
from simrun.store.resources import ResourceStore
from simrun.store.runs import RunStore


class FakeClock:
    """Time that stands still until a test moves it; both clocks together, or the wall clock alone by `step`."""

    def __init__(self, wall: float = 1_800_000_000.0) -> None:
        self._wall, self._monotonic = wall, 1000.0

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """What an operator or NTP does to the wall clock."""
        self._wall += seconds


def submission(tasks: dict[str, Any], types: dict[str, Any], **request: Any) -> Submission:
    """Make a submission from plain dicts."""
    return Submission(
        workflow=Workflow.model_validate({"tasks": tasks}),
        types={
            name: TaskType.model_validate({"name": name, **kind}) for name, kind in types.items()
        },
        request=RunRequest.model_validate(request),
    )


SPLIT = {
    "command": ["true"],
    "image": "image",
    "split": {"workers": 3, "units": {"list": [1, 2, 3, 4, 5]}},
    "outputs": {"table": "table.csv"},
    "resources": {"memory": "256Mi", "retry_memory": "1Gi"},
}
PLAIN = {"command": ["true"], "image": "image", "inputs": ["table"]}

SWEEP_THEN_PLOT = submission(
    {
        "sweep": {"type": "split"},
        "plot": {"type": "plain", "inputs": {"table": "sweep.table"}},
    },
    {"split": SPLIT, "plain": PLAIN},
)


@dataclass
class World:
    """Everything a controller works with."""

    store: RunStore
    resources: ResourceStore
    backend: ScriptedBackend
    controller: Controller
    clock: FakeClock
    pool: Pool
    changes: list[RunRecord] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def create(self, what: Submission = SWEEP_THEN_PLOT, run_id: str = "run1") -> RunRecord:
        """Make a run exist, submitting."""
        record = new_record(what, run_id, self.clock.wall())
        return create_run(self.store, record, what, [])

    async def start(self, what: Submission = SWEEP_THEN_PLOT, run_id: str = "run1") -> str:
        """Make a run and submit it; the name of its workflow."""
        self.create(what, run_id)
        assert self.controller.resume is not None
        await self.controller.resume(run_id)
        name = self.record(run_id).workflow_name
        assert name is not None
        return name

    def record(self, run_id: str = "run1") -> RunRecord:
        return self.store.read(run_id)

    def task_dir(self, task: str, run_id: str = "run1") -> Path:
        return self.store.layout.run(run_id).task(task).root

    def merge(self, task: str, run_id: str = "run1") -> None:
        """Leave the marker of a merge."""
        out = self.task_dir(task, run_id) / "out"
        out.mkdir(exist_ok=True)
        (out / ".simrun-merged").write_text("{}")

    async def look(self, run_id: str = "run1") -> RunRecord:
        """One pass, and the record after it."""
        await self.controller.reconcile_run(run_id)
        return self.record(run_id)

    async def until(self, run_id: str, *states: RunState) -> RunRecord:
        """Wait until the controller's own loop has brought a run into one of the states."""
        async with asyncio.timeout(20):
            while (record := self.record(run_id)).state not in states:
                self.changed.clear()
                await self.changed.wait()
        return record

    def note(self, record: RunRecord) -> None:
        """Hear of a record that was written."""
        self.changes.append(record)
        self.changed.set()


def make_world(
    root: Path,
    clock: FakeClock,
    backend: ScriptedBackend | None = None,
    *,
    term: Term = UNLIMITED,
) -> World:
    """Build the parts; a second one on the same root and backend is the service started again."""
    store, resources = RunStore(root), ResourceStore(root)
    store.open()
    pool = Pool("files", 4)
    backend = backend or ScriptedBackend()
    controller = Controller(
        store,
        resources,
        backend,
        pool=pool,
        clock=clock,
        on_change=lambda record: world.note(record),  # noqa: PLW0108 - world is made below
        term=term,
    )
    controller.resume = Submitter(store, resources, backend, pool, clock, write=controller.write)
    world = World(store, resources, backend, controller, clock, pool)
    return world
