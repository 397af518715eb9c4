"""Whose token it is, asked of the API server (TokenReview).

Only tokens that were made for simrun count, by their audience: whoever's token is good for the API server itself must not have to hand it to us.
"""

from __future__ import annotations

from typing import Final

from simrun.backends.base import Identity
from simrun.backends.kubernetes.session import KubeSession

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
AUDIENCE: Final = "simrun"


async def review(kube: KubeSession, token: str) -> Identity | None:
    """Say whose token it is; None for one that is not good, or was not made for simrun. Raises ApiError."""
    answer = await kube.create(
        PATH,
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        },
    )
    status = answer.get("status") or {}
    user = status.get("user") or {}
    if (
        status.get("authenticated") is not True
        or AUDIENCE not in (status.get("audiences") or [])
        or not user.get("username")
    ):
        return None
    return Identity(str(user["username"]), frozenset(map(str, user.get("groups") or ())))
