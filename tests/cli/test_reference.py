"""docs/reference/cli.md has every command and every option."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from simrun.cli.failures import ExitCode
from simrun.cli.main import COMMANDS, cli

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert f"## simrun {name}" in TEXT
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(option in TEXT for option in parameter.opts), parameter.opts


def test_every_exit_code_is_described() -> None:
    for code in ExitCode:
        assert f"| {code:d} |" in TEXT
