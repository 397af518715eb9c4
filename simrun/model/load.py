"""A workflow file as models: every problem at once, each with its place.

    name: …
    types: {NAME: a task type}
    tasks: {NAME: a task, or a task with the fields of its type}
    run: {group, labels, priority, …: defaults of the request}

A task that gives its type's fields itself makes a type of the task's name. One that has a `type` and `resources` or
`split.workers` beside it makes a copy of that type, named TYPE@TASK: what it uses is then observed and planned apart from
the type it came from. Types are validated once each and tasks in one go, so that ten thousand tasks take a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from simrun.base import ids
from simrun.base.errors import InvalidInput, Problem
from simrun.model import typecheck, validate, yamlreader
from simrun.model.faults import Fault, Nearest, Path, listed
from simrun.model.sections import Sections
from simrun.model.tasktype import TaskType
from simrun.model.wording import faults_of, field_names, shown
from simrun.model.workflow import RunRequest, Submission, Task, Workflow
from simrun.model.yamltree import Tree

M = TypeVar("M", bound=BaseModel)

_TOP = ("name", "types", "tasks", "run")
_TYPES = TypeAdapter(dict[str, TaskType])
_TASKS = TypeAdapter(dict[str, Task])


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine that the workflow names; `path` is relative to the workflow file."""

    kind: str
    """plugin, table, input, or data: what becomes a snapshot."""
    path: str
    field: Path
    function: str = ""
    """Of a plugin: the function that must be in it."""


@dataclass(frozen=True)
class WorkflowFile:
    """A workflow file without a fault: what a submission is made of, and where everything stands."""

    workflow: Workflow
    types: dict[str, TaskType]
    request: RunRequest
    tree: Tree
    origins: Mapping[str, Path]
    """By type: the path at which it was written."""

    @cached_property
    def submission(self) -> Submission:
        """The submission as the file has it."""
        return Submission(workflow=self.workflow, types=self.types, request=self.request)

    def local_files(self) -> Iterator[LocalFile]:
        """Yield the files that have to be there when the workflow is submitted."""
        for name, task_type in self.types.items():
            for path, source in typecheck.local_code(task_type):
                kind = "table" if path[-1] == "table" else "plugin"
                where = (*self.origins[name], *path)
                node = self.tree.root.at(where)
                function = str(node.value).rpartition(":")[2] if node and kind == "plugin" else ""
                if (
                    node is not None
                ):  # a copy of a type names the files of the type it was made from
                    yield LocalFile(kind, source, where, function)
        for task_id, task in self.workflow.tasks.items():
            for port, source_of_input in task.sources.items():
                if source_of_input.kind in ("file", "data"):
                    where = ("tasks", task_id, "inputs", port)
                    kind = "input" if source_of_input.kind == "file" else "data"
                    yield LocalFile(kind, source_of_input.path, where)

    def problem(self, fault: Fault) -> Problem:
        """Give a fault that was found later as a problem that names its place in the file."""
        return self.tree.problem(fault)


def load(
    text: str | bytes, *, file: str, params: Mapping[str, Mapping[str, Any]] | None = None
) -> WorkflowFile:
    """Read a workflow file (YAML or JSON).

    `file` is what places call it, `params` are parameters by task that replace those of the file. Raises InvalidInput with all
    problems of the file, in the order of their places.
    """
    tree = yamlreader.parse(text, file)
    loader = _Loader(tree)
    result = loader.load(params or {})
    problems = [*tree.problems, *(tree.problem(fault) for fault in loader.faults)]
    if problems:
        raise InvalidInput(sorted(dict.fromkeys(problems), key=_position))
    if result is None:
        raise AssertionError("no result and no fault")
    return result


def _position(problem: Problem) -> tuple[int, int]:
    _, line, column = (problem.place or "::").rsplit(":", 2)
    return int(line or 0), int(column or 0)


