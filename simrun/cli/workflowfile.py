"""Reading a workflow file for a command: the text, parameters from the command line, and the files that it names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simrun.base import ids
from simrun.base.errors import InvalidInput, NotFound, Problem
from simrun.cli.where import Where
from simrun.model import yamlreader
from simrun.model.faults import Fault, Nearest
from simrun.model.load import LocalFile, WorkflowFile, load
from simrun.model.workflow import Submission
from simrun.worker import tables

TABLE_BYTES = 16 * 2**20
"""Larger tables of units are read once, at submission, not twice."""


def read_bytes(file: str) -> bytes:
    """Give what is in a file, or on stdin for `-`. Raises NotFound, InvalidInput."""
    if file == "-":
        return sys.stdin.buffer.read()
    path = Path(file)
    if path.is_dir():
        raise InvalidInput([Problem("", "is a directory", place=file, remedy="name a file")])
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"no file {file!r}") from error
    except OSError as error:
        raise InvalidInput([Problem("", f"can't be read: {error.strerror}", place=file)]) from error


def base_of(file: str) -> Path:
    """Give the directory that paths in a workflow file are relative to."""
    return Path.cwd() if file == "-" else Path(file).absolute().parent


def read_workflow(
    file: str, params: Sequence[str] = (), *, check_syntax: bool = True
) -> WorkflowFile:
    """Read a workflow file and make sure that the files it names are there. Raises NotFound, InvalidInput.

    `check_syntax`: plugins are to run under this very Python, so one that it can't read is a problem.
    """
    name = "stdin" if file == "-" else file
    loaded = load(read_bytes(file), file=name, params=parse_params(params))
    base = base_of(file)
    faults = [
        fault
        for item in loaded.local_files()
        if (fault := _file_fault(item, base, check_syntax=check_syntax))
    ]
    if faults:
        raise InvalidInput([loaded.problem(fault) for fault in dict.fromkeys(faults)])
    return loaded


def submission_of(
    loaded: WorkflowFile,
    *,
    group: str | None,
    name: str | None,
    run_id: str | None,
    place: Where | None = None,
) -> Submission:
    """Give the submission of a file, with what the command line says over the file's own `run:`, and that over what `place` has set.

    Raises InvalidInput that names the option; `run_id` is only checked.
    """
    problems = []
    if group is not None and (problem := ids.group_problem(group)):
        problems.append(Problem("--group", problem, repr(group)))
    if group is None and place and place.group and "group" not in loaded.request.model_fields_set:
        group = place.group
        if problem := ids.group_problem(group):
            problems.append(Problem("group", problem, repr(group), place=place.group_origin))
    if name is not None and (problem := ids.title_problem(name)):
        problems.append(Problem("--name", problem, repr(name)))
    if run_id is not None and (problem := ids.run_id_problem(run_id)):
        problems.append(Problem("--id", problem, repr(run_id)))
    if problems:
        raise InvalidInput(problems)
    given = {"group": group, "name": name}
    request = loaded.request.model_copy(
        update={key: value for key, value in given.items() if value is not None}
    )
    return loaded.submission.model_copy(update={"request": request})


def parse_params(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read `task.key=value`, the value as YAML. Raises InvalidInput for all that are wrong."""
    found: dict[str, dict[str, Any]] = {}
    problems = []
    for text in texts:
        name, equals, value = text.partition("=")
        task, dot, key = name.partition(".")
        if not (equals and dot and task and key):
            problems.append(Problem("--param", "must be TASK.KEY=VALUE", repr(text)))
            continue
        try:
            found.setdefault(task, {})[key] = yamlreader.parse_value(value)
        except ValueError as error:
            problems.append(Problem(f"--param {name}", str(error), repr(value)))
    if problems:
        raise InvalidInput(problems)
    return found


def _file_fault(item: LocalFile, base: Path, *, check_syntax: bool) -> Fault | None:
    path = base / item.path
    if not path.exists():
        return Fault(
            item.field, f"no such {item.kind} file: {item.path}", None, _elsewhere(item, base)
        )
    if item.kind in ("input", "data"):
        return None
    if not path.is_file():
        return Fault(item.field, f"{item.path} is no file")
    if item.kind == "table":
        return _table_fault(item, path)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        if not check_syntax:
            return None
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return Fault(item.field, f"{item.path}{line} is not Python that can be read: {text}")
    names = _defined(tree)
    if names is None or item.function in names:
        return None
    remedy = Nearest(names).remedy(item.function)
    return Fault(item.field, f"{item.path} has no function {item.function!r}", None, remedy)


def _table_fault(item: LocalFile, path: Path) -> Fault | None:
    """Read a table of units, as the submission will; a huge one is left to it."""
    if path.stat().st_size > TABLE_BYTES:
        return None
    try:
        tables.read_table(path)
    except ValueError as error:
        return Fault(item.field, str(error))
    return None


def _elsewhere(item: LocalFile, base: Path) -> str:
    """Say where the file was looked for, or which one beside it was meant."""
    directory = (base / item.path).parent
    siblings = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    near = Nearest(siblings).name(Path(item.path).name)
    return f"did you mean {near!r}?" if near else f"paths are relative to {base}"


def _defined(tree: ast.Module) -> set[str] | None:
    """Give the names that a module has at its top; None when only running it would tell."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                return None
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
