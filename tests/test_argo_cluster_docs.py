"""docs/reference/cluster.md names every field of ClusterConfig with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from simrun.model.cluster import ClusterConfig

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "cluster.md"


def rows() -> dict[str, Any]:
    """The tables' rows: field -> default, read as YAML."""
    found = re.findall(r"^\| `(\w+)` \| `(.+?)` \| \S.* \|$", PAGE.read_text(), re.MULTILINE)
    assert len({name for name, _ in found}) == len(found)
    return {name: yaml.safe_load(default) for name, default in found}


def test_every_field_stands_on_the_page_with_its_default() -> None:
    assert rows() == ClusterConfig().model_dump(mode="json")


def test_the_example_is_a_configuration() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    config = ClusterConfig(**yaml.safe_load(example))
    assert (config.namespace, config.run_as_user) == ("sims", 64000)
