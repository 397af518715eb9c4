"""`simrun token`: tokens for a server, which keeps only their hashes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from simrun.cli.options import output_option

if TYPE_CHECKING:
    from simrun.model.access import TokenEntry


_OPTIONS = {"name": "--name", "scope": "--scope", "groups": "--group", "expires": "--expires"}
"""Which option stands for a field of an entry."""


@click.group("token", short_help="Make tokens for a server.")
def command() -> None:
    """Make tokens for a server (simrun serve --tokens FILE)."""


@command.command("create", short_help="Make a token, and the entry that lets it in.")
@click.option("--name", metavar="NAME", required=True, help="Whose it is, or what for.")
@click.option(
    "--scope",
    type=click.Choice(["read", "run", "admin"]),
    default="run",
    show_default=True,
    help="What it allows: look at runs; make and end them too; everything, for all groups.",
)
@click.option(
    "--group",
    "groups",
    metavar="GROUP",
    multiple=True,
    help="Group whose runs it may see and use; '*' for all. May be given again.",
)
@click.option(
    "--expires",
    metavar="WHEN",
    help="When it ends to be good: a date, a time, or days from now such as 90d. [default: never]",
)
@output_option
def create(
    *,
    name: str,
    scope: Literal["read", "run", "admin"],
    groups: tuple[str, ...],
    expires: str | None,
    output: Literal["table", "json"],
) -> None:
    """Make a token.

    The token goes to stderr, this once, and is kept nowhere. The entry for the server's file goes to stdout, so that it can be appended:

    \b
    simrun token create --name anna --group orbits >> tokens.yaml
    """
    from pydantic import ValidationError

    from simrun.base.errors import InvalidInput
    from simrun.model.access import TokenEntry, new_token, token_hash
    from simrun.model.wording import invalid

    if scope == "run" and not groups:
        raise InvalidInput.one(
            "--group",
            "is missing: without a group nothing can be run",
            remedy="name one, or take --scope admin",
        )
    token = new_token()
    values = {
        "name": name,
        "sha256": token_hash(token),
        "scope": scope,
        "groups": list(groups),
        "expires": _moment(expires),
    }
    try:
        entry = TokenEntry.model_validate(values)
    except ValidationError as error:
        raise invalid(
            error, model=TokenEntry, data=values, field_of=lambda path: _OPTIONS[str(path[0])]
        ) from error
    if output == "json":
        click.echo(json.dumps({"token": token, "entry": _plain(entry)}, ensure_ascii=False))
        return
    click.echo(f"- {_flow(_plain(entry))}")
    click.echo(f"the token, shown this once: {token}", err=True)
    if not entry.groups and entry.scope == "read":
        click.echo("without a group it sees no runs, only /metrics and the like", err=True)


def _plain(entry: TokenEntry) -> dict[str, object]:
    """Give an entry as JSON has it, without what is left at its default."""
    found: dict[str, object] = entry.model_dump(mode="json", exclude_defaults=True)
    if "groups" in found:
        found["groups"] = sorted(entry.groups)
    return found


def _flow(entry: dict[str, object]) -> str:
    """Give an entry on one line of YAML."""
    parts = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "{" + ", ".join(parts) + "}"


def _moment(text: str | None) -> object:
    """Give the time that `90d` means from now; any other text as it is, for the model to read."""
    from simrun.base.clock import SystemClock

    if text is None or not text.endswith("d") or not text[:-1].isdigit():
        return text
    at = SystemClock().wall() + int(text[:-1]) * 86400
    return datetime.fromtimestamp(int(at), UTC)
