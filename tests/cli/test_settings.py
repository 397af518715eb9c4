"""docs/reference/settings.md has every setting of a server, as its options say it, and every variable of the environment that is read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from simrun.cli.main import cli
from simrun.cli.serve import VARIABLES
from simrun.model.access import TokenEntry
from simrun.model.serving import GroupLimits
from tests.cli.store import simrun

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "settings.md"
ACCESS = (ROOT / "docs" / "how-to" / "access.md").read_text()
OTHERS = "".join(
    (ROOT / "docs" / name).read_text() for name in ("contract.md", "reference/cluster.md")
)
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


def table() -> str:
    """Give the table of all options of `simrun serve`."""
    command = cli.get_command(click.Context(cli), "serve")
    assert command is not None
    lines = ["| option | variable | default | what |", "|---|---|---|---|"]
    for option in command.params:
        assert isinstance(option, click.Option)
        text = option.help or ""
        said = _DEFAULT.search(text)
        default = said[1] if said else str(option.default) if option.show_default else ""
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        variable = f"`{VARIABLES}_{(option.name or '').upper()}`"
        lines.append(f"| {names} | {variable} | {default} | {_DEFAULT.sub('', text)} |")
    return "\n".join(lines) + "\n"


def test_every_option_of_a_server_stands_on_the_page() -> None:
    """SIMRUN_GOLDEN=write writes the table."""
    found = table()
    if os.environ.get("SIMRUN_GOLDEN") == "write":
        text = re.sub(r"\| option \| variable .*\n(\|.*\n)*", lambda _: found, PAGE.read_text())
        PAGE.write_text(text)

    assert found in PAGE.read_text()


def test_every_variable_that_is_read_is_described() -> None:
    read = {
        name
        for path in (ROOT / "simrun").rglob("*.py")
        for name in re.findall(r"\"(SIMRUN_[A-Z_]+[A-Z])\"", path.read_text())
    }
    described = set(re.findall(r"SIMRUN_[A-Z_]+[A-Z]", PAGE.read_text() + OTHERS))

    assert read - {VARIABLES} <= described


@pytest.mark.parametrize("name", [*GroupLimits.model_fields, *TokenEntry.model_fields])
def test_every_field_of_limits_and_tokens_is_described(name: str) -> None:
    assert f"| `{name}` | " in ACCESS


def test_a_variable_stands_for_an_option_and_the_option_wins(tmp_path: Path) -> None:
    store = tmp_path / "store"
    by_variable = simrun("serve", "--store", store, env={f"{VARIABLES}_HOST": "192.0.2.1"})
    assert "--host" in by_variable.stderr
    both = simrun(
        "serve", "--store", store, "--host", "192.0.2.2", env={f"{VARIABLES}_HOST": "192.0.2.1"}
    )
    assert "192.0.2.2" in both.stderr
