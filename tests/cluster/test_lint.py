"""Argo's own linter on the golden manifests; it needs the argo program that the cluster is built with, and no cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from onenode import layout

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = sorted(GOLDEN.glob("*.yaml"))


@pytest.fixture(scope="session")
def argo() -> Path:
    """The command line of the Argo version that the cluster runs."""
    program = layout.program("argo", "argo")
    if not program.exists():
        pytest.fail(f"there is no {program}: run `tests/cluster/build argo`", pytrace=False)
    return program


def lint(argo: Path, path: Path) -> subprocess.CompletedProcess[str]:
    command = [argo, "lint", "--offline", "--kinds=workflows", "--no-color", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_argo_finds_no_fault_with_a_golden_manifest(argo: Path, path: Path) -> None:
    done = lint(argo, path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("template: plot", "template: plod"),
        ("value: '{{inputs.parameters.role}}'", "value: '{{inputs.parameters.roll}}'"),
        ("- sweep-w0", "- sweep-w7"),
        ("retryPolicy: Always", "retryPolicy: Sometimes"),
        ("volumeMounts:", "volumeMount:"),
    ],
)
def test_argo_finds_the_fault_of_a_wrong_manifest(
    argo: Path, tmp_path: Path, old: str, new: str
) -> None:
    text = (GOLDEN / "split.yaml").read_text(encoding="utf-8")
    assert old in text
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text.replace(old, new), encoding="utf-8")
    done = lint(argo, wrong)
    assert done.returncode != 0, done.stdout
