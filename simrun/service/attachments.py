"""Local files that travel with a submission: plugin code, tables of units, input files.

They are copied into the run's directory before its record exists, so that the run needs nothing from outside from then on: it can be
resumed, retried and read years later without the directory it was submitted from.
"""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simrun.base.errors import InvalidInput, Problem
from simrun.model.tasktype import TaskType, parse_plugin
from simrun.model.workflow import Submission
from simrun.store.files import remove_tree
from simrun.store.layout import RunDir
from simrun.worker import files, trees
from simrun.worker.endings import StoreError

EXECUTABLE = "application/x-executable"
"""Content type under which a file travels that may be executed; nothing else of its mode counts."""
_EXECUTE = 0o111


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or directory, and where it goes below the run's directory. `ours`: nobody else needs it, so it may be moved there."""

    source: Path
    target: str
    ours: bool = False


@dataclass(frozen=True, slots=True)
class _Reference:
    """Where a submission names a local file: the field, the name as written, and where it goes in the run."""

    field: str
    name: str
    target: str


def attachments_of(submission: Submission, base: Path) -> list[Attachment]:
    """Find what a submission refers to, relative to `base`, the directory of its workflow file.

    Modules beside a plugin file that it imports come along. Raises InvalidInput with everything that is missing.
    """
    found: dict[str, Attachment] = {}
    problems: list[Problem] = []
    for item in _references(submission):
        source = base / item.name
        if not _is_beneath(item.target):
            remedy = "put it beside the workflow file"
            problems.append(
                Problem(
                    item.field, "is outside of the workflow's directory", repr(item.name), remedy
                )
            )
        elif not source.exists():
            remedy = f"paths are relative to the workflow file, in {base}"
            problems.append(Problem(item.field, "no such file", repr(item.name), remedy))
        else:
            found.setdefault(item.target, Attachment(source, item.target))
            if source.suffix == ".py":
                for sibling in _siblings(source):
                    target = f"code/{sibling.relative_to(base)}"
                    found.setdefault(target, Attachment(sibling, target))
    if problems:
        raise InvalidInput(problems)
    return list(found.values())


def uploaded_attachments(submission: Submission, directory: Path) -> list[Attachment]:
    """Find the same among files that came with a request, stored in `directory` under their targets.

    Only what was uploaded counts: the paths in the submission are the client's, and are never opened here. Raises InvalidInput.
    """
    problems = [
        Problem(
            item.field, "was not uploaded", repr(item.name), f"send it as the file {item.target}"
        )
        for item in _references(submission)
        if not _is_beneath(item.target) or not (directory / item.target).exists()
    ]
    if problems:
        raise InvalidInput(problems)
    wanted = {item.target for item in _references(submission)}
    code = {
        str(path.relative_to(directory))
        for path in (directory / "code").rglob("*")
        if path.is_file()
    }
    return [Attachment(directory / target, target, ours=True) for target in sorted(wanted | code)]


def _references(submission: Submission) -> Iterator[_Reference]:
    for name, task_type in submission.types.items():
        for field, path in _code_files(name, task_type):
            yield _Reference(field, path, f"code/{path}")
        if task_type.split and (table := task_type.split.units.table):
            yield _Reference(f"types.{name}.split.units.table", table, f"code/{table}")
    for task_id, task in submission.workflow.tasks.items():
        for port, source in task.sources.items():
            if source.kind == "file":
                field = f"tasks.{task_id}.inputs.{port}"
                yield _Reference(field, source.path, f"tasks/{task_id}/in/{port}")


def _is_beneath(target: str) -> bool:
    return ".." not in Path(target).parts and not Path(target).is_absolute()


def attach(run: RunDir, attachments: list[Attachment]) -> None:
    """Move or copy the files into a run that does not exist yet, durably: when its record says that it does, they are there.

    What an interrupted creation of the same id left is taken away first: it may be half a file, or another submission's.
    Raises InvalidInput for what can't be copied.
    """
    remove_tree(run.code)
    for name in files.listing(run.tasks):
        remove_tree(run.tasks / name)
    there: set[Path] = set()
    for item in sorted(attachments, key=lambda item: item.target.count("/")):
        target = run.root / item.target
        if not there.isdisjoint(target.parents):
            continue  # came with its directory
        there.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (item.ours and _moved(item.source, target)):
            _copy(item, target)
    for top in (run.code, run.tasks):
        if top.exists():
            trees.sync(top)


def _copy(item: Attachment, target: Path) -> None:
    try:
        trees.copy(item.source, target)
    except StoreError as error:
        raise InvalidInput.one(item.target, str(error)) from error
    if target.is_file():
        target.chmod(0o644 | (_EXECUTE if is_executable(item.source) else 0))


def _moved(source: Path, target: Path) -> bool:
    """Rename a file or directory; False where that can't be: the two are on different file systems."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def is_executable(path: Path) -> bool:
    """Whether a file may be executed by anybody."""
    return bool(path.stat().st_mode & _EXECUTE)


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
