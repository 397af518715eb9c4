"""The Roles of the chart against the calls that the code makes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.backend import KubernetesBackend
from simrun.backends.kubernetes.errors import UnknownResource
from simrun.backends.kubernetes.lease import LeaseElector, LeaseTiming, lease_name
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.cluster import ClusterConfig
from simrun.model.record import RunRecord, RunTimes
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run
from tests.backends.kubernetes.fake_api import FakeApi, furnished_api
from tests.backends.kubernetes.objects import pod, running
from tests.chart import FULL, Json, config_of, documents, template

pytestmark = pytest.mark.programs


@dataclass(frozen=True, order=True)
class Permission:
    """To do something with a kind of object, in the namespace or in the cluster; name "" for all."""

    scope: str
    verb: str
    resource: str
    name: str = ""


VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
FOR_EVERYBODY = {
    # Every cluster gives these to whoever has logged in: system:basic-user
    Permission("Cluster", "create", "selfsubjectaccessreviews.authorization.k8s.io")
}
NOT_GIVEN = {
    # What may not be looked at counts as there, and a release's own namespace is
    Permission("Cluster", "get", "namespaces", "here")
}


def asked(request: web.Request) -> Permission | None:
    """Give what a request needs, as the API server counts it; None for what every account may read."""
    root, _, group = request.path.strip("/").partition("/")
    group, _, rest = ("", "", group.partition("/")[2]) if root == "api" else group.partition("/")
    parts = rest.split("/") if root == "api" else rest.split("/")[1:]
    if parts in ([], [""]):
        return None  # the versions of a group
    scope = "Cluster"
    if parts[0] == "namespaces" and len(parts) > 2:
        assert parts[1] == "here"
        scope, parts = "Namespace", parts[2:]
    plural, name, sub = [*parts, "", ""][:3]
    verb = VERBS.get(request.method) or (
        "get" if name else "watch" if "watch" in request.query else "list"
    )
    resource = f"{plural}/{sub}" if sub else plural
    return Permission(scope, verb, f"{resource}.{group}" if group else resource, name)


def granted(manifests: list[Json], role: str) -> set[Permission]:
    """Give what the roles of this name permit."""
    found = set()
    for manifest in manifests:
        if manifest["kind"] not in ("Role", "ClusterRole") or manifest["metadata"]["name"] != role:
            continue
        scope = "Cluster" if manifest["kind"] == "ClusterRole" else "Namespace"
        for rule in manifest["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    full = f"{resource}.{group}" if group else resource
                    found |= {
                        Permission(scope, verb, full, name)
                        for verb in rule["verbs"]
                        for name in rule.get("resourceNames", [""])
                    }
    return found


def permits(permission: Permission, wanted: Permission) -> bool:
    """Whether a permission is enough for a request."""
    return permission.name in ("", wanted.name) and Permission(
        permission.scope, permission.verb, permission.resource
    ) == Permission(wanted.scope, wanted.verb, wanted.resource)


@pytest.fixture
async def server() -> AsyncIterator[FakeApi]:
    async with furnished_api() as api:
        yield api


async def do_everything(server: FakeApi, config: ClusterConfig) -> None:
    """Make every kind of request that the service makes in its life."""
    home = "/api/v1/namespaces/here"
    await server.put(f"{home}/serviceaccounts/{config.service_account}", {})
    await server.put(
        f"/apis/kueue.x-k8s.io/v1beta2/namespaces/here/localqueues/{config.local_queue}",
        {"spec": {"clusterQueue": "all"}},
    )
    await server.put("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/all", {})
    words = [None, *config.priorities]
    for name in {name for word in words for name in config.priority(word)}:
        await server.put(f"/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/{name}", {})
        await server.put(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}", {})
    for source in (config.store, config.snapshots, config.scratch):
        if claim := source.get("persistentVolumeClaim"):
            await server.put(f"{home}/persistentvolumeclaims/{claim['claimName']}", {})
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    marks = {"metadata": {"labels": dict(config.node_selector)}, "spec": {}, "status": ready}
    await server.put("/api/v1/nodes/n1", marks)
    split = {"workers": 2, "units": {"list": [1, 2]}}
    types = {"sim": TaskType.model_validate({"command": ["true"], "image": "i:1", "split": split})}
    workflow = Workflow(tasks={"sim": Task(type="sim")})
    plans = plan_run(workflow, types, {}, {})

    def record(run: str, priority: str | None = None) -> RunRecord:
        values = {"id": run, "fingerprint": "f", "priority": priority}
        return RunRecord(**values, times=RunTimes(created=0)).with_workflow(workflow)

    async with KubeSession(Access(server=server.url)) as kube:
        timing = LeaseTiming(renew_s=0.0)
        elector = LeaseElector(kube, config.namespace, name=lease_name(config), timing=timing)
        term = await elector.acquire()
        async with elector.holding(term), KubernetesBackend(config, kube) as backend:
            await backend.check()
            await backend.synced()
            await server.watched(3)
            for number, word in enumerate(words):
                await backend.submit(record(f"p{number}", word), plans, types)
            name = await backend.submit(record("r1"), plans, types)
            await backend.submit(record("r1"), plans, types)
            there = server.read(f"/apis/argoproj.io/v1alpha1/namespaces/here/workflows/{name}")
            assert there is not None
            owner = there["metadata"]["uid"]
            one = pod("sim-w0(0)", workflow=name, owner=owner, containers=(running(),))
            one["metadata"]["labels"]["simrun/worker"] = "sim-w0"
            await server.put(f"{home}/pods/{one['metadata']['name']}", one)
            server.logs[one["metadata"]["name"]] = b"text\n"
            await backend.status(name)
            await backend.queues()
            with contextlib.suppress(UnknownResource):  # asked all the same, which is what counts
                await backend.review("a token of the cluster")
            assert b"".join([chunk async for chunk in backend.logs(name, "sim-w0", 0)])
            node = await backend.reserve("r1")
            await backend.release(node, "r1")
            await backend.release(None, "r1")
            await backend.stop(name, now=True)
            await backend.delete(name)


@pytest.mark.parametrize("values", [None, FULL], ids=["default", "full"])
async def test_the_service_may_do_what_it_does_and_nothing_else(
    server: FakeApi, values: Path | None
) -> None:
    """With its lease, the queue, the claims and so on by their names."""
    manifests = documents(
        template(values, "--set", "rbac.reserveNodes=true,rbac.tokenReviews=true")
    )
    config = config_of(manifests)

    await do_everything(server, config)

    (deployment,) = [one for one in manifests if one["kind"] == "Deployment"]
    name = deployment["metadata"]["name"]
    given = granted(manifests, name) | granted(manifests, f"here-{name}")
    free = FOR_EVERYBODY | NOT_GIVEN
    needed = {what for request in server.requests if (what := asked(request)) is not None} - free
    if values is None:  # the chart makes the account of the pods, and knows what that one may do
        needed = {one for one in needed if not one.resource.startswith("localsubjectaccessreviews")}
    assert not sorted(one for one in needed if not any(permits(rule, one) for rule in given))
    assert not sorted(rule for rule in given if not any(permits(rule, one) for one in needed))


def test_without_reservations_nodes_are_nobodys_business() -> None:
    manifests = documents(template())

    assert "nodes" not in {
        resource
        for manifest in manifests
        for rule in manifest.get("rules", [])
        for resource in rule["resources"]
    }


def test_the_account_of_the_pods_may_write_results_and_nothing_else() -> None:
    given = granted(documents(template()), "sim-simrun-pod")

    results = "workflowtaskresults.argoproj.io"
    assert given == {Permission("Namespace", verb, results) for verb in ("create", "patch")}


def test_no_role_has_a_wildcard_and_every_binding_names_what_is_there() -> None:
    manifests = documents(template())
    made = {(one["kind"], one["metadata"]["name"]) for one in manifests}

    for manifest in manifests:
        for rule in manifest.get("rules", []):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        if manifest["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            role = manifest["roleRef"]
            assert (role["kind"], role["name"]) in made
            (subject,) = manifest["subjects"]
            assert ("ServiceAccount", subject["name"]) in made
            assert subject["namespace"] == "here"
