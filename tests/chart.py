"""The chart, and helm in the version that the tests are written for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from simrun.model.cluster import ClusterConfig
from simrun.model.load import load_settings

CHART = Path(__file__).parents[1] / "helm" / "simrun"
FULL = Path(__file__).parent / "golden" / "chart" / "full.values.yaml"
CLUSTER = Path(__file__).parent / "cluster"
if str(CLUSTER) not in sys.path:
    sys.path.insert(0, str(CLUSTER))

from onenode import layout  # noqa: E402 - the line above makes it importable

Json = dict[str, Any]


def helm(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm to its end. Fails the test when it was not built."""
    program = layout.helm()
    if not program.exists():
        pytest.fail(f"there is no {program}: run `make helm`", pytrace=False)
    command = [str(program), *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def done(result: subprocess.CompletedProcess[str]) -> str:
    """Give what a command wrote to stdout, once it has succeeded."""
    assert result.returncode == 0, f"{result.args}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def template(values: Path | None = None, *more: str, namespace: str = "here") -> str:
    """Give the manifests of a release `sim`, as text."""
    named = () if values is None else ("--values", values)
    return done(helm("template", "sim", CHART, "--namespace", namespace, *named, *more))


def documents(text: str) -> list[Json]:
    """Read manifests."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def config_of(manifests: list[Json]) -> ClusterConfig:
    """Read the cluster's configuration as `simrun serve` will."""
    (text,) = [
        one["data"]["cluster.yaml"] for one in manifests if one["kind"] == "ConfigMap"
    ]  # fmt: skip
    return load_settings(ClusterConfig, text.encode(), file="cluster.yaml")
