"""What is wrong with a request is told as such, whatever the bytes were: never as a bug, never as a store that does not answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.service.api.guarded import one
from tests.service.api.serving import Served

RUNS = "/api/v1/runs"
JSON = {"Content-Type": "application/json"}


def body(**fields: Any) -> dict[str, Any]:
    return {"submission": one("default"), **fields}


async def raw(served: Served, head: str, data: bytes = b"", *, end: bool = False) -> bytes:
    """Send bytes as they are, with `end` nothing after them, and give all that comes back."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1") + data)
    if end:
        writer.write_eof()
    async with asyncio.timeout(30):
        found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "submission"),
        ({"submission": "x"}, "submission"),
        (body(id=""), "id"),
        (body(ID="mine"), "ID"),
        ({"submission": {**one("default"), "types": {"plain": {"command": [1]}}}}, None),
    ],
)
async def test_what_is_wrong_with_a_submission_is_told_with_its_field(
    served: Served, sent: dict[str, Any], field: str | None
) -> None:
    status, answer, _ = await served.ask("POST", RUNS, json=sent)
    assert status == 422
    error = answer["errors"][0]
    assert error["field"] == (field or "types.plain.command[0]")
    assert error.get("value") or error["remedy"]


async def test_half_a_character_is_refused_wherever_it_stands(served: Served) -> None:
    sent = body()
    sent["submission"]["workflow"]["name"] = "half \ud83e of one"
    status, answer, _ = await served.ask("POST", RUNS, json=sent)
    assert (status, answer["errors"][0]["message"][:24]) == (422, "holds one half of a char")
    assert "half " in answer["errors"][0]["value"]

    sent["submission"]["workflow"]["name"] = "a whole \U0001f9ea"
    assert (await served.ask("POST", RUNS, json=sent))[1]["name"] == "a whole \U0001f9ea"


@pytest.mark.parametrize("deep", [101, 240, 900, 100_000])
async def test_what_is_nested_too_deeply_is_refused(served: Served, deep: int) -> None:
    text = json.dumps(body(id="deep"))
    assert '"params": {}' in text
    text = text.replace('"params": {}', '"params": {"p": %s}' % ("[" * deep + "]" * deep), 1)
    status, answer, _ = await served.ask("POST", RUNS, data=text, headers=JSON)
    assert status == 422
    assert "deep" in answer["detail"] or "depth" in answer["detail"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "gzip", "Content-Type": "multipart/form-data; boundary=X"}, 415),
        ({"Content-Type": "application/json; charset=nonsense"}, 422),
        ({"Origin": "http://["}, 403),
    ],
)
async def test_headers_that_make_no_sense_are_no_bug_of_the_server(
    served: Served, headers: dict[str, str], status: int
) -> None:
    answer = await served.ask("POST", RUNS, data=b"{}", headers={**JSON, **headers})
    assert (answer[0], answer[1]["status"]) == (status, status)


async def test_who_goes_away_amid_the_body_is_not_counted_against_the_store(
    served: Served,
) -> None:
    head = f"POST {RUNS} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100"
    assert await raw(served, head, b"{", end=True) == b""

    def counted(status: str, text: str) -> bool:
        series = f'method="POST",route="{RUNS}",status="{status}"'
        return f"simrun_http_requests_total{{{series}}} 1.0" in text

    async with asyncio.timeout(30):
        while not counted("4xx", text := (await served.ask("GET", "/metrics"))[1].decode()):
            await asyncio.sleep(0.02)
    assert not counted("5xx", text)


@pytest.mark.parametrize(
    "request_of",
    [
        {"name": "n" * 201},
        {"owner": "n" * 201},
        {"group": "g" * 201},
        {"group": "null\0"},
        {"labels": {"key": "v" * 501}},
        {"labels": {"k" * 201: "value"}},
        {"labels": {str(number): "" for number in range(65)}},
    ],
)
async def test_what_stands_in_every_list_of_runs_is_short(
    served: Served, request_of: dict[str, Any]
) -> None:
    sent = body()
    sent["submission"]["request"] |= request_of
    status, answer, _ = await served.ask("POST", RUNS, json=sent)
    assert status == 422
    assert answer["errors"][0]["field"].startswith(f"request.{next(iter(request_of))}")
