"""An empty store for each test, and no configuration but the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.store import Runs


@pytest.fixture(autouse=True)
def _no_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the developer has set for themselves has no say in tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-config"))
    for name in ("SERVER", "STORE", "CONTEXT", "GROUP", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"SIMRUN_{name}", raising=False)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Give an empty store."""
    return Runs(tmp_path / "store")
