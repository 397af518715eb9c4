"""`simrun`: the commands, and how each ends.

`simrun --help` has to be quick, so a command's module is imported when the command runs and not before: the table
below holds what the help shows. stdout carries data only; progress and errors go to stderr.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from simrun.cli.options import context_option

COMMANDS = {
    "run": "Run a workflow file and follow it to its end.",
    "serve": "Follow runs until it is stopped, for whoever submits them.",
    "submit": "Hand a run over to a server, and leave it there.",
    "watch": "Show a run on a server until it has ended.",
    "wait": "Wait for the end of a run on a server.",
    "cancel": "Cancel a run on a server.",
    "retry": "Do what failed of a run again.",
    "delete": "Delete ended runs with all that they made.",
    "validate": "Check a workflow file, all of it, without running anything.",
    "types": "Show the task types of a workflow file, or what types used.",
    "init": "Write a small example workflow to start from.",
    "list": "List the runs in the store.",
    "why": "Say what a run on a server waits for.",
    "show": "Show a run, or one of its tasks.",
    "logs": "Print the output of a task's workers.",
    "get": "Download the outputs of a run.",
    "report": "Say what a run used of what it was given.",
    "doctor": "Look for what keeps runs from working, and for what they left.",
    "plan": "Make launch plans, activate and launch them.",
    "schedule": "Show and steer the schedules of launch plans.",
    "completion": "Print what makes a shell complete commands, runs, contexts.",
    "config": "Say which server or store is meant, and name contexts.",
    "snapshot": "Make, list, verify and delete snapshots: data sets for runs.",
    "token": "Make tokens for a server.",
    "version": "Print the version.",
}
_MODULES = {"validate": "check", "types": "typelist", "list": "listing"}
"""Where a command's module can't be called as the command is."""


class Commands(click.Group):
    """The group of all commands, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names of the commands in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"simrun.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__}.command is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and leave with its exit code; what simrun raises on purpose becomes a text and a code."""
        arguments = list(sys.argv[1:] if args is None else args)
        code = self._run(arguments, prog_name, complete_var, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _run(
        self,
        arguments: list[str],
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        from simrun.base.errors import SimrunError

        try:
            result = super().main(
                arguments, prog_name, complete_var, standalone_mode=False, **extra
            )
        except SimrunError as error:
            from simrun.cli import failures

            failures.show(error, as_json=failures.wants_json(arguments))
            return int(failures.exit_code(error))
        except click.ClickException as error:
            from simrun.cli import failures

            if failures.wants_json(arguments):
                failures.show_usage(error.format_message())
            else:
                error.show()
            return error.exit_code
        except OSError as error:  # a disk that is full, a directory that is another's
            from simrun.cli import failures

            what = error.strerror or str(error)
            text = f"{error.filename}: {what}" if error.filename else what
            failures.show(SimrunError(text), as_json=failures.wants_json(arguments))
            _give_up_output()
            return int(failures.ExitCode.FAILED)
        except click.Abort:
            return 130  # Ctrl-C where nothing has to be wound up
        return result if isinstance(result, int) else 0


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@context_option
@click.version_option(None, "--version", package_name="simrun", message="simrun %(version)s")
def cli() -> None:
    """Run simulation campaigns: a DAG of tasks, split over workers, here or on Kubernetes.

    \b
    simrun init demo && cd demo    an example to start from
    simrun validate workflow.yaml  is the file right?
    simrun run workflow.yaml       run it, and see where its output is
    simrun serve                   follow runs in the background: submit, watch, cancel, retry

    Exit codes: 0 succeeded, 1 failed, 2 wrong usage or input, 3 cancelled, 4 waited long enough,
    5 no server, 6 not found, 130 left with Ctrl-C.
    """


def _give_up_output() -> None:
    """Have what is still to be written to stdout go nowhere, if it can't be: the interpreter would complain about it at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - it lasts as long as the process


def main() -> None:
    """Enter from the shell."""
    for stream in (sys.stdout, sys.stderr):
        # Names are of any language, terminals not
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="simrun")


if __name__ == "__main__":
    main()
