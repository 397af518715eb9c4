"""`simrun config`: which server or store is meant, where that is said, and the contexts to choose from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from simrun.cli.configpaths import Nothing, files_of, user_file
from simrun.cli.formatting import as_json, table
from simrun.cli.options import complete_contexts, output_option, server_option
from simrun.cli.where import Where, where

if TYPE_CHECKING:
    from simrun.cli.configfile import UserConfig

KEYS = ("context", "server", "store", "group", "token_file")
_SHOWN = ("context", "server", "store", "group", "token")


@click.group("config", short_help="Say which server or store is meant, and name contexts.")
def command() -> None:
    """Say which server or store is meant, and keep names for those that are used often.

    A flag comes before the environment ($SIMRUN_SERVER, $SIMRUN_STORE, $SIMRUN_CONTEXT, $SIMRUN_GROUP, $SIMRUN_TOKEN), that before the
    project's file (.simrun.yaml or simrun.yaml, from here up), that before the user's ($XDG_CONFIG_HOME/simrun/config.yaml).
    """


@command.command("show", short_help="Show what counts here.")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@server_option
@output_option
def show(*, origin: bool, server: str | None, store: str | None, output: str) -> None:
    """Show what counts here, in this directory and with these flags. Tokens are never shown."""
    values = _values(where(server, store))
    if output == "json":
        click.echo(as_json({key: {"value": value, "origin": said} for key, value, said in values}))
        return
    rows = [(key, value or "-", said or "-") for key, value, said in values]
    if origin:
        click.echo(table(("key", "value", "origin"), rows))
    else:
        click.echo(table(("key", "value"), [row[:2] for row in rows]))


@command.command("get", short_help="Print one value that counts here.")
@click.argument("key", type=click.Choice(_SHOWN[:-1]))
@server_option
def get(*, key: str, server: str | None, store: str | None) -> None:
    """Print the value of KEY that counts here. Exit code 6 where there is none."""
    from simrun.base.errors import NotFound

    found = {name: value for name, value, _ in _values(where(server, store))}
    if found[key] is None:
        raise NotFound(f"{key} is set nowhere; `simrun config show --origin` shows what is")
    click.echo(found[key])


@command.command("set", short_help="Set a value in the user's file.")
@click.argument("key", type=click.Choice(KEYS))
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Set KEY to VALUE in the user's file."""
    from simrun.cli.configedit import edit

    if key == "context":
        _known(value)
    edit(_path(), {key: value})


@command.command("unset", short_help="Remove a value from the user's file.")
@click.argument("key", type=click.Choice(KEYS))
def unset(key: str) -> None:
    """Remove KEY from the user's file."""
    from simrun.cli.configedit import edit

    edit(_path(), {key: None})


@command.command("use-context", short_help="Choose a context.")
@click.argument("name", shell_complete=complete_contexts)
def use_context(name: str) -> None:
    """Have the context NAME count wherever nothing else is said."""
    from simrun.cli.configedit import edit

    _known(name)
    edit(_path(), {"server": None, "store": None, "context": name})
    click.echo(f"context {name}", err=True)


@command.command("list-contexts", short_help="List the contexts.")
@output_option
def list_contexts(output: str) -> None:
    """List the contexts of the user's file; the one that counts here has a star."""
    known, chosen = _user().contexts, where().context
    if output == "json":
        click.echo(
            as_json(
                [
                    {"name": name, "current": name == chosen, **item.model_dump(mode="json")}
                    for name, item in known.items()
                ]
            )
        )
    elif known:
        rows = [
            (
                "*" if name == chosen else "",
                name,
                item.server or item.store or "",
                item.group or "-",
            )
            for name, item in known.items()
        ]
        click.echo(table(("", "context", "server or store", "group"), rows))
    else:
        click.echo("no contexts; `simrun config add-context NAME --server URL` makes one", err=True)


@command.command("add-context", short_help="Add a context to the user's file.")
@click.argument("name")
@click.option("--server", metavar="URL", help="Address of a `simrun serve`.")
@click.option("--store", metavar="DIR", help="Directory of a run store, instead of an address.")
@click.option("--token-file", metavar="FILE", help="File that holds the token for the server.")
@click.option("--group", metavar="GROUP", help="Group of runs that name none themselves.")
def add_context(
    *, name: str, server: str | None, store: str | None, token_file: str | None, group: str | None
) -> None:
    """Add the context NAME to the user's file, or put it in the place of the one of this name."""
    from simrun.cli import configedit

    if (server is None) == (store is None):
        raise click.UsageError("a context has either --server or --store")
    fields = {
        "server": server,
        "store": _absolute(store),
        "token_file": _absolute(token_file),
        "group": group,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    configedit.add_context(_path(), name, given)
    if token_file is not None and not Path(given["token_file"]).is_file():
        click.echo(f"{token_file} is not there yet: put the token into it", err=True)
    click.echo(f"simrun config use-context {name} makes it count", err=True)


def _values(found: Where) -> list[tuple[str, str | None, str | None]]:
    """Give key, value and origin of what counts; of the token only that there is one."""
    token = "set" if found.token or found.token_file else None
    return [
        ("context", found.context, found.context_origin),
        ("server", found.server, found.origin if found.server else None),
        (
            "store",
            None if found.server else str(found.store),
            None if found.server else found.origin,
        ),
        ("group", found.group, found.group_origin),
        ("token", token, found.token_origin),
    ]


def _known(name: str) -> None:
    from simrun.base.errors import NotFound
    from simrun.model.faults import Nearest, listed

    contexts = _user().contexts
    if name not in contexts:
        known = f"known are {listed(contexts)}" if contexts else "there are none yet"
        raise NotFound(f"no context {name!r}; {Nearest(contexts).remedy(name) or known}")


def _user() -> UserConfig | Nothing:
    return files_of(os.environ, Path.cwd()).user


def _path() -> Path:
    return user_file(os.environ)


def _absolute(path: str | None) -> str | None:
    """A path is given relative to where the command runs, and stands in a file that is elsewhere."""
    return None if path is None else str(Path(path).expanduser().absolute())
