"""A real API server says whose token it is, and whether it was made for simrun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simrun.backends.kubernetes.identity import AUDIENCE, review
from simrun.backends.kubernetes.session import KubeSession

if TYPE_CHECKING:
    from conftest import Kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def test_a_token_for_simrun_tells_its_account_and_any_other_nobody(
    kubectl: Kubectl, kubeconfig: Path, namespace: str
) -> None:
    own = kubectl("create", "token", "default", f"--audience={AUDIENCE}").strip()
    others = kubectl("create", "token", "default").strip()

    async with await KubeSession.open(kubeconfig) as kube:
        found = await review(kube, own)
        assert found is not None
        assert found.user == f"system:serviceaccount:{namespace}:default"
        assert f"system:serviceaccounts:{namespace}" in found.groups
        assert await review(kube, others) is None
        assert await review(kube, f"{own}x") is None
        assert await review(kube, "nonsense") is None
