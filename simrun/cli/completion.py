"""`simrun completion`."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SIMRUN_COMPLETE"


@click.command(
    "completion", short_help="Print what makes a shell complete commands, runs, contexts."
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the code that makes SHELL complete commands, options, ids of runs and contexts.

    \b
    bash: eval "$(simrun completion bash)"               in ~/.bashrc
    zsh:  eval "$(simrun completion zsh)"                in ~/.zshrc, after compinit
    fish: simrun completion fish | source                in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from simrun.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(cli, {}, "simrun", VARIABLE).source())
