"""Files that say which server or store is meant where the command line does not: the user's own, and one of the project.

A project's file comes with whatever was checked out, so it is held to what can do no harm: it says where, never as whom. Tokens are for the
user's file, and there they stand in files of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TypeVar

from pydantic import Field, field_validator, model_validator

from simrun.base.errors import InvalidInput, Problem
from simrun.cli.configpaths import PROJECT_NAMES, Files, address_problem
from simrun.model import yamlreader
from simrun.model.base import Model
from simrun.model.load import load_settings

M = TypeVar("M", bound=Model)

WORKFLOW_KEY = "tasks"
"""What makes a simrun.yaml a workflow, which is no configuration."""


class Place(Model):
    """Which server is meant, by its address or by the store that it serves, and the group of what is submitted."""

    server: str | None = None
    """http://HOST:PORT or https://…"""
    store: str | None = None
    """A directory; relative to that of the file, `~` is the home directory."""
    group: str | None = None

    @field_validator("server")
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None and (problem := address_problem(value)):
            raise ValueError(problem)
        return value


class Context(Place):
    """A place with a name, and the token for it."""

    token_file: str | None = None
    """A file that holds a token and nothing else, readable by its owner alone."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.server is None) == (self.store is None):
            raise ValueError("a context has either server or store")
        return self


class ProjectConfig(Place):
    """.simrun.yaml or simrun.yaml of a project."""

    context: str | None = None
    """One of the user's contexts."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(value is not None for value in (self.server, self.store, self.context)) > 1:
            raise ValueError("server, store and context each say where: give one of them")
        return self


class UserConfig(ProjectConfig):
    """$XDG_CONFIG_HOME/simrun/config.yaml."""

    token_file: str | None = None
    contexts: dict[str, Context] = Field(default={})


def read_files(user_path: Path, candidates: Sequence[Path]) -> Files:
    """Read the user's file and the nearest of a project's. Raises InvalidInput for what is wrong in them, with file and line."""
    user = _loaded(UserConfig, user_path) if os.path.isfile(user_path) else UserConfig()
    project, warnings = ProjectConfig(), []
    project_path = next((path for path in candidates if not _is_workflow(path)), None)
    if project_path is not None:
        owner = project_path.stat().st_uid
        if os.geteuid() in (0, owner) or owner == 0:
            project = _loaded(ProjectConfig, project_path)
        else:
            warnings.append(f"{project_path} is not read: it is a file of another user ({owner})")
            project_path = None
    return Files(project, project_path, user, user_path, tuple(warnings))


def _is_workflow(path: Path) -> bool:
    if path.name == PROJECT_NAMES[0]:
        return False
    try:
        value = yamlreader.parse(path.read_bytes(), str(path)).root.value
    except (InvalidInput, OSError):
        return False  # so that what is wrong with it is told
    return isinstance(value, dict) and WORKFLOW_KEY in value


def _loaded(kind: type[M], path: Path) -> M:
    return parsed(kind, _text(path), path)


def parsed(kind: type[M], text: str, path: Path) -> M:
    """Give what a file says. Raises InvalidInput that names file, line and key, and the key that was probably meant."""
    lines = (line.strip() for line in text.splitlines())
    if all(not line or line.startswith("#") for line in lines):
        return kind()
    return load_settings(kind, text, file=str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        raise InvalidInput([Problem("", f"can't be read: {reason}", place=str(path))]) from error
