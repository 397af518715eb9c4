"""An empty store for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.store import Runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Give an empty store."""
    return Runs(tmp_path / "store")
