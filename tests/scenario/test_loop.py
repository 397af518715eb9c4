"""Nothing blocks the event loop: a whole campaign, its API and its readers under a guard that raises at a blocking call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from aiohttp import web

from simrun.aio.lag import LagProbe
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.client import AsyncClient
from simrun.service.api.app import make_app
from simrun.service.main import listen
from simrun.service.opening import open_session
from tests.service.world import submission

CAMPAIGN = submission(
    {
        "sweep": {"type": "split"},
        "read": {"type": "plain", "inputs": {"table": "sweep.table"}},
    },
    {
        "split": {
            "command": ["/bin/sh", "-c", "echo {params.item}"],
            "split": {"workers": 2, "units": {"list": [1, 2, 3, 4]}},
            "outputs": {"table": "table.csv"},
            "resources": {"cpu": 0.1, "memory": "64Mi"},
            "grace": 2,
        },
        "plain": {
            "command": ["/bin/sh", "-c", "wc -l < {inputs.table}"],
            "inputs": ["table"],
            "resources": {"cpu": 0.1, "memory": "64Mi"},
            "grace": 2,
        },
    },
)


async def test_a_campaign_its_api_and_its_readers_never_block_the_loop(
    tmp_path: Path, loop_guard: Callable[[], AbstractContextManager[None]]
) -> None:
    root = tmp_path / "store"
    backend = LocalBackend(LocalConfig.for_store(root), end_attempts=True)
    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with loop_guard():
        async with (
            open_session(
                root, lambda _store, _pool: backend, command="serve", index=tmp_path / "i.sqlite"
            ) as session,
            LagProbe() as lag,
        ):
            runner = web.AppRunner(make_app(session), shutdown_timeout=1)
            await runner.setup()
            await web.SockSite(runner, listening).start()
            async with AsyncClient(url) as client, asyncio.timeout(60):
                await client.submit(CAMPAIGN, run_id="guarded")
                states = [event.state async for event in client.events("guarded")]
                logs = [chunk async for chunk in client.logs("guarded", "sweep")]
                page = await client.runs()
            await runner.cleanup()
    assert states[-1] == "succeeded"
    assert {b"1", b"2", b"3", b"4"} <= set(b"".join(logs).splitlines())
    assert [row.id for row in page.runs] == ["guarded"]
    assert lag.statistics().samples > 0


async def test_the_probe_tells_a_loop_that_was_blocked(caplog: pytest.LogCaptureFixture) -> None:
    import time

    async with LagProbe(every_s=0.01, alarm_s=0.05) as lag:
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251 - what the probe is there to find
        await asyncio.sleep(0.05)

    assert lag.statistics().max_s > 0.2
    assert "the event loop has not turned" in caplog.text
    assert "time.sleep(0.3)" in caplog.text
