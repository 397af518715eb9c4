"""A fake API server, and sessions to it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.session import KubeSession
from tests.backends.kubernetes.fake_api import FakeApi, fake_api


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest.fixture
async def kube(server: FakeApi) -> AsyncIterator[KubeSession]:
    async with KubeSession(Access(server=server.url)) as session:
        yield session
