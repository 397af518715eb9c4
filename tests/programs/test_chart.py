"""The chart as helm renders it: against files, against its schema, and its Roles against the calls that the code makes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from simrun.backends.kubernetes.access import Access
from simrun.backends.kubernetes.backend import KubernetesBackend
from simrun.backends.kubernetes.errors import UnknownResource
from simrun.backends.kubernetes.lease import LeaseElector, LeaseTiming, lease_name
from simrun.backends.kubernetes.session import KubeSession
from simrun.model.cluster import ClusterConfig
from simrun.model.load import load_settings
from simrun.model.record import RunRecord, RunTimes
from simrun.model.serving import GroupLimits, LimitsFile
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow
from simrun.planning import plan_run
from simrun.service.main import STOP_WITHIN_S
from tests.backends.kubernetes.fake_api import FakeApi, furnished_api
from tests.backends.kubernetes.objects import pod, running
from tests.chart import CHART, Json, documents, done, helm, template

pytestmark = pytest.mark.programs

GOLDEN = Path(__file__).parents[1] / "golden" / "chart"
FULL = GOLDEN / "full.values.yaml"
OWN = {
    "namespace",
    "service_account",
    "store",
    "store_path",
    "snapshots",
    "snapshots_path",
    "run_as_user",
    "run_as_group",
}
"""What the chart says of the cluster's configuration by itself."""


# --- as text


@pytest.mark.parametrize("values", [None, FULL], ids=["default", "full"])
def test_lint_has_nothing_to_say(values: Path | None) -> None:
    named = () if values is None else ("--values", values)
    done(helm("lint", "--strict", CHART, *named))


@pytest.mark.parametrize(("name", "values"), [("default", None), ("full", FULL)])
def test_the_manifests_are_those_in_the_file(name: str, values: Path | None) -> None:
    text = template(values)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_full_values_set_every_value_that_there_is() -> None:
    def keys(values: Json, below: str = "") -> Iterator[str]:
        for key, value in values.items():
            yield f"{below}{key}"
            if isinstance(value, dict):
                yield from keys(value, f"{below}{key}.")

    full = set(keys(yaml.safe_load(FULL.read_text())))
    assert set(keys(yaml.safe_load((CHART / "values.yaml").read_text()))) <= full


