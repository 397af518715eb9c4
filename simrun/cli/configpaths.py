"""Where configuration is looked for. Most have none, and what reads it takes longer to import than a shell likes to wait for a completion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simrun.cli.configfile import Context, ProjectConfig, UserConfig

PROJECT_NAMES = (".simrun.yaml", "simrun.yaml")
USER_NAME = "simrun/config.yaml"


@dataclass(frozen=True, slots=True)
class Nothing:
    """What a file that is not there says."""

    server: str | None = None
    store: str | None = None
    group: str | None = None
    context: str | None = None
    token_file: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Files:
    """What the files say. project_path is None where there is none."""

    project: ProjectConfig | Nothing
    project_path: Path | None
    user: UserConfig | Nothing
    user_path: Path
    warnings: tuple[str, ...] = ()


def files_of(environ: Mapping[str, str], cwd: Path) -> Files:
    """Read the user's file and the project's. Raises InvalidInput for keys and values that are wrong, with file and line."""
    user_path, candidates = user_file(environ), project_files(cwd)
    if not candidates and not os.path.isfile(user_path):
        return Files(Nothing(), None, Nothing(), user_path)
    from simrun.cli.configfile import read_files

    return read_files(user_path, candidates)


def user_file(environ: Mapping[str, str]) -> Path:
    """Give where the user's file is, or would be."""
    home = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path("~/.config").expanduser()) / USER_NAME
    except RuntimeError:  # a user without a home, as in a container
        return Path("/.config") / USER_NAME


def address_problem(value: str) -> str | None:
    """Say why a text can't be the address of a server, or None when it can."""
    from urllib.parse import urlsplit

    try:
        url = urlsplit(value)
        known = url.scheme in ("http", "https") and url.hostname and url.port != 0
        good = known and not url.query and not url.fragment
    except ValueError:  # of brackets and ports
        good = False
    if not good or any(char.isspace() for char in value):
        return "must be an address: http://HOST:PORT"
    return None


def project_files(cwd: Path) -> list[Path]:
    """Give the files that may be a project's, the nearest first: from the current directory up."""
    paths = (directory / name for directory in (cwd, *cwd.parents) for name in PROJECT_NAMES)
    # Not Path.is_file, which raises for a directory that must not be looked into
    return [path for path in paths if os.path.isfile(path)]


def resolved(value: str, path: Path) -> Path:
    """Give a path that stands in a file; `~` is the home directory."""
    try:
        return (path.parent / Path(value).expanduser()).absolute()
    except RuntimeError:  # a user without a home
        return (path.parent / value).absolute()
