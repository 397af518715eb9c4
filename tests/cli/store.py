"""A store with runs in it, as a service would have left them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from simrun.cli.main import cli
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.report import AttemptEvidence, MemoryUse, Reason, WorkerReport
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Task, Workflow
from simrun.store import codec
from simrun.store.runs import RunStore

MIB = 2**20

SUBMISSION = Submission(
    workflow=Workflow(
        name="orbits",
        tasks={
            "sweep": Task(type="sweep"),
            "plot": Task(type="plot", inputs={"table": "sweep.table"}),
        },
    ),
    types={
        "sweep": TaskType(
            name="sweep",
            plugin="m:f",
            outputs={"table": "table.csv"},
            split={"workers": 2, "units": {"list": [1, 2]}},  # type: ignore[arg-type]  # as in a file
        ),
        "plot": TaskType(name="plot", command=["plot"], inputs={"table": {}}),  # type: ignore[dict-item]  # as in a file
    },
    request=RunRequest(group="lab"),
)


class Runs:
    """A store, and what puts runs into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = RunStore(root)
        self.store.open()

    def add(
        self,
        run_id: str = "01run",
        *,
        state: RunState = RunState.SUCCEEDED,
        tasks: dict[str, TaskState] | None = None,
        message: str | None = None,
        created: float = 1_000_000.0,
    ) -> RunRecord:
        """Put a run into the store."""
        record = RunRecord(
            id=run_id,
            name="orbits",
            group="lab",
            state=state,
            message=message,
            tasks=tasks or {"sweep": TaskState.DONE, "plot": TaskState.DONE},
            plans={
                "sweep": TaskPlan(pods=2, split=True, memory=256 * MIB, retry_memory=512 * MIB),
                "plot": TaskPlan(memory=64 * MIB),
            },
            times=RunTimes(created=created, ended=created + 100 if state.terminal else None),
        )
        return self.store.create(record, SUBMISSION)

    def file(self, run_id: str, *names: str, content: bytes = b"") -> Path:
        """Put a file into a run."""
        path = self.store.layout.run(run_id).root.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def report(
        self,
        run_id: str,
        task: str,
        worker: str,
        attempt: int = 0,
        *,
        reason: Reason = "completed",
        **fields: Any,
    ) -> None:
        """Put the report of an attempt into a run."""
        values: dict[str, Any] = {
            "exit_code": 0 if reason == "completed" else 3,
            "started": 1_000_010.0,
            "ended": 1_000_030.0,
            "cpu_s": 15.0,
            "node": "host",
            "memory": MemoryUse(limit=256 * MIB, peak_unreclaimable=85 * MIB),
        }
        report = WorkerReport(
            run=run_id,
            task=task,
            worker=worker,
            attempt=attempt,
            reason=reason,
            **{**values, **fields},
        )
        name = f"{worker}-{attempt}.json"
        self.file(run_id, "tasks", task, "reports", name, content=codec.encode(report))

    def evidence(
        self, run_id: str, task: str, worker: str, attempt: int = 0, **fields: Any
    ) -> None:
        """Put what was seen of an attempt into a run."""
        (self.store.layout.run(run_id).root / "tasks" / task).mkdir(parents=True, exist_ok=True)
        self.store.keep_evidence(
            run_id, task, AttemptEvidence(worker=worker, attempt=attempt, **fields)
        )


def simrun(*arguments: str | Path, **options: Any) -> Result:
    """Call the command line in this process."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], **options)
