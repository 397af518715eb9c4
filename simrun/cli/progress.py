"""How far a run is, as it comes from a service, made into what is shown of it."""

from __future__ import annotations

from simrun.cli.view import RunView, TaskView
from simrun.service.progress import RunProgress, TaskProgress


def view_of(progress: RunProgress, now: float) -> RunView:
    """Give what is shown of a run's progress."""
    return RunView(
        run=progress.run,
        name=progress.name,
        state=str(progress.state),
        message=progress.message or "",
        seconds=_since(progress.started, progress.ended, now),
        tasks=tuple(_task_view(task, now) for task in progress.tasks),
    )


def _task_view(task: TaskProgress, now: float) -> TaskView:
    return TaskView(
        id=task.task,
        state=str(task.state),
        split=task.split,
        done=task.done,
        total=task.total,
        running=task.running,
        retried=task.retried,
        failed=task.failed,
        message=task.message,
        seconds=_since(task.started, task.ended if task.state.final else None, now),
    )


def _since(started: float | None, ended: float | None, now: float) -> float | None:
    return None if started is None else max(0.0, (ended or now) - started)
