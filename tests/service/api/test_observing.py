"""What is seen of requests: a number for each, a line in the log, and who changed what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simrun.service.api.observing import ACCESS, AUDIT
from simrun.service.main import SeldomFull, quiet_nonsense
from tests.service.api.guarded import Guarded, guarded

WHO = {
    "anna": {"scope": "run", "groups": ["orbits"]},
    "rita": {"scope": "read", "groups": ["orbits"]},
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, WHO) as made:
        yield made


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, ACCESS)
    caplog.set_level(logging.INFO, AUDIT)
    return caplog


def said(lines: pytest.LogCaptureFixture, logger: str) -> list[dict[str, object]]:
    return [vars(record) for record in lines.records if record.name == logger]


async def test_a_request_has_a_number_of_its_own_or_the_one_that_came_with_it(
    served: Guarded,
) -> None:
    one = await served.ask("GET", "/api/v1/runs", who="anna")
    two = await served.ask("GET", "/api/v1/runs")
    assert two.status == 401
    assert one.headers["X-Request-Id"] != two.headers["X-Request-Id"]

    given = await served.ask("GET", "/nowhere", headers={"X-Request-Id": "trace-7"})
    assert given.headers["X-Request-Id"] == "trace-7"
    odd = await served.ask("GET", "/nowhere", headers={"X-Request-Id": "a b\tc"})
    assert odd.headers["X-Request-Id"] != "a b\tc"


async def test_every_request_is_told_by_its_route_without_the_query(
    served: Guarded, lines: pytest.LogCaptureFixture
) -> None:
    await served.ask("GET", "/api/v1/runs/none?x=secret", who="anna")

    (line,) = said(lines, ACCESS)
    assert (line["method"], line["route"], line["path"]) == (
        "GET",
        "/api/v1/runs/{run}",
        "/api/v1/runs/none",
    )
    assert (line["status"], line["who"], line["remote"]) == (404, "anna", "127.0.0.1")
    assert "secret" not in str(line)
    assert served.tokens["anna"] not in str(line)


async def test_a_path_can_not_forge_a_line(
    served: Guarded, lines: pytest.LogCaptureFixture
) -> None:
    await served.ask("GET", "/api%0AERROR/x")

    (line,) = said(lines, ACCESS)
    assert line["path"] == "/api%0AERROR/x"


async def test_probes_are_told_only_when_they_fail(
    served: Guarded, lines: pytest.LogCaptureFixture
) -> None:
    await served.ask("GET", "/healthz")
    await served.ask("GET", "/metrics", who="anna")
    assert said(lines, ACCESS) == []

    await served.ask("GET", "/metrics")
    (line,) = said(lines, ACCESS)
    assert (line["route"], line["status"]) == ("/metrics", 401)


async def test_who_changed_what_is_told_and_who_was_not_let(
    served: Guarded, lines: pytest.LogCaptureFixture
) -> None:
    await served.submit("mine", "orbits", "anna")
    await served.ask("GET", "/api/v1/runs/mine", who="anna")
    await served.ask("POST", "/api/v1/runs/mine/cancel", who="rita")
    await served.ask("POST", "/api/v1/runs/mine/cancel")

    submitted, refused, unknown = said(lines, AUDIT)
    assert (submitted["message"], submitted["action"], submitted["who"]) == (
        "changed",
        "submit",
        "anna",
    )
    assert (submitted["status"], submitted["scope"]) == (201, "run")
    assert submitted["path"] == "/api/v1/runs/mine"
    assert (refused["message"], refused["action"], refused["who"]) == ("refused", "cancel", "rita")
    assert (refused["path"], refused["status"]) == ("/api/v1/runs/mine/cancel", 403)
    assert (unknown["status"], unknown["who"], unknown["scope"]) == (401, "", "read")


async def test_a_client_that_does_not_wait_is_seen(
    served: Guarded, lines: pytest.LogCaptureFixture
) -> None:
    await served.submit("mine", "orbits", "anna")
    headers = {"Authorization": f"Bearer {served.tokens['anna']}"}
    async with served.http.get(f"{served.url}/api/v1/runs/mine/events", headers=headers) as stream:
        assert await stream.content.readany()

    async with asyncio.timeout(20):
        while not [line for line in said(lines, ACCESS) if line["method"] == "GET"]:
            await asyncio.sleep(0.01)


async def test_what_is_no_http_is_one_line_in_the_log(
    served: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    logger = logging.getLogger("aiohttp.server")
    logger.addFilter(quiet_nonsense)
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(20):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200" in await reader.readline()
            await reader.readuntil(b"}")
            writer.write(b"\x16\x03\x01 this is TLS\r\n\r\n")
            assert b"400" in await reader.readline()
        writer.close()
    finally:
        logger.removeFilter(quiet_nonsense)

    (record,) = [record for record in caplog.records if record.name == "aiohttp.server"]
    assert record.levelno == logging.INFO
    assert record.exc_info is None


def test_that_no_connection_can_be_taken_is_told_once_in_a_while_and_without_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger, seldom = logging.getLogger("asyncio"), SeldomFull(every_s=3600.0)
    logger.addFilter(seldom)
    try:
        for _ in range(3):
            try:
                raise OSError(24, "Too many open files")
            except OSError:
                logger.exception("socket.accept() out of system resource\nsocket: …")
        logger.error("something else")
    finally:
        logger.removeFilter(seldom)

    full, other = caplog.records
    assert "ulimit -n" in full.getMessage()
    assert full.exc_info is None
    assert other.getMessage() == "something else"
