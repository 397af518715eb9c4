"""What runs a run for `simrun run`, and all runs for `simrun serve`: a session of this process, with the backend that the options name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simrun.base import ids
from simrun.base.clock import Clock, SystemClock
from simrun.base.errors import InvalidInput, Locked, Problem
from simrun.cli.attached import OpenSession, RunSession
from simrun.cli.holder import LOOK_S, await_turn
from simrun.cli.progress import view_of
from simrun.cli.view import RunView
from simrun.cli.where import where
from simrun.model.cluster import ClusterConfig
from simrun.model.load import load_settings
from simrun.model.record import RunRecord
from simrun.model.workflow import Submission
from simrun.service.attachments import attachments_of
from simrun.service.opening import BackendFactory, open_session
from simrun.service.session import Session as ServiceSession
from simrun.service.snapshots import take_local_data
from simrun.store.snapshots import SnapshotStore

if TYPE_CHECKING:
    from simrun.cli.display import Display
    from simrun.cli.options import BackendOptions
    from simrun.service.main import OpenElection


@dataclass(frozen=True, slots=True)
class Place:
    """Where workers run: what makes the backend, and whom the directories of runs are given to (uid, gid)."""

    backend: BackendFactory
    owner: tuple[int, int] | None = None
    election: OpenElection | None = None
    """How several `serve` over one store agree on who leads; None where the lock of the store decides."""


def place_of(options: BackendOptions, store: Path, *, ends: Set[str] = frozenset()) -> Place:
    """Give the place that the options name.

    `ends` are the runs whose local workers end with this process; it may grow. Raises InvalidInput for a cluster file that is wrong.
    """
    if options.backend == "kubernetes":
        return _kubernetes(options)
    from simrun.backends.local.config import LocalConfig
    from simrun.backends.local.engine import LocalBackend

    bounds = {"cpus": options.cpus, "memory": options.memory}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    config = LocalConfig.for_store(store, **given)
    return Place(lambda _store, _pool: LocalBackend(config, end_attempts=ends))


def _kubernetes(options: BackendOptions) -> Place:
    from simrun.backends.kubernetes.backend import open_backend
    from simrun.backends.kubernetes.lease import open_elector

    config = cluster_config(options.cluster)
    return Place(
        lambda _store, _pool: open_backend(config, options.kubeconfig),
        _owner(config),
        lambda: open_elector(config, options.kubeconfig),
    )


def session_opener(options: BackendOptions, store: Path) -> OpenSession[RunSession]:
    """Give what opens a session over a store: one of this process, or of the server that holds the store.

    Beside a foreground `run` it waits for that one's end. Raises InvalidInput for a cluster file that is wrong.
    """
    own: set[str] = set()
    place = place_of(options, store, ends=own)
    token = where(None, str(store)).read_token()

    @asynccontextmanager
    async def opened(display: Display) -> AsyncIterator[RunSession]:
        async with AsyncExitStack() as stack:
            while (server := await await_turn(store, display, token)) is None:
                opening = open_session(store, place.backend, owner=place.owner)
                try:
                    session = await stack.enter_async_context(opening)
                except (
                    Locked
                ) as error:  # somebody was quicker, or another engine has not let go yet
                    display.notice(f"waits: {error}")
                    await asyncio.sleep(LOOK_S)
                else:
                    yield EngineSession(session, own)
                    return
            from simrun.cli.remote import RemoteSession
            from simrun.client import AsyncClient

            display.notice(f"the store is served at {server.url}; the run is handed over")
            if options != type(options)():
                display.notice("where it runs and on how much is the server's matter")
            client = await stack.enter_async_context(AsyncClient(server.url, token=server.token))
            yield RemoteSession(client, server)

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
    """A session of this process. `own` is told the runs that end with it."""

    detaches = False

    def __init__(self, session: ServiceSession, own: set[str], clock: Clock | None = None) -> None:
        self._session, self._own = session, own
        self._clock = clock or SystemClock()

    async def submit(self, submission: Submission, base: Path, run_id: str | None) -> str:
        """Make the run exist and start it."""
        session = self._session
        attachments = await session.in_pool(attachments_of, submission, base)
        submission = await session.streams.run(
            take_local_data, SnapshotStore(session.store.layout), submission, base, session.now()
        )
        run_id = run_id or ids.new_run_id(self._clock.wall())
        self._own.add(run_id)
        return await self._session.submit(submission, attachments, run_id)

    async def updates(self, run_id: str) -> AsyncIterator[RunView]:
        """Yield the run at each change."""
        async for progress in self._session.updates(run_id):
            yield view_of(progress, self._clock.wall())

    async def cancel(self, run_id: str, *, kill: bool = False) -> None:
        """End the run, with grace or at once."""
        await self._session.cancel(run_id, kill=kill)

    def age_s(self) -> float | None:
        """Give the seconds since the backend was last heard of."""
        return self._session.age_s()

    def trouble(self) -> list[str]:
        """Say what keeps the backend from being followed."""
        return self._session.trouble()

    async def record(self, run_id: str) -> RunRecord:
        """Give the record of the run."""
        return await self._session.record(run_id)
