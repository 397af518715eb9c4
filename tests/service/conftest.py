"""A clock that tests own, and a world around a controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.world import FakeClock, World, make_world


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def world(tmp_path: Path, clock: FakeClock) -> AsyncIterator[World]:
    yield (made := make_world(tmp_path / "store", clock))
    made.pool.close()
