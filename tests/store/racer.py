"""A process that makes a run at the same moment as others: python -m tests.store.racer STORE RUN NAME FIRST.

It waits for a byte on its input, creates, and prints whose record there is then.
"""

from __future__ import annotations

import sys
from pathlib import Path

from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Submission, Task, Workflow
from simrun.store.layout import RunDir
from simrun.store.runs import RunStore


def main(root: str, run_id: str, name: str) -> None:
    store = RunStore(Path(root))
    submission = Submission(
        workflow=Workflow(name=name, tasks={"only": Task(type="t")}),
        types={"t": TaskType(command=["true"])},
    )
    record = RunRecord(id=run_id, name=name, times=RunTimes(created=1.0))

    def prepare(run: RunDir) -> None:
        run.code.mkdir(exist_ok=True)
        (run.code / "plugin.py").write_text(name)

    print("ready", flush=True)
    sys.stdin.read(1)
    print(store.create(record, submission, prepare).name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
