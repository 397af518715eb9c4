"""The scripted fake and the local engine against one set of expectations; tests/cluster holds Kubernetes to the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simrun.backends.base import Attempt, Phase
from simrun.backends.local.config import LocalConfig
from simrun.backends.local.engine import LocalBackend
from simrun.backends.scripted import ScriptedBackend
from simrun.model.tasktype import TaskType
from tests.backends.protocol import *  # noqa: F403 - the tests
from tests.backends.protocol import Place

WAIT = "until [ -e go ]; do sleep 0.05; done"


def types() -> dict[str, TaskType]:
    small = {"cpu": 0.1, "memory": "64Mi"}
    return {
        "wait": TaskType.model_validate({"command": WAIT, "resources": small, "grace": 2}),
        "after": TaskType.model_validate({"command": ["true"], "resources": small, "grace": 2}),
    }


class _Script(ScriptedBackend):
    """A script that behaves as a backend whose pods do what they should: the first one starts by itself."""

    async def submit(self, *args):  # type: ignore[no-untyped-def]
        name = await super().submit(*args)
        if not self.workflows[name].nodes:
            self.attempt(name, "wait", Attempt(n=0, phase=Phase.RUNNING, pod_uid="uid-wait-0"))
        return name


@pytest.fixture(params=["scripted", "local"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    store = tmp_path / "store"
    store.mkdir()
    if request.param == "scripted":
        script = _Script()

        async def act(_run: str, name: str) -> None:
            script.succeed(name, "wait")
            script.succeed(name, "after")
            script.end(name, Phase.SUCCEEDED)

        yield Place(script, store, types(), act)
        return

    async def let_go(run: str, _name: str) -> None:
        (store / "runs" / run / "tasks" / "wait" / "out" / "go").touch()

    async with LocalBackend(LocalConfig.for_store(store), end_attempts=True) as backend:
        yield Place(backend, store, types(), let_go)
