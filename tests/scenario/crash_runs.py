"""The runs during which the service is killed: small, deterministic, each with a client that goes on where it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simrun.argo.names import workflow_name
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.base.errors import Conflict, NotFound
from simrun.model.record import RunRecord
from simrun.model.tasktype import TaskType
from simrun.model.workflow import RunRequest, Submission, Workflow
from simrun.service.attachments import Attachment
from simrun.service.opening import open_session
from simrun.service.progress import RunProgress
from simrun.service.session import Session

RUN = "run1"


@dataclass(frozen=True)
class Place:
    """The directories of one cell. Commands know `outside` as $HOME: what they leave there is nobody's record but theirs."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def outside(self) -> Path:
        return self.root / "outside"


@dataclass
class Client:
    """What a user does; asks first how things stand, since it may be the one after a crash."""

    session: Session
    backend: LocalBackend
    place: Place
    reached: Callable[[str], None]

    async def record(self) -> RunRecord | None:
        try:
            return await self.session.record(RUN)
        except NotFound:
            return None

    async def submit(self, what: Submission, attachments: list[Attachment] | None = None) -> None:
        """Submit, unless the run exists: then the service has to bring it on by itself."""
        if await self.record() is None:
            await self.session.submit(what, attachments or [], RUN)
        self.reached("submitted")

    async def when(self, holds: Callable[[RunProgress], bool]) -> None:
        async for progress in self.session.updates(RUN):
            if holds(progress):
                return

    async def ended(self) -> None:
        """Wait for the end of the run, and of what was stopped with it."""
        async for _ in self.session.updates(RUN):
            pass
        name = (await self.session.record(RUN)).workflow_name
        assert name is not None
        while (status := await self.backend.status(name)) is not None and not status.phase.ended:
            await asyncio.sleep(0.01)

    def open_gate(self) -> None:
        (self.place.outside / "gate").touch()

    async def through_the_gate(self, running: int = 1) -> None:
        """Wait until pods run, and only then let them go on."""
        await self.when(
            lambda seen: seen.state.terminal or sum(t.running for t in seen.tasks) >= running
        )
        self.open_gate()


@dataclass(frozen=True)
class Scenario:
    """A client, and what it starts from: `prepared_by` is the scenario whose end is the beginning of this one."""

    name: str
    client: Callable[[Client], Awaitable[None]]
    prepared_by: str | None = None
    begins: Literal["start", "open", "submitted", "ordered"] = "ordered"
    """With what the points of the first life begin: the start of the service, its being open, the submission, the first order to a
    supervisor. What comes before that is the same as in a scenario that begins earlier."""
    backend: type[LocalBackend] = LocalBackend
    open_parts: frozenset[str] = frozenset()
    """Parts of the end that depend on when the process died: how far a run came that is cancelled anyway."""


def submission(tasks: dict[str, Any], types: dict[str, Any], **request: Any) -> Submission:
    return Submission(
        workflow=Workflow.model_validate({"tasks": tasks}),
        types={
            name: TaskType.model_validate({"name": name, **SMALL, **kind})
            for name, kind in types.items()
        },
        request=RunRequest.model_validate(request),
    )


SMALL: dict[str, Any] = {"resources": {"cpu": 0.1, "memory": "64Mi"}, "grace": 5}
WAIT = "while [ ! -e $HOME/gate ]; do sleep 0.05; done"


async def drive(scenario: Scenario, place: Place, reached: Callable[[str], None]) -> None:
    """Be the service and its client, as `simrun serve` opens it; `reached` hears how far it has come."""
    config = LocalConfig.for_store(place.store, cpus=8)
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place.outside)}
    backend = scenario.backend(config, end_attempts=False, environ=environ)
    async with open_session(
        place.store,
        lambda _store, _pool: backend,
        command="serve",
        url="http://127.0.0.1:1",
        index=place.root / "index" / "runs.sqlite",
    ) as session:
        reached("open")
        await scenario.client(Client(session, backend, place, reached))


# --- the runs --------------------------------------------------------------------------------------------------------------

SWEEP = submission(
    {"sweep": {"type": "sweep"}},
    {
        "sweep": {
            # The first two units wait for each other, so each worker has one. The extra worker's waits until the other has the
            # third too, so that it ends first
            "command": "echo {unit.index} >> $HOME/units; touch $HOME/at-{unit.index}; "
            "case {unit.index} in 0) other=1;; 1) other=0;; *) other=2;; esac; "
            "while [ ! -e $HOME/at-$other ]; do sleep 0.05; done; "
            f"{WAIT}; "
            "[ $SIMRUN_WORKER = sweep-w0 ] || while [ ! -e $HOME/at-2 ]; do sleep 0.05; done",
            "split": {"workers": 2, "units": {"list": [1, 2, 3]}},
            # The report of the other worker is there before the task ends
            "merge": {
                "command": "while [ ! -e $SIMRUN_TASK_DIR/reports/sweep-w1-0.json ]; do sleep 0.05; done; "
                "echo merged >> $HOME/merges; echo merged > merged"
            },
        }
    },
)


async def split(client: Client) -> None:
    await client.submit(SWEEP)
    await client.through_the_gate(running=2)
    await client.ended()


BARE = submission(
    {"once": {"type": "once", "inputs": {"word": "./word.txt"}}},
    {
        "once": {
            "command": f"cat {{inputs.word}} >> $HOME/lines; {WAIT}; echo done > done",
            "inputs": ["word"],
            "outputs": {"done": "done"},
        }
    },
)


