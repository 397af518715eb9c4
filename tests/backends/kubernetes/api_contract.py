"""What simrun relies on in an API server, as tests that the fake one and the real one must pass alike.

A test module that imports these tests gives them the fixture `api`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from simrun.backends.kubernetes import errors, session
from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.lease import LeaseElector, LeaseTiming, holding
from simrun.backends.kubernetes.listing import list_all, list_with_version
from simrun.backends.kubernetes.preflight import Preflight
from simrun.backends.kubernetes.session import KubeSession
from simrun.base.errors import InvalidInput
from simrun.model.cluster import ClusterConfig

Json = dict[str, Any]

NO_UID = "00000000-0000-0000-0000-000000000000"


@dataclass
class Api:
    """A server, and a corner of it that nobody else uses: objects with the label `test=<mark>`."""

    kube: KubeSession
    access: Access
    namespace: str
    mark: str

    @property
    def collection(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def labels(self) -> str:
        return f"test={self.mark}"

    def path(self, name: str) -> str:
        return f"{self.collection}/{self.mark}-{name}"

    def config_map(self, name: str, text: str = "one") -> Json:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.mark}-{name}", "labels": {"test": self.mark}},
            "data": {"text": text},
        }

    async def create(self, name: str, text: str = "one") -> Json:
        return await self.kube.create(self.collection, self.config_map(name, text))

    async def version(self) -> str:
        _, version = await list_with_version(self.kube, self.collection, self.labels)
        return version

    @asynccontextmanager
    async def watch(
        self, version: str, accept: str = session.JSON, **query: str
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Watch this corner; the iterator gives events."""
        query = {
            "watch": "1",
            "labelSelector": self.labels,
            "resourceVersion": version,
            "timeoutSeconds": "60",
        } | query
        stream = self.kube.stream(self.collection, query, accept=accept, silence_s=30)
        async with aclosing(stream):
            yield _events(stream)


async def _events(stream: AsyncIterator[bytes]) -> AsyncIterator[Json]:
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


async def test_a_new_object_has_a_uid_and_a_version(api: Api) -> None:
    created = await api.create("a")

    assert created["metadata"]["uid"]
    assert int(created["metadata"]["resourceVersion"]) > 0
    assert await api.kube.get(api.path("a")) == created


async def test_a_second_object_of_a_name_is_refused_as_already_there(api: Api) -> None:
    await api.create("a")

    with pytest.raises(errors.AlreadyExists, match="already exists"):
        await api.create("a")


async def test_a_missing_object_is_told_from_an_unknown_resource(api: Api) -> None:
    with pytest.raises(errors.NotFound):
        await api.kube.get(api.path("nothing"))
    with pytest.raises(errors.NotFound):
        await api.kube.delete(api.path("nothing"))
    with pytest.raises(errors.UnknownResource):
        await api.kube.get(f"/apis/not.there/v1/namespaces/{api.namespace}/things/{api.mark}")


async def test_a_patch_changes_what_it_names_and_removes_what_is_null(api: Api) -> None:
    await api.create("a")

    patched = await api.kube.patch(api.path("a"), {"data": {"more": "two", "text": None}})

    assert patched["data"] == {"more": "two"}
    assert patched["metadata"]["labels"] == {"test": api.mark}


async def test_a_patch_with_an_outdated_version_is_a_conflict(api: Api) -> None:
    created = await api.create("a")
    await api.kube.patch(api.path("a"), {"data": {"text": "two"}})

    outdated = {"resourceVersion": created["metadata"]["resourceVersion"]}
    with pytest.raises(errors.Conflict):
        await api.kube.patch(api.path("a"), {"metadata": outdated, "data": {"text": "x"}})

    assert (await api.kube.get(api.path("a")))["data"] == {"text": "two"}


async def test_a_patch_for_another_uid_is_refused(api: Api) -> None:
    await api.create("a")

    with pytest.raises(errors.Invalid, match="immutable"):
        await api.kube.patch(api.path("a"), {"metadata": {"uid": NO_UID}, "data": {"text": "x"}})

    assert (await api.kube.get(api.path("a")))["data"] == {"text": "one"}


async def test_a_delete_for_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.create("a")

    with pytest.raises(errors.Conflict):
        await api.kube.delete(api.path("a"), uid=NO_UID)
    await api.kube.delete(api.path("a"), uid=created["metadata"]["uid"])

    with pytest.raises(errors.NotFound):
        await api.kube.get(api.path("a"))


async def test_an_object_without_a_name_is_invalid(api: Api) -> None:
    with pytest.raises(errors.Invalid):
        await api.kube.create(api.collection, {"kind": "ConfigMap", "apiVersion": "v1"})


async def test_a_list_is_read_page_by_page(api: Api) -> None:
    for name in "abcde":
        await api.create(name)

    items, version = await list_with_version(api.kube, api.collection, api.labels, page=2)

    assert [item["metadata"]["name"] for item in items] == [f"{api.mark}-{n}" for n in "abcde"]
    assert int(version) >= max(int(item["metadata"]["resourceVersion"]) for item in items)