class _Loader:
    def __init__(self, tree: Tree) -> None:
        self.faults: list[Fault] = []
        self._tree = tree

    def load(self, params: Mapping[str, Mapping[str, Any]]) -> WorkflowFile | None:
        """Read everything; None when `faults` says why not."""
        top = self._tree.root.value
        if not isinstance(top, dict):
            remedy = "write name:, types: and tasks:"
            self.faults.append(Fault((), "a workflow is a mapping", shown(top), remedy))
            return None
        self._unknown_at_top(top)
        if "tasks" not in top:
            self.faults.append(Fault(("tasks",), "is missing", None, "a workflow has tasks"))
        raw = Sections(self._mapping(top, "types"), self._mapping(top, "tasks"))
        self.faults += raw.faults
        self._set_params(raw, params)
        self._doubts(raw)
        types = self._validated(_TYPES, raw.types, raw.origins.__getitem__, raw)
        tasks = self._validated(_TASKS, raw.tasks, lambda task: ("tasks", task), raw)
        raw.broken |= {f"types.{key}" for key in raw.types if key not in types}
        raw.broken |= {f"tasks.{key}" for key in raw.tasks if key not in tasks}
        name, request = self._name(top), self._request(top.get("run"))
        self.faults += validate.graph_faults(
            tasks,
            types,
            origin=raw.origins.__getitem__,
            broken=raw.broken,
            copies=raw.copies,
        )
        self._unknown_params(tasks, types, params)
        if self.faults or self._tree.problems or request is None:
            return None
        workflow = Workflow(name=name, tasks=tasks)
        return WorkflowFile(workflow, types, request, self._tree, raw.origins)

    def _mapping(self, top: dict[str, Any], key: str) -> dict[str, Any]:
        value = top.get(key, {})
        if isinstance(value, dict) and (value or key != "tasks" or key not in top):
            return value
        if key == "tasks" and not value:
            self.faults.append(Fault((key,), "must not be empty", None, "a workflow has tasks"))
        elif value is not None:
            self.faults.append(Fault((key,), "must be a mapping of names", shown(value)))
        return {}

    def _unknown_at_top(self, top: dict[str, Any]) -> None:
        near = Nearest(_TOP)
        for key in top:
            if key in _TOP:
                continue
            remedy = near.remedy(key) or f"known are {listed(_TOP)}"
            if key in field_names(RunRequest):
                remedy = "it belongs under `run`"
            self.faults.append(Fault((key,), "is not known here", None, remedy, at_key=True))

    def _name(self, top: dict[str, Any]) -> str:
        name = top.get("name", _stem(self._tree.file))
        if not isinstance(name, str) or not name:
            self.faults.append(Fault(("name",), "must be text", shown(name)))
            return "workflow"
        if problem := ids.title_problem(name):
            self.faults.append(Fault(("name",), problem, shown(name)))
            return ""
        return name

    def _set_params(self, raw: Sections, params: Mapping[str, Mapping[str, Any]]) -> None:
        """Put parameters from outside over those of the file."""
        for task_id, values in params.items():
            task = raw.tasks.get(task_id)
            if task is None:
                if f"tasks.{task_id}" not in raw.broken:
                    remedy = Nearest(raw.tasks).remedy(task_id)
                    text = f"no such task: {task_id!r}, whose parameters were given"
                    self.faults.append(Fault(("tasks",), text, None, remedy, at_key=True))
            elif isinstance(before := task.get("params", {}), dict):
                task["params"] = {**before, **values}

    def _unknown_params(
        self,
        tasks: Mapping[str, Task],
        types: Mapping[str, TaskType],
        params: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Refuse parameters from outside that nothing would read."""
        for task_id, values in params.items():
            task = tasks.get(task_id)
            if task is None or task.type not in types:
                continue
            in_file = task.model_copy(
                update={
                    "params": {key: task.params[key] for key in task.params.keys() - values.keys()}
                }
            )
            written = self._tree.root.at(("tasks", task_id, "params"))
            for name in values:
                if written is not None and written.child(name) is not None:
                    continue
                remedy = validate.unknown_param(in_file, types[task.type], name)
                if remedy is not None:
                    path: Path = ("tasks", task_id, "params", name)
                    # In a file it could be declared as well; from outside it is a slip and nothing else
                    self.faults = [fault for fault in self.faults if fault.path != path]
                    self.faults.append(Fault(path, "is no parameter of the task", None, remedy))

    def _doubts(self, raw: Sections) -> None:
        """Refuse values that may not be what was meant, where anything goes: nobody else would notice."""
        if not self._tree.doubtful:
            return
        spots: list[Path] = [("tasks", task_id, "params") for task_id in raw.tasks]
        for base in raw.origins.values():
            spots.append((*base, "params"))
            spots += [(*base, "split", "units", kind) for kind in ("grid", "zip", "list")]
        for spot in dict.fromkeys(spots):
            node = self._tree.root.at(spot)
            for path, inner in node.walk() if node else ():
                if inner.doubt:
                    self.faults.append(Fault((*spot, *path), inner.doubt))

    def _validated(
        self,
        adapter: TypeAdapter[dict[str, M]],
        data: dict[str, dict[str, Any]],
        origin: Callable[[str], Path],
        raw: Sections,
    ) -> dict[str, M]:
        """Validate many models in one go; only when that fails, again without those that were wrong."""
        try:
            return adapter.validate_python(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        wrong = {str(item["loc"][0]) for item in errors}
        model = dict[str, TaskType] if data is raw.types else dict[str, Task]

        def written(path: Path) -> str | None:
            return self._tree.text_of((*origin(str(path[0])), *path[1:]))

        for fault in faults_of(errors, model=model, data=data, text_of=written):
            name, rest = str(fault.path[0]), fault.path[1:]
            moved = replace(fault, path=(*origin(name), *rest))
            told = data is raw.types and name in raw.copies and raw.base_of(name) in wrong
            if not told or self._tree.root.at(moved.path) is not None:
                self.faults.append(moved)
        return adapter.validate_python({key: data[key] for key in data if key not in wrong})

    def _request(self, value: Any) -> RunRequest | None:
        try:
            return RunRequest.model_validate({} if value is None else value)
        except ValidationError as error:
            found = faults_of(
                error.errors(include_url=False),
                model=RunRequest,
                data=value,
                text_of=lambda path: self._tree.text_of(("run", *path)),
            )
            self.faults += [replace(fault, path=("run", *fault.path)) for fault in found]
            return None


def _stem(file: str) -> str:
    name = file.replace("\\", "/").rpartition("/")[2]
    stem = name.rpartition(".")[0] or name or "workflow"
    return stem.encode(errors="replace").decode()[: ids.TITLE_MAX]


def load_settings(model: type[M], text: str | bytes, *, file: str) -> M:
    """Read a file that is one model, such as a ClusterConfig. Raises InvalidInput with all problems and their places."""
    tree = yamlreader.parse(text, file)
    problems = list(tree.problems)
    try:
        settings = model.model_validate({} if tree.root.value is None else tree.root.value)
    except ValidationError as error:
        found = faults_of(
            error.errors(include_url=False),
            model=model,
            data=tree.root.value,
            text_of=tree.text_of,
        )
        problems += [tree.problem(fault) for fault in found]
        settings = None
    if problems or settings is None:
        raise InvalidInput(sorted(dict.fromkeys(problems), key=_position))
    return settings