async def bare(client: Client) -> None:
    word = client.place.outside / "word.txt"
    word.write_text("word\n")
    await client.submit(BARE, [Attachment(word, "tasks/once/in/word")])
    await client.through_the_gate()
    await client.ended()


FAILING = submission(
    {"shaky": {"type": "shaky"}},
    {
        "shaky": {
            "command": "echo {unit.index} >> $HOME/units; [ {unit.index} != 1 ] || [ -e $HOME/mended ]",
            "split": {"workers": 1, "units": {"list": [1, 2]}},
        }
    },
)


async def failing(client: Client) -> None:
    await client.submit(FAILING)
    await client.ended()


async def retried(client: Client) -> None:
    """The second round of a run that failed: only the unit that failed is computed again."""
    (client.place.outside / "mended").touch()
    record = await client.record()
    assert record is not None
    if record.round == 0:
        await client.session.retry(RUN)
    await client.ended()


BROKEN = submission(
    {"broken": {"type": "broken"}},
    {
        "broken": {
            # The interpreter of the harness cannot start, so there is no log but what the engine has
            "command": "true",
            "harness": True,
            "env": {"PYTHONHOME": "/nowhere"},
        }
    },
)


async def without_log(client: Client) -> None:
    await client.submit(BROKEN)
    await client.ended()


REFUSED = submission(
    {"table": {"type": "table"}},
    {"table": {"command": "true", "split": {"workers": 1, "units": {"table": "rows.csv"}}}},
)


async def refused(client: Client) -> None:
    """A submission whose job raises: the table of units is there, and is none."""
    table = client.place.outside / "rows.csv"
    table.write_text("a,b\n1\n")
    await client.submit(REFUSED, [Attachment(table, "code/rows.csv")])
    await client.ended()


HUNGRY = submission(
    {"hungry": {"type": "hungry"}},
    {
        "hungry": {
            "command": "echo try >> $HOME/tries; [ -e $HOME/tried ] || { touch $HOME/tried; exec tail /dev/zero; }",
            "resources": {"cpu": 0.1, "memory": "24Mi", "retry_memory": "64Mi"},
        }
    },
)


async def hungry(client: Client) -> None:
    """Killed for memory by the kernel, then done with the retry memory."""
    await client.submit(HUNGRY)
    await client.ended()


ENDLESS = submission(
    {"endless": {"type": "endless"}},
    {"endless": {"command": "echo started >> $HOME/lines; exec sleep 600"}},
    reserve_node=True,
)


async def cancelled(client: Client) -> None:
    """A run with a node of its own, cancelled once it runs."""
    await client.submit(ENDLESS)
    await client.when(lambda seen: seen.state.terminal or seen.started is not None)
    record = await client.record()
    assert record is not None
    while not record.state.terminal and not (client.place.outside / "lines").exists():
        await asyncio.sleep(0.01)
    await client.session.cancel(RUN)
    await client.ended()


class CancelledMeanwhile(LocalBackend):
    """An engine that hears of the cancellation of a run while it is asked for something for it."""

    session: Session
    call: str

    async def submit(self, *args: Any) -> str:
        await self._meanwhile("submit")
        return await super().submit(*args)

    async def reserve(self, run: str) -> str:
        await self._meanwhile("reserve")
        return await super().reserve(run)

    async def _meanwhile(self, call: str) -> None:
        if call == self.call:
            await self.session.cancel(RUN)


def cancelled_before(call: str) -> Callable[[Client], Awaitable[None]]:
    async def client_of(client: Client) -> None:
        assert isinstance(client.backend, CancelledMeanwhile)
        client.backend.session, client.backend.call = client.session, call
        await client.submit(ENDLESS)
        await client.ended()

    return client_of


async def deleted(client: Client) -> None:
    if await client.record() is not None:
        await client.session.in_pool(client.session.store.delete, RUN)
    with contextlib.suppress(Conflict):
        await client.session.submit(BARE, [], RUN)
        raise AssertionError("the id of a deleted run was taken again")


async def workflow_deleted(client: Client) -> None:
    """What becomes of a workflow an hour after the end of its run."""
    await client.backend.delete(workflow_name(RUN))
    assert await client.backend.status(workflow_name(RUN)) is None


SCENARIOS = {
    item.name: item
    for item in (
        Scenario("split", split, begins="submitted"),
        Scenario("bare", bare, begins="start"),
        Scenario("failing", failing),
        Scenario("retried", retried, prepared_by="failing", begins="open"),
        Scenario("without-log", without_log),
        Scenario("refused", refused, begins="submitted"),
        Scenario("hungry", hungry),
        Scenario("cancelled", cancelled, begins="submitted"),
        Scenario(
            "cancelled-before-submit",
            cancelled_before("submit"),
            begins="submitted",
            backend=CancelledMeanwhile,
            open_parts=frozenset({"outside", "engine", "endless logs"}),
        ),
        Scenario(
            "cancelled-before-reserve",
            cancelled_before("reserve"),
            begins="submitted",
            backend=CancelledMeanwhile,
            open_parts=frozenset({"outside", "engine", "endless logs"}),
        ),
        Scenario("deleted", deleted, prepared_by="bare", begins="open"),
        Scenario("workflow-deleted", workflow_deleted, prepared_by="bare", begins="open"),
    )
}
