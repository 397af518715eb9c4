"""Why a run waits: words of whoever decides, and remedies."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from simrun.backends.base import Attempt, BackendStatus, Node, Phase
from simrun.backends.scripted import ScriptedBackend
from simrun.base.errors import NotFound
from simrun.client import AsyncClient
from simrun.model.plan import TaskPlan
from simrun.model.record import RunRecord, RunState, RunTimes, TaskState
from simrun.model.workflow import Workflow
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from simrun.service.why import remedy_for, why
from tests.service.world import SWEEP_THEN_PLOT

PLAN = TaskPlan(pods=3, split=True, cpus=1, memory=2**28)
WHOLE = TaskPlan(pods=1, split=False, cpus=1, memory=2**28)
WORKFLOW = Workflow.model_validate(
    {
        "tasks": {
            "sweep": {"type": "sweep"},
            "plot": {"type": "plot", "inputs": {"table": "sweep.table"}},
            "mail": {"type": "mail", "after": ["plot"]},
        }
    }
)
QUOTA = (
    "queue sims (2 of 5 that wait): insufficient unused quota for cpu in flavor a, 500m more needed"
)


def record(state: RunState = RunState.RUNNING, **values: object) -> RunRecord:
    tasks = {"sweep": TaskState.QUEUED, "plot": TaskState.WAITING, "mail": TaskState.WAITING}
    plans = {"sweep": PLAN, "plot": WHOLE, "mail": WHOLE}
    given: dict[str, object] = {
        "id": "r1",
        "state": state,
        "tasks": tasks,
        "plans": plans,
        "times": RunTimes(created=0),
    }
    return RunRecord.model_validate(given | values)


def pending(text: str = "", n: int = 0) -> Attempt:
    return Attempt(n=n, phase=Phase.PENDING, message=text)


def node(*attempts: Attempt, phase: Phase = Phase.PENDING) -> Node:
    return Node(phase=phase, attempts=attempts)


def status(phase: Phase = Phase.RUNNING, message: str = "", **nodes: Node) -> BackendStatus:
    named = {name.replace("_", "-"): one for name, one in nodes.items()}
    return BackendStatus(phase=phase, message=message, nodes=named)


def test_workers_that_wait_for_the_same_thing_are_told_together() -> None:
    answer = why(
        record(),
        WORKFLOW,
        status(
            sweep_w0=node(Attempt(n=0, phase=Phase.RUNNING), phase=Phase.RUNNING),
            sweep_w1=node(pending(QUOTA)),
            sweep_w2=node(pending(QUOTA)),
        ),
    )

    assert answer.text == "workers of sweep wait"
    sweep = answer.tasks[0]
    assert sweep.text == "1 run, 2 wait"
    (waits,) = sweep.workers
    assert waits.workers == ("sweep-w1", "sweep-w2")
    assert waits.text == QUOTA


def test_a_task_that_waits_for_others_names_them_with_their_states() -> None:
    answer = why(record(), WORKFLOW, status(sweep_w0=node(pending())))

    assert [(task.task, task.text) for task in answer.tasks[1:]] == [
        ("plot", "waits for sweep (queued)"),
        ("mail", "waits for plot (waiting)"),
    ]


def test_done_tasks_are_not_told_and_what_follows_them_has_not_begun() -> None:
    tasks = {"sweep": TaskState.DONE, "plot": TaskState.WAITING, "mail": TaskState.WAITING}

    answer = why(record(tasks=tasks), WORKFLOW, status())

    assert [task.task for task in answer.tasks] == ["plot", "mail"]
    assert answer.tasks[0].text == "its first worker has not been made yet"


def test_a_preempted_worker_says_by_whom_and_what_it_waits_for_now() -> None:
    gone = Attempt(n=0, phase=Phase.FAILED, reason="preempted", preemptor="run r2, worker sim-w0")

    answer = why(record(), WORKFLOW, status(sweep_w1=node(gone, pending(QUOTA, 1))))

    (waits,) = answer.tasks[0].workers
    assert waits.text == f"attempt 0 preempted by run r2, worker sim-w0; now: {QUOTA}"
    assert waits.attempt == 1


def test_a_worker_between_two_attempts_says_why_the_last_one_ended() -> None:
    killed = Attempt(n=0, phase=Phase.FAILED, reason="oom")

    answer = why(record(), WORKFLOW, status(sweep_w0=node(killed)))

    (waits,) = answer.tasks[0].workers
    assert waits.text == "attempt 0 killed for memory; its next attempt has not been made yet"


def test_a_worker_that_was_told_to_leave_says_so_while_it_runs() -> None:
    leaving = Attempt(n=0, phase=Phase.RUNNING, leaving="preempted", preemptor="run r2")

    answer = why(record(), WORKFLOW, status(sweep_w1=node(leaving, phase=Phase.RUNNING)))

    assert (
        answer.tasks[0].workers[0].text == "was told to leave (preempted) to make room for run r2"
    )


def test_a_merge_that_is_awaited_is_told() -> None:
    done = node(Attempt(n=0, phase=Phase.SUCCEEDED), phase=Phase.SUCCEEDED)

    answer = why(record(merge_pending={"sweep": 5.0}), WORKFLOW, status(sweep_w0=done))

    assert "merged output has not been seen" in answer.tasks[0].text


@pytest.mark.parametrize(
    ("values", "in_flight", "text"),
    [
        ({}, True, "its submission is under way"),
        ({}, False, "a service that has stopped"),
        ({"reserve_node": True}, True, "waits for a node of its own"),
    ],
)
def test_a_run_that_is_submitted_says_how_far_that_is(
    values: dict[str, object], in_flight: bool, text: str
) -> None:
    answer = why(record(RunState.SUBMITTING, **values), WORKFLOW, None, in_flight=in_flight)

    assert text in answer.text
    assert answer.tasks[0].text == "its run is being submitted"


def test_an_ended_run_tells_its_message_and_what_failed() -> None:
    tasks = {"sweep": TaskState.FAILED, "plot": TaskState.SKIPPED, "mail": TaskState.SKIPPED}
    failed = Attempt(n=0, phase=Phase.FAILED, reason="error", message="main: Error (exit code 3)")

    answer = why(
        record(RunState.FAILED, tasks=tasks, message="task sweep: bad"),
        WORKFLOW,
        status(sweep_w0=node(failed, phase=Phase.FAILED)),
    )

    assert answer.text == "task sweep: bad"
    (sweep,) = answer.tasks
    assert sweep.text == "sweep-w0: main: Error (exit code 3)"


def test_without_a_word_of_the_backend_that_is_said_and_why() -> None:
    answer = why(record(), WORKFLOW, None, notes=["pods are 200 s old"])

    assert answer.tasks[0].text == "nothing is known of its workers now"
    assert answer.notes == ("pods are 200 s old",)


def test_a_workflow_that_is_held_back_as_a_whole_says_why() -> None:
    held = status(Phase.PENDING, "Workflow processing has been postponed")

    answer = why(record(), WORKFLOW, held)

    assert answer.tasks[0].text == "Workflow processing has been postponed"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("insufficient quota for cpu, request (50) > maximum capacity (3)", "never give that much"),
        ("queue x: LocalQueue x doesn't exist", "name another as local_queue"),
        ("ImagePullBackOff: Back-off pulling image", "image_pull_secrets"),
        ("Unschedulable: 0/3 nodes had untolerated taint {a: b}", "tolerations"),
        ("Unschedulable: 0/3 nodes didn't match Pod's node affinity/selector", "node_selector"),
        ('CreateContainerConfigError: secret "x" not found', "secret_env"),
        ("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.", ""),
    ],
)
def test_what_waiting_alone_does_not_cure_has_a_remedy(text: str, remedy: str) -> None:
    found = remedy_for(text)

    assert remedy in found
    assert bool(found) == bool(remedy)


class Distant(ScriptedBackend):
    """One that follows something elsewhere."""

    def trouble(self) -> list[str]:
        return ["pods are 200 s old"]

    def age_s(self) -> float | None:
        return 200.04


async def test_it_is_asked_over_http(tmp_path: Path) -> None:
    backend = Distant()
    async with open_session(tmp_path / "store", lambda _store, _pool: backend) as session:
        listening = listen("127.0.0.1", 0)
        runner = web.AppRunner(make_app(session), shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        async with AsyncClient(f"http://127.0.0.1:{listening.getsockname()[1]}") as client:
            await client.submit(SWEEP_THEN_PLOT, run_id="mine")
            async for item in session.updates("mine"):
                if item.state is RunState.RUNNING:
                    break
            backend.attempt("simrun-mine", "sweep-w0", pending(QUOTA))

            answer = await client.why("mine")

            assert answer.tasks[0].workers[0].text == QUOTA
            assert list(answer.notes) == ["pods are 200 s old"]
            assert await session.not_ready() == ["pods are 200 s old"]
            with pytest.raises(NotFound):
                await client.why("another")
            async with aiohttp.ClientSession() as http, http.get(f"{client.url}/readyz") as ready:
                assert ready.status == 503
                assert ready.headers["Simrun-Age"] == "200.0"
        await runner.cleanup()
