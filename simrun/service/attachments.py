"""Local files that travel with a submission: plugin code, tables of units, input files.

They are copied into the run's directory before its record exists, so that the run needs nothing from outside from then on: it can be
resumed, retried and read years later without the directory it was submitted from.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simrun.base.errors import InvalidInput, Problem
from simrun.model.tasktype import TaskType, parse_plugin
from simrun.model.workflow import Submission
from simrun.store.layout import RunDir


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or directory, and where it goes below the run's directory."""

    source: Path
    target: str


def attachments_of(submission: Submission, base: Path) -> list[Attachment]:
    """Find what a submission refers to, relative to `base`, the directory of its workflow file.

    Raises InvalidInput with everything that is missing.
    """
    found: dict[str, Attachment] = {}
    problems: list[Problem] = []

    def add(field: str, name: str, target: str) -> None:
        source = base / name
        if source.exists():
            found.setdefault(target, Attachment(source, target))
        else:
            remedy = f"paths are relative to the workflow file, in {base}"
            problems.append(Problem(field, "no such file", repr(name), remedy))

    for name, task_type in submission.types.items():
        for field, path in _code_files(name, task_type):
            add(field, path, f"code/{path}")
            for sibling in _siblings(base / path):
                relative = sibling.relative_to(base)
                found.setdefault(f"code/{relative}", Attachment(sibling, f"code/{relative}"))
        if task_type.split and task_type.split.units.table:
            table = task_type.split.units.table
            add(f"types.{name}.split.units.table", table, f"code/{table}")
    for task_id, task in submission.workflow.tasks.items():
        for port, source in task.sources.items():
            if source.kind == "file":
                add(f"tasks.{task_id}.inputs.{port}", source.path, f"tasks/{task_id}/in/{port}")
    problems += [
        Problem(
            "",
            "is outside of the workflow's directory",
            item.target,
            "put it beside the workflow file",
        )
        for item in found.values()
        if ".." in Path(item.target).parts or Path(item.target).is_absolute()
    ]
    if problems:
        raise InvalidInput(problems)
    return list(found.values())


def attach(run: RunDir, attachments: list[Attachment]) -> None:
    """Copy the files into the run; a repeated or interrupted copy is made whole."""
    for item in attachments:
        target = run.root / item.target
        target.parent.mkdir(parents=True, exist_ok=True)
        if item.source.is_dir():
            shutil.copytree(item.source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(item.source, target)


def _code_files(name: str, task_type: TaskType) -> Iterator[tuple[str, str]]:
    """Yield field and path of each plugin that is a file."""
    units = task_type.split.units.plugin if task_type.split else None
    merge = task_type.merge.plugin if task_type.merge else None
    for field, plugin in (
        ("plugin", task_type.plugin),
        ("split.units.plugin", units),
        ("merge.plugin", merge),
    ):
        if plugin is not None:
            source, _, is_file = parse_plugin(plugin)
            if is_file:
                yield f"types.{name}.{field}", source


def _siblings(path: Path, known: set[Path] | None = None) -> Iterator[Path]:
    """Yield the modules beside a plugin file that it imports, and those that they import."""
    known = known if known is not None else {path}
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # missing is reported by the caller; a fault in the code by whoever runs it
    for name in sorted(_imported(tree)):
        for candidate in (path.parent / f"{name}.py", path.parent / name):
            is_package = (candidate / "__init__.py").is_file()
            if candidate not in known and (candidate.is_file() or is_package):
                known.add(candidate)
                yield candidate
                if candidate.is_file():
                    yield from _siblings(candidate, known)


def _imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names
