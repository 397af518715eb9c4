"""What runs a run for `simrun run`: a session of this process, with the backend that the options name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import InvalidInput, Problem
from simrun.cli.view import RunView, TaskView
from simrun.model.cluster import ClusterConfig
from simrun.model.load import load_settings
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import attachments_of
from simrun.service.progress import RunProgress, TaskProgress
from simrun.service.session import Session as ServiceSession
from simrun.service.session import open_session

if TYPE_CHECKING:
    from simrun.cli.attached import OpenSession
    from simrun.cli.run import RunOptions


def session_opener(options: RunOptions) -> OpenSession:
    """Give what opens a session for these options. Raises InvalidInput for a cluster file that is wrong."""
    if options.backend == "kubernetes":
        return _on_kubernetes(options, cluster_config(options.cluster))
    return _on_this_machine(options)


def _on_this_machine(options: RunOptions) -> OpenSession:
    from simrun.backends.local.config import LocalConfig
    from simrun.backends.local.engine import LocalBackend

    bounds = {"cpus": options.cpus, "memory": options.memory}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    config = LocalConfig.for_store(options.store, **given)

    @asynccontextmanager
    async def opened() -> AsyncIterator[EngineSession]:
        backend = LocalBackend(config, end_attempts=True)
        async with open_session(options.store, lambda _store, _pool: backend) as session:
            yield EngineSession(session)

    return opened


def _on_kubernetes(options: RunOptions, config: ClusterConfig) -> OpenSession:
    from simrun.backends.kubernetes.backend import open_backend

    @asynccontextmanager
    async def opened() -> AsyncIterator[EngineSession]:
        async with open_session(
            options.store,
            lambda _store, _pool: open_backend(config, options.kubeconfig),
            owner=_owner(config),
        ) as session:
            yield EngineSession(session)

    return opened


def cluster_config(file: Path | None) -> ClusterConfig:
    """Read how runs are placed on a cluster; the defaults where no file is named."""
    if file is None:
        return ClusterConfig()
    try:
        text = file.read_bytes()
    except OSError as error:
        text_of_error = f"can't be read: {error.strerror}"
        raise InvalidInput([Problem("--cluster", text_of_error, str(file))]) from error
    return load_settings(ClusterConfig, text, file=str(file))


def _owner(config: ClusterConfig) -> tuple[int, int] | None:
    """Give whom the directories of runs are given to: the uid that the pods run as."""
    if config.run_as_user is None:
        return None
    group = config.run_as_group
    return config.run_as_user, config.run_as_user if group is None else group


class EngineSession:
    """A session of this process, as `attached.follow` wants it."""

    def __init__(self, session: ServiceSession, clock: Clock | None = None) -> None:
        self._session = session
        self._clock = clock or SystemClock()

    async def submit(self, submission: Submission, base: Path, run_id: str | None) -> str:
        """Make the run exist and start it."""
        attachments = await self._session.in_pool(attachments_of, submission, base)
        return await self._session.submit(submission, attachments, run_id)

    async def updates(self, run_id: str) -> AsyncIterator[RunView]:
        """Yield the run at each change."""
        async for progress in self._session.updates(run_id):
            yield view_of(progress, self._clock.wall())

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        """End the run, with grace or at once."""
        await self._session.cancel(run_id, kill=kill)

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of the run."""
        return await self._session.record(run_id)


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
