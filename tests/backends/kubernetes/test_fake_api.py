"""The fake API server, held to what the real one is held to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.session import KubeSession
from tests.backends.kubernetes.api_contract import *  # noqa: F403 - the tests are what is imported
from tests.backends.kubernetes.api_contract import Api
from tests.backends.kubernetes.fake_api import FakeApi


@pytest.fixture
async def api(server: FakeApi) -> AsyncIterator[Api]:
    server.token = "Bearer known"
    server.oldest = 50
    server.unbound = {"mark"}  # an account that no role is bound to
    for path in (
        "/api/v1/namespaces/somewhere",
        "/api/v1/namespaces/somewhere/persistentvolumeclaims/simrun-store",
    ):
        await server.put(path, {})
    access = Access(server=server.url, authorization="Bearer known")
    async with KubeSession(access) as kube:
        yield Api(kube, access, "somewhere", "mark")