# --- the schema


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("stroe.path=x", "'stroe' not allowed"),
        ("store.claim=x", "'claim' not allowed"),
        ("store.existingClaim=", "/store/existingClaim"),
        ("store.path=../other", "/store/path"),
        ("user=0", "/user"),
        ("user=nobody", "/user"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("image.digest=sha256:1", "/image/digest"),
        ("cluster.namespace=elsewhere", "'namespace' not allowed"),
        ("cluster.local_queue=", "/cluster/local_queue"),
        ("cluster.scratch.hostPath.path=/tmp", "/cluster/scratch"),
        ("cluster.workflow_ttl_s=1", "/cluster/workflow_ttl_s"),
        ("serve.port=80", "/serve/port"),
        ("serve.logFormat=xml", "/serve/logFormat"),
        ("service.type=ExternalName", "/service/type"),
        ("rbac.create=yes", "/rbac/create"),
        ("terminationGracePeriodSeconds=10", "/terminationGracePeriodSeconds"),
        ("index.sizeLimit=much", "/index/sizeLimit"),
        ("auth.existingSecret=", "/auth/existingSecret"),
        ("metrics.serviceMonitor.enabled=true", "/metrics/serviceMonitor/tokenSecret/name"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(wrong: str, named: str) -> None:
    result = helm("template", "sim", CHART, "--set", wrong)

    assert result.returncode != 0
    assert named in result.stderr


def test_the_schema_knows_every_field_of_the_clusters_configuration() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(schema["properties"]["cluster"]["properties"])

    assert known | OWN == set(ClusterConfig.model_fields), (
        "a new field of ClusterConfig goes into values.schema.json (`cluster`) and full.values.yaml"
    )
    assert not known & OWN


def test_the_service_has_longer_to_stop_than_it_takes() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    grace = schema["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert values["terminationGracePeriodSeconds"] >= grace > STOP_WITHIN_S


# --- what simrun makes of it


def config_of(manifests: list[Json]) -> ClusterConfig:
    """Read the cluster's configuration as `simrun serve` will."""
    (text,) = [
        one["data"]["cluster.yaml"] for one in manifests if one["kind"] == "ConfigMap"
    ]  # fmt: skip
    return load_settings(ClusterConfig, text.encode(), file="cluster.yaml")


def test_simrun_reads_the_limits_that_the_values_said() -> None:
    full = yaml.safe_load(FULL.read_text())
    (text,) = [
        one["data"]["limits.yaml"]
        for one in documents(template(FULL))
        if one["kind"] == "ConfigMap"
    ]
    schema = json.loads((CHART / "values.schema.json").read_text())

    found = load_settings(LimitsFile, text.encode(), file="limits.yaml")

    assert found == LimitsFile.model_validate(full["limits"])
    assert found.of("orbits").live_runs is None
    known = set(schema["definitions"]["groupLimits"]["properties"])
    assert known == set(GroupLimits.model_fields) == set(full["limits"]["default"])
    assert "--limits" not in json.dumps(documents(template()))


def test_simrun_reads_what_the_values_said() -> None:
    full = yaml.safe_load(FULL.read_text())

    default, config = config_of(documents(template())), config_of(documents(template(FULL)))

    assert default.topology == "kubernetes.io/hostname"
    assert default.snapshots == {
        "persistentVolumeClaim": {"claimName": "simrun-store", "readOnly": True}
    }
    assert default.snapshots_path == "snapshots"
    given = config.model_dump(mode="json", include=set(full["cluster"]))
    assert given == full["cluster"] | {"topology": None}
    assert (config.namespace, config.service_account) == ("here", "pods-of-sim")
    assert (config.run_as_user, config.run_as_group) == (full["user"], full["group"])
    assert config.store_path == "teams/simrun"
    assert config.snapshots == {
        "persistentVolumeClaim": {"claimName": "snapshots", "readOnly": True}
    }
    assert config.snapshots_path == "published"


def test_the_options_are_those_of_simrun_serve() -> None:
    from simrun.cli.serve import command

    for values in (None, FULL):
        (deployment,) = [one for one in documents(template(values)) if one["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        name, *options = container["args"]

        given = command.make_context(name, options).params  # raises for an option that there is not

        assert name == command.name
        assert given["backend"] == "kubernetes"


@pytest.mark.parametrize("values", [None, FULL], ids=["default", "full"])
def test_a_namespace_that_is_restricted_takes_the_pod(values: Path | None) -> None:
    (deployment,) = [one for one in documents(template(values)) if one["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"] + spec.get("initContainers", []):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert {"name": "tmp", "mountPath": "/tmp"} in spec["containers"][0]["volumeMounts"]
    assert not any("hostPath" in volume for volume in spec["volumes"])


def test_a_claim_that_is_named_twice_is_mounted_once() -> None:
    more = ("snapshots.existingClaim=simrun-store", "store.path=below", "snapshots.path=published")
    named = [word for one in more for word in ("--set", one)]
    for given, below in ((named, "published"), (named[:4], "below/snapshots")):
        manifests = documents(template(None, *given))
        (deployment,) = [one for one in manifests if one["kind"] == "Deployment"]
        volumes = deployment["spec"]["template"]["spec"]["volumes"]

        claims = [one for one in volumes if "persistentVolumeClaim" in one]

        assert [one["name"] for one in claims] == ["store"]
        assert config_of(manifests).snapshots_path == below


def test_the_alerts_are_those_of_the_documentation() -> None:
    ours = CHART / "files" / "simrun.rules.yaml"
    theirs = CHART.parents[1] / "docs" / "monitoring" / "simrun.rules.yaml"
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        ours.write_bytes(theirs.read_bytes())

    (rules,) = [one for one in documents(template(FULL)) if one["kind"] == "PrometheusRule"]

    assert ours.read_bytes() == theirs.read_bytes(), "SIMRUN_GOLDEN=write copies them"
    assert rules["spec"] == yaml.safe_load(theirs.read_text())


# --- the image


def test_the_image_belongs_to_the_user_that_the_chart_takes_and_copies_what_is_in_its_context() -> (
    None
):
    top = CHART.parents[1]
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = (top / "Containerfile").read_text().splitlines()
    copied = {
        word.split("/")[0]
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    }
    context = (top / ".dockerignore").read_text().splitlines()

    assert f"USER {values['user']}:{values['group']}" in lines
    assert copied == {line.removeprefix("!") for line in context if line.startswith("!")}
    assert all((top / name).exists() for name in copied)


# --- Roles


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
