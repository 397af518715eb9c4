"""Which server or store a command is for: flag > environment > project's file > user's file > default.

Server, store and context are three ways to say one thing, so the highest level that says any of them decides. A token goes with the server it is
meant for: one from the environment is never sent to an address that only a project's file names.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from simrun.base.errors import InvalidInput, NotFound, Problem
from simrun.cli.configpaths import Files, address_problem, files_of, resolved

if TYPE_CHECKING:
    from simrun.cli.configfile import Place

STORE_VARIABLE = "SIMRUN_STORE"
STORE_DIRECTORY = ".simrun"
SERVER_VARIABLE = "SIMRUN_SERVER"
CONTEXT_VARIABLE = "SIMRUN_CONTEXT"
GROUP_VARIABLE = "SIMRUN_GROUP"
TOKEN_VARIABLE = "SIMRUN_TOKEN"
TOKEN_FILE_VARIABLE = "SIMRUN_TOKEN_FILE"

CONTEXT_META = "simrun.context"
"""Key of click's context under which --context is kept: not every command need hand it on."""
_TOLD_META = "simrun.told"

Level = Literal["flag", "environment", "project", "user", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What was found. Either `server` is an address, or `store` alone says which one is meant.

    origin: where that was said, for people. named: what says it again on a command line, with a blank before it.
    token_file, token: where the token for the server comes from; the environment's own is `token`.
    """

    server: str | None
    store: Path
    level: Level
    origin: str
    context: str | None = None
    context_origin: str | None = None
    group: str | None = None
    group_origin: str | None = None
    named: str = ""
    token_file: Path | None = None
    token: str | None = field(default=None, repr=False)
    token_origin: str | None = None
    warnings: tuple[str, ...] = ()

    def read_token(self) -> str:
        """Give the token to send, "" for none; warns of a file that others may read. Raises InvalidInput."""
        if self.token_file is None:
            return self.token or ""
        return token_of(self.token_file, self.token_origin or "")


def where(
    server: str | None = None, store: str | None = None, context: click.Context | None = None
) -> Where:
    """Find which server or store is meant, from the flags given, and say on stderr what was left aside.

    context: click's, where it is not the current one.

    Raises InvalidInput for a file that is wrong or an address that is none, NotFound for a context that nobody has defined.
    """
    context = context or click.get_current_context(silent=True)
    meta = context.meta if context else {}
    found = find(os.environ, Path.cwd(), server=server, store=store, context=meta.get(CONTEXT_META))
    told = meta.setdefault(_TOLD_META, set())
    for warning in found.warnings:
        if warning not in told and not (context and context.resilient_parsing):
            told.add(warning)
            click.echo(f"warning: {warning}", err=True)
    return found


def find(
    environ: Mapping[str, str],
    cwd: Path,
    *,
    server: str | None = None,
    store: str | None = None,
    context: str | None = None,
) -> Where:
    """Find which server or store is meant."""
    return _Search(environ, cwd, files_of(environ, cwd)).found(server, store, context)


def token_of(path: Path, origin: str) -> str:
    """Read a token. Raises InvalidInput; warns of a file that others may read."""
    try:
        mode = path.stat().st_mode
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise InvalidInput(
            [Problem("token_file", f"can't be read: {reason}", repr(str(path)), place=origin)]
        ) from error
    if not text or any(char.isspace() for char in text):
        raise InvalidInput(
            [Problem("token_file", "must hold one token", repr(str(path)), place=origin)]
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        click.echo(f"warning: others may read the token in {path}; chmod 600 {path}", err=True)
    return text


@dataclass(frozen=True, slots=True)
class _Search:
    environ: Mapping[str, str]
    cwd: Path
    files: Files

    def found(self, server: str | None, store: str | None, context: str | None) -> Where:
        flags = {"server": server, "store": store, "context": context}
        variables = {
            "server": self.environ.get(SERVER_VARIABLE),
            "store": self.environ.get(STORE_VARIABLE),
            "context": self.environ.get(CONTEXT_VARIABLE),
        }
        names = {
            "server": SERVER_VARIABLE,
            "store": STORE_VARIABLE,
            "context": CONTEXT_VARIABLE,
        }
        for key in ("server", "store", "context"):
            if value := flags[key]:
                return self._at(key, value, "flag", f"--{key}", self.cwd / "x")
        for key in ("server", "store", "context"):
            if value := variables[key]:
                return self._at(key, value, "environment", f"${names[key]}", self.cwd / "x")
        files = self.files
        for level, place, path in (
            ("project", files.project, files.project_path),
            ("user", files.user, files.user_path),
        ):
            for key in ("server", "store", "context"):
                if path is not None and (value := getattr(place, key)):
                    return self._at(key, value, level, str(path), path)  # type: ignore[arg-type]  # a Level
        default = (self.cwd / STORE_DIRECTORY).absolute()
        return self._made(None, default, "default", "default")

    def _at(self, key: str, value: str, level: Level, origin: str, path: Path) -> Where:
        """Give the place that a level names; `path`: of the file that says so, to which paths are relative."""
        named = f" --{key} {value}" if level == "flag" else ""
        if key == "context":
            return self._context(value, level, origin, named)
        if key == "store":
            return self._made(None, resolved(value, path), level, origin, named=named)
        if address_problem(value):
            raise InvalidInput.one(
                origin, "must be an address", value=value, remedy="write http://HOST:PORT"
            )
        return self._made(value, self._store(), level, origin, named=named)

    def _context(self, name: str, level: Level, origin: str, named: str) -> Where:
        from simrun.model.faults import Nearest, listed

        known, path = self.files.user.contexts, self.files.user_path
        if (item := known.get(name)) is None:
            remedy = Nearest(known).remedy(name) or (
                f"known are {listed(known)}"
                if known
                else f"`simrun config add-context {name} --server URL` makes it"
            )
            raise NotFound(f"no context {name!r}, which {origin} names; {remedy}")
        store = resolved(item.store, path) if item.store else self._store()
        return self._made(
            item.server, store, level, f"{path}: contexts.{name}", named, context=(name, origin)
        )

    def _store(self) -> Path:
        """Give the store for what is asked of no server, such as where `run` runs."""
        value = self.environ.get(STORE_VARIABLE) or STORE_DIRECTORY
        return (self.cwd / value).absolute()

    def _made(
        self,
        server: str | None,
        store: Path,
        level: Level,
        origin: str,
        named: str = "",
        *,
        context: tuple[str, str] | None = None,
    ) -> Where:
        name = context[0] if context else None
        group, group_origin = self._group(name)
        file, token, token_origin, warnings = self._token(server, level, name)
        return Where(
            server=server,
            store=store,
            level=level,
            origin=origin,
            context=name,
            context_origin=context[1] if context else None,
            group=group,
            group_origin=group_origin,
            named=named,
            token_file=file,
            token=token,
            token_origin=token_origin,
            warnings=(*self.files.warnings, *warnings),
        )

    def _group(self, context: str | None) -> tuple[str | None, str | None]:
        if group := self.environ.get(GROUP_VARIABLE):
            return group, f"${GROUP_VARIABLE}"
        files = self.files
        if files.project.group:
            return files.project.group, str(files.project_path)
        if context and (group := files.user.contexts[context].group):
            return group, f"{files.user_path}: contexts.{context}"
        if files.user.group:
            return files.user.group, str(files.user_path)
        return None, None

    def _token(
        self, server: str | None, level: Level, context: str | None
    ) -> tuple[Path | None, str | None, str | None, tuple[str, ...]]:
        """Find the token for a server: file, token, where that was said, warnings."""
        own = self._token_file(server, level, context)
        if level == "flag" and context and own:
            return own[0], None, own[1], ()
        token = self.environ.get(TOKEN_VARIABLE, "").strip() or None
        if token and any(char.isspace() for char in token):
            raise InvalidInput(
                [Problem(TOKEN_VARIABLE, "must hold one token", place="environment")]
            )
        file = self.environ.get(TOKEN_FILE_VARIABLE)
        if token or file:
            if level != "project" or context or own:
                name = TOKEN_VARIABLE if token else TOKEN_FILE_VARIABLE
                path = None if token or not file else (self.cwd / file).absolute()
                return path, token, f"${name}", ()
            warning = (
                f"the token of the environment is not sent where only {self.files.project_path} says; "
                f"set ${SERVER_VARIABLE}, or make it a context of yours"
            )
            return None, None, None, (warning,)
        return (own[0], None, own[1], ()) if own else (None, None, None, ())

    def _token_file(
        self, server: str | None, level: Level, context: str | None
    ) -> tuple[Path, str] | None:
        """Find the file that the user has for a server: by the context, or by the address."""
        user, path = self.files.user, self.files.user_path
        if context and (file := user.contexts[context].token_file):
            return resolved(file, path), f"{path}: contexts.{context}"
        if level == "user" and context is None and user.token_file:
            return resolved(user.token_file, path), str(path)
        for name, item in user.contexts.items():
            if server and item.server and item.token_file and _same(item, server):
                return resolved(item.token_file, path), f"{path}: contexts.{name}"
        return None


def _same(item: Place, server: str) -> bool:
    return (item.server or "").rstrip("/") == server.rstrip("/")
