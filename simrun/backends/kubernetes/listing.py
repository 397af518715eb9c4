"""A consistent list of objects, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from simrun.backends.kubernetes import errors, session
from simrun.backends.kubernetes.errors import JsonObject
from simrun.backends.kubernetes.session import KubeSession

PAGE = 500


class Page(NamedTuple):
    """A part of a list, and the resourceVersion of the whole."""

    items: list[JsonObject]
    version: str


async def list_all(
    kube: KubeSession, path: str, labels: str = "", *, accept: str = session.JSON
) -> list[JsonObject]:
    """Give all objects of a collection that the label selector matches."""
    items, _ = await list_with_version(kube, path, labels, accept=accept)
    return items


async def list_with_version(
    kube: KubeSession, path: str, labels: str = "", *, accept: str = session.JSON, page: int = PAGE
) -> tuple[list[JsonObject], str]:
    """Give the objects of a collection, and the resourceVersion from which a watch goes on."""
    items: list[JsonObject] = []
    version = ""
    async with aclosing(pages(kube, path, labels, accept=accept, page=page)) as found:
        async for one in found:
            items += one.items
            version = one.version
    return items, version


async def pages(
    kube: KubeSession, path: str, labels: str = "", *, accept: str = session.JSON, page: int = PAGE
) -> AsyncGenerator[Page]:
    """Yield the objects of a collection page by page: 5,000 pods at once take 200 MB.

    No resourceVersion is asked for, which makes the list consistent: a cache of the server that lags may not answer.
    Raises Gone when the list is too large and slow for the server to remember where it was.
    """
    query = {"limit": str(page)}
    if labels:
        query["labelSelector"] = labels
    while True:
        answer = await kube.get(path, query, accept)
        metadata, found = answer.get("metadata"), answer.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(found, list):
            raise errors.Nonsense(f"GET {path}: the answer is no list")
        yield Page(found, str(metadata.get("resourceVersion") or ""))
        following = metadata.get("continue")
        if not following:
            return
        query["continue"] = str(following)
