"""The chart as helm renders it: against files, against its schema, and its Roles against the calls that the code makes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from simrun.model.cluster import ClusterConfig
from simrun.model.load import load_settings
from simrun.model.serving import GroupLimits, LimitsFile
from simrun.service.main import STOP_WITHIN_S
from tests.chart import CHART, FULL, Json, config_of, documents, done, helm, template

pytestmark = pytest.mark.programs

GOLDEN = Path(__file__).parents[1] / "golden" / "chart"
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
