"""The description of the API: complete, and true of what the server answers."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from simrun.service.api.app import GROUPS
from simrun.service.api.openapi import describe, page
from simrun.service.api.routing import EVENT_STREAM
from tests.service.api.serving import Served, serving
from tests.service.world import submission

ONE = submission({"only": {"type": "plain"}}, {"plain": {"command": ["true"]}})
OPERATIONS = [operation for group in GROUPS for operation in group.all]


def test_every_operation_has_a_name_of_its_own_and_says_what_it_does() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert sorted(names) == sorted(set(names))
    for operation in OPERATIONS:
        assert operation.text, operation.name
        assert operation.method in ("GET", "POST", "PUT", "DELETE")


def test_every_reference_of_the_description_leads_somewhere() -> None:
    document = describe(OPERATIONS)
    schemas = document["components"]["schemas"]
    for name in re.findall(r"'\\$ref': '#/components/schemas/([^']+)'", str(document)):
        assert name in schemas


def test_every_parameter_and_field_that_a_caller_gives_is_described_once() -> None:
    for path, methods in describe(OPERATIONS)["paths"].items():
        for one in methods.values():
            names = [(item["name"], item["in"]) for item in one["parameters"]]
            assert len(names) == len(set(names)), path
            for item in one["parameters"]:
                assert item["description"], (path, item["name"])


async def test_the_page_needs_nothing_from_elsewhere(served: Served) -> None:
    status, body, headers = await served.ask("GET", "/docs")
    assert status == 200
    text = body.decode()
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", text)
    assert "<script" not in text
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    for operation in OPERATIONS:
        assert (
            operation.text.split("\n")[0]
            .strip()
            .rstrip(".")[:40]
            .replace("&", "&amp;")
            .replace("<", "&lt;")
            .replace(">", "&gt;")
            .replace("'", "&#x27;")
            in text
        )
    assert page(OPERATIONS) == text


# --- the live server ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a run, in a loop of its own."""
    started, address = threading.Event(), []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve(root: Path) -> None:
        async with serving(root) as served:
            await served.client.submit(ONE, run_id="mine")
            await served.running("mine")
            out = served.session.store.layout.run("mine").task("only").out
            (out / "file.txt").write_text("0123456789")
            address.append(served.url)
            started.set()
            await stop.wait()

    root = tmp_path_factory.mktemp("live")
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(root),))
    thread.start()
    assert started.wait(30)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


@schemathesis.serializer("application/x-tar")
def as_bytes(_context: Any, value: Any) -> bytes:
    """Whatever was drawn, as it is: no tar, most of the time."""
    return value if isinstance(value, bytes) else str(value).encode()


ENDLESS = {operation.path for operation in OPERATIONS if operation.content_type == EVENT_STREAM}


def schema_of(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(
    "operation",
    [one for one in OPERATIONS if one.path not in ENDLESS],
    ids=lambda one: f"{one.method} {one.path}",
)
@pytest.mark.timeout(120)
def test_what_the_server_answers_is_what_its_description_says(live: str, operation: Any) -> None:
    found = schema_of(live)[operation.template][operation.method]

    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        for known in ("run", "task"):
            if known in case.path_parameters and len(case.path_parameters[known]) % 2:
                case.path_parameters[known] = {"run": "mine", "task": "only"}[known]
        if case.query:
            case.query.pop("follow", None)  # has no end
        # Names and references are checked beyond what a schema can say: those that are refused have an error of their own
        case.call_and_validate(timeout=20, excluded_checks=[positive_data_acceptance])

    given(case=found.as_strategy())(ask)()
