"""Client does what AsyncClient does, without a loop of the caller."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from simrun.base.errors import NotFound
from simrun.client import AsyncClient, Client
from tests.client import generate
from tests.client.served import ONE, Served, serving


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def served(portal: BlockingPortal, tmp_path: Path) -> Iterator[Served]:
    with portal.wrap_async_context_manager(serving(tmp_path)) as served:
        yield served


def test_the_modules_are_those_that_are_made_from_the_async_ones() -> None:
    there = {
        path.name: path.read_text()
        for path in generate.TARGET.glob("*.py")
        if path.name != "blocking.py"
    }

    assert there == generate.files(), "run `python -m tests.client.generate`"


def test_client_has_the_calls_of_async_client() -> None:
    def calls(kind: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(value)).replace("AsyncIterator", "Iterator")
            for name, value in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(Client) == calls(AsyncClient)
    assert {"submit", "runs", "events", "logs"} <= set(calls(Client))


def test_a_run_is_submitted_watched_and_listed(served: Served, portal: BlockingPortal) -> None:
    with Client(served.url) as client:
        assert client.submit(ONE, run_id="mine").id == "mine"
        ending = portal.start_task_soon(served.succeed, "mine")
        states = [event.state for event in client.events("mine")]
        ending.result()

        assert states[-1] == "succeeded"
        assert client.run("mine").state == "succeeded"
        assert [row.id for row in client.all_runs()] == ["mine"]
        with pytest.raises(NotFound):
            client.run("other")


def test_a_run_is_looked_at_in_detail(served: Served) -> None:
    with Client(served.url) as client:
        client.submit(ONE, run_id="mine")

        assert [task.task for task in client.tasks("mine")] == ["only"]
        assert {one.worker for one in client.attempts("mine", "only")} <= {"only"}
        assert list(client.units("mine", "only")) == []
        assert list(client.artifacts("mine")) == []
        assert client.report("mine").tasks[0].task == "only"
        assert client.progress("mine").run == client.why("mine").run == "mine"
        assert client.observations("plain") == []
        assert client.types() == []
        assert [queue.name for queue in client.queues()] == ["scripted"]
        assert client.ready() == []


def test_a_stream_that_is_left_is_closed_and_the_client_goes_on(served: Served) -> None:
    with Client(served.url) as client:
        client.submit(ONE, run_id="mine")
        for event in client.events("mine"):
            assert event.run == "mine"
            break

        assert client.run("mine").id == "mine"


def test_a_client_that_is_not_open_says_how_it_is_used() -> None:
    client = Client("http://127.0.0.1:1")

    with pytest.raises(RuntimeError, match="with Client"):
        client.run("mine")
    with pytest.raises(RuntimeError, match="with Client"):
        next(client.events("mine"))
