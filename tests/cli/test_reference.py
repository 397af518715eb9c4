"""docs/reference/cli.md has every command and every option, and none that there is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from simrun.cli.failures import ExitCode
from simrun.cli.main import COMMANDS, cli

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "cli.md").read_text()


def every(name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield f"{name} {inner.name}", inner
    else:
        yield name, command


def options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (*parameter.opts, *parameter.secondary_opts)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    assert re.search(rf"^## simrun {name}\b", TEXT, re.MULTILINE)
    for path, command in every(name):
        assert path in TEXT
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(option in TEXT for option in parameter.opts), (path, parameter.opts)


def test_no_option_is_described_that_there_is_not() -> None:
    known = {"--help", "--version", *options(cli)}
    for name in COMMANDS:
        for _, command in every(name):
            known |= set(options(command))
    for page in ("reference/cli.md", "how-to/remote.md"):
        text = (DOCS / page).read_text()
        found = set(re.findall(r"(?<![-\w])--[a-z][-a-z]*", text))
        assert found <= known, (page, found - known)


def test_every_exit_code_is_described() -> None:
    for code in ExitCode:
        assert f"| {code:d} |" in TEXT
