"""What every backend must do: one set of expectations for the scripted fake, the local engine and Kubernetes.

A module that collects these tests gives the fixture `place`: a backend, and a way to let the worker of a run end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from simrun.backends.base import Backend, BackendStatus, Phase
from simrun.base.errors import Conflict
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run
from simrun.store.layout import StoreLayout

WORKFLOW = Workflow(tasks={"wait": Task(type="wait"), "after": Task(type="after", after=["wait"])})


@dataclass
class Place:
    """A backend and what tests need beside it."""

    backend: Backend
    store: Path
    types: Mapping[str, TaskType]
    release: Callable[[str, str], Awaitable[None]]
    """Let the task `wait` of a run (id, workflow) succeed, and what follows it."""
    run_id: str = "run"
    owner: tuple[int, int] | None = None
    seconds: float = 20.0

    @property
    def record(self) -> RunRecord:
        return RunRecord(
            id=self.run_id, workflow=WORKFLOW, times=RunTimes(created=1.0), fingerprint="one"
        )

    @property
    def plans(self) -> dict[str, TaskPlan]:
        return plan_run(WORKFLOW, self.types, {}, {})

    async def submit(self) -> str:
        """Prepare the directories that a pod starts in, and submit."""
        import os

        run = StoreLayout(self.store).run(self.run_id)
        for task in WORKFLOW.tasks:
            for directory in (run.task(task).out, run.task(task).logs):
                directory.mkdir(parents=True, exist_ok=True)
        if self.owner:
            for directory, _, _ in os.walk(run.root):
                os.chown(directory, *self.owner)
        return await self.backend.submit(self.record, self.plans, self.types)

    async def when(self, name: str, holds: Callable[[BackendStatus], bool]) -> BackendStatus:
        """Wait by events until the status is as wanted."""
        async with asyncio.timeout(self.seconds):
            events = self.backend.events()
            while True:
                status = await self.backend.status(name)
                assert status is not None
                if holds(status):
                    return status
                await anext(events)


def running(status: BackendStatus) -> bool:
    node = status.nodes.get("wait")
    return bool(node and node.attempts and node.attempts[-1].phase is Phase.RUNNING)


async def test_submitting_twice_is_submitting_once(place: Place) -> None:
    name = await place.submit()

    assert await place.submit() == name
    status = await place.backend.status(name)
    assert status is not None
    assert not status.phase.ended


async def test_what_is_submitted_runs_in_order_and_every_attempt_is_told(place: Place) -> None:
    name = await place.submit()
    status = await place.when(name, running)
    assert not status.nodes.get("after") or not status.nodes["after"].attempts
    await place.release(place.run_id, name)

    status = await place.when(name, lambda status: status.phase.ended)

    assert status.phase is Phase.SUCCEEDED
    for worker in ("wait", "after"):
        node = status.nodes[worker]
        assert node.phase is Phase.SUCCEEDED
        (attempt,) = node.attempts
        assert (attempt.n, attempt.exit_code, attempt.reason, attempt.oom) == (
            0,
            0,
            "completed",
            False,
        )
        assert attempt.pod_uid


async def test_a_change_is_told_as_an_event_of_its_run(place: Place) -> None:
    events = place.backend.events()
    first = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    await place.submit()

    async with asyncio.timeout(place.seconds):
        while (told := await first) != place.run_id:
            first = asyncio.ensure_future(anext(events))

    assert told == place.run_id


async def test_a_stopped_workflow_ends_and_starts_nothing_more(place: Place) -> None:
    name = await place.submit()
    await place.when(name, running)

    await place.backend.stop(name)
    status = await place.when(
        name,
        lambda status: (
            status.phase.ended
            and all(a.phase.ended for n in status.nodes.values() for a in n.attempts)
        ),
    )

    assert status.phase is not Phase.SUCCEEDED
    assert not status.nodes.get("after") or not status.nodes["after"].attempts
    await place.backend.stop(name)


async def test_a_deleted_workflow_is_gone_and_unknown_ones_count_as_stopped_and_deleted(
    place: Place,
) -> None:
    name = await place.submit()
    await place.backend.delete(name)
    async with asyncio.timeout(place.seconds):
        while await place.backend.status(name) is not None:
            await asyncio.sleep(0.05)

    await place.backend.stop(name)
    await place.backend.delete(name)
    assert await place.backend.status(name) is None
    assert [chunk async for chunk in place.backend.logs(name, "wait", 0)] == []


async def test_a_name_that_is_another_runs_is_a_conflict(place: Place) -> None:
    await place.submit()
    other = place.record.changed(fingerprint="two")

    with pytest.raises(Conflict):
        await place.backend.submit(other, place.plans, place.types)


async def test_a_node_is_reserved_for_one_run_and_released_only_by_it(place: Place) -> None:
    node = await place.backend.reserve(place.run_id)
    try:
        assert await place.backend.reserve(place.run_id) == node
        await place.backend.release(node, "another")
        assert await place.backend.reserve(place.run_id) == node
        await place.backend.release("no-such-node", place.run_id)
    finally:
        await place.backend.release(node, place.run_id)
    await place.backend.release(node, place.run_id)


PROTOCOL = [value for name, value in list(globals().items()) if name.startswith("test_")]


async def test_queues_tell_what_is_in_use_while_a_worker_runs(place: Place) -> None:
    name = await place.submit()
    await place.when(name, running)

    async with asyncio.timeout(place.seconds):
        while True:  # a cluster counts a moment later
            (queue,) = await place.backend.queues()
            if queue.admitted and queue.resources["cpu"].used > 0:
                break
            await asyncio.sleep(0.05)

    assert queue.name
    assert queue.active
    given = queue.resources["cpu"].given
    assert given is None or given >= queue.resources["cpu"].used