async def test_a_list_can_be_of_metadata_alone(api: Api) -> None:
    await api.create("a")

    items = await list_all(api.kube, api.collection, api.labels, accept=session.METADATA_LIST)

    assert [item["metadata"]["labels"] for item in items] == [{"test": api.mark}]
    assert "data" not in items[0]


async def test_a_watch_tells_every_change_after_its_version_in_order(api: Api) -> None:
    await api.create("before")
    version = await api.version()
    created = await api.create("a")
    changed = await api.kube.patch(api.path("a"), {"data": {"text": "two"}})
    await api.kube.delete(api.path("a"))

    async with api.watch(version) as events:
        seen = [await anext(events) for _ in range(3)]

    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[0]["object"]["metadata"] == created["metadata"]
    assert seen[1]["object"]["data"] == changed["data"]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert int(version) < versions[0] < versions[1] < versions[2]


async def test_a_watch_can_be_of_metadata_alone(api: Api) -> None:
    version = await api.version()
    created = await api.create("a")

    async with api.watch(version, session.METADATA) as events:
        event = await anext(events)

    assert event["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in event["object"]


async def test_an_object_that_stops_matching_is_deleted_for_the_watch(api: Api) -> None:
    await api.create("a")
    version = await api.version()
    await api.kube.patch(api.path("a"), {"metadata": {"labels": {"test": None}}})

    async with api.watch(version) as events:
        event = await anext(events)
    await api.kube.delete(api.path("a"))

    assert event["type"] == "DELETED"
    assert "deletionTimestamp" not in event["object"]["metadata"]


async def test_a_watch_from_a_forgotten_version_is_gone(api: Api) -> None:
    # The server remembers no version from before the definition of workflows was made
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{api.namespace}/workflows"
    query = {"watch": "1", "resourceVersion": "1", "timeoutSeconds": "60"}

    async with aclosing(api.kube.stream(path, query, silence_s=30)) as stream:
        event = await anext(_events(stream))

    assert event["type"] == "ERROR"
    assert isinstance(errors.status_error("watch", event["object"]), errors.Gone)


async def test_the_server_ends_a_watch_after_the_time_asked_for_with_a_bookmark(api: Api) -> None:
    await api.create("a")
    version = await api.version()

    async with api.watch(version, timeoutSeconds="2", allowWatchBookmarks="true") as events:
        seen = [event async for event in events]

    assert {event["type"] for event in seen} <= {"BOOKMARK"}
    for event in seen:
        assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version)


async def test_a_token_that_is_not_known_is_unauthorized(api: Api) -> None:
    access = replace(api.access, authorization="Bearer not-a-token", tls=_without_client_cert(api))
    async with KubeSession(access) as kube:
        with pytest.raises(errors.Unauthorized):
            await kube.get(api.collection)


def _without_client_cert(api: Api) -> Any:
    """A TLS context that trusts whatever answers: this test is about who asks, not who answers."""
    import ssl

    if api.access.tls is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# --- what other parts of the backend rely on, through them


async def test_a_lease_is_taken_renewed_taken_over_and_given_back(api: Api) -> None:
    timing = LeaseTiming(lease_s=3.0, valid_s=2.0, renew_s=0.3, call_s=1.0, again_s=0.1)
    one, two = (
        LeaseElector(api.kube, api.namespace, name=api.mark, identity=name, timing=timing)
        for name in ("one", "two")
    )
    try:
        async with asyncio.timeout(30):
            async with holding(one, await one.acquire()) as first:
                await asyncio.sleep(2.5)  # longer than a term without a renewal
                assert first.valid()
            second = await two.acquire()
        assert first.epoch is not None
        assert second.epoch == first.epoch + 1
    finally:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
        await api.kube.delete(f"{leases}/{api.mark}")


async def test_what_a_cluster_lacks_is_found_out(api: Api) -> None:
    none = f"{api.mark}-none"
    config = ClusterConfig(
        namespace=api.namespace, local_queue=none, service_account=none, base_priority=none
    )

    with pytest.raises(InvalidInput) as caught:
        await Preflight(api.kube, config).placement({"base_priority": none})

    found = [(problem.field, problem.value) for problem in caught.value.problems]
    assert ("local_queue", none) in found
    assert ("service_account", none) in found
    assert found.count(("base_priority", none)) == 2  # of Kueue's and of the scheduler's


async def test_what_we_may_do_is_found_out(api: Api) -> None:
    await Preflight(api.kube, ClusterConfig(namespace=api.namespace)).permissions()


async def test_what_an_account_of_pods_may_not_do_is_found_out(api: Api) -> None:
    path = f"/api/v1/namespaces/{api.namespace}/serviceaccounts"
    account = {"metadata": {"name": api.mark}}
    await api.kube.create(path, {"apiVersion": "v1", "kind": "ServiceAccount", **account})
    try:
        config = ClusterConfig(namespace=api.namespace, service_account=api.mark)
        with pytest.raises(InvalidInput, match="may not create workflowtaskresults"):
            await Preflight(api.kube, config).placement({})
    finally:
        await api.kube.delete(f"{path}/{api.mark}")
