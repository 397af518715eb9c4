"""The real API server, held to what the fake one of tests/backends/kubernetes is held to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simrun.backends.kubernetes.access import load_access
from simrun.backends.kubernetes.listing import list_all
from simrun.backends.kubernetes.session import KubeSession
from tests.backends.kubernetes.api_contract import *  # noqa: F403 - the tests are what is imported
from tests.backends.kubernetes.api_contract import Api

pytestmark = pytest.mark.cluster


@pytest.fixture
async def api(kubeconfig: Path, namespace: str) -> AsyncIterator[Api]:
    async with await KubeSession.open(kubeconfig) as kube:
        access = await asyncio.get_running_loop().run_in_executor(None, load_access, kubeconfig)
        api = Api(kube, access, namespace, f"contract-{uuid.uuid4().hex[:8]}")
        yield api
        for left in await list_all(kube, api.collection, api.labels):
            await kube.delete(f"{api.collection}/{left['metadata']['name']}")
