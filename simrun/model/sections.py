"""Types and tasks of a workflow file taken apart: what is a task's own, what is its type's, and which types that makes.

Plain data in, plain data out; whether the values are right is found later, in one go.
"""

from __future__ import annotations

from typing import Any

from simrun.model import typecheck, validate
from simrun.model.faults import Fault, Path, listed
from simrun.model.tasktype import TaskType
from simrun.model.wording import field_names, shown, unknown_key
from simrun.model.workflow import Task

_TASK_KEYS = frozenset(field_names(Task))
_TYPE_KEYS = frozenset(field_names(TaskType)) - _TASK_KEYS
_OVERRIDES = ("resources", "split")


class Sections:
    """The raw types and tasks, by name.

    `origins` gives the path at which a type was written. `copies` are types made of others for one task. `broken` are those that
    are known to be wrong, as `types.NAME` and `tasks.NAME`.
    """

    def __init__(self, types: dict[str, Any], tasks: dict[str, Any]) -> None:
        self.types: dict[str, dict[str, Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.origins: dict[str, Path] = {}
        self.copies: set[str] = set()
        self.broken: set[str] = set()
        self.faults: list[Fault] = []
        self._take_types(types)
        self._take_tasks(tasks)

    def base_of(self, copy: str) -> str:
        """Give the type that a copy was made of."""
        return copy.rpartition("@")[0]

    def _take_types(self, types: dict[str, Any]) -> None:
        for name, value in types.items():
            path: Path = ("types", name)
            if problem := typecheck.type_name_problem(name):
                self.faults.append(Fault(path, problem, at_key=True))
            if not isinstance(value, dict):
                text = "must be a mapping with a command or a plugin"
                self.faults.append(Fault(path, text, shown(value)))
                self.broken.add(f"types.{name}")
                continue
            if "name" in value:
                text, remedy = "is not known here", "the name is the key above it"
                self.faults.append(Fault((*path, "name"), text, None, remedy, at_key=True))
            self.types[name] = {**value, "name": name}
            self.origins[name] = path

    def _take_tasks(self, tasks: dict[str, Any]) -> None:
        for fault in validate.task_id_faults(tasks):
            self.faults.append(fault)
            self.broken.add(f"tasks.{fault.path[1]}")
        for task_id, value in tasks.items():
            if isinstance(value, dict):
                self._take_task(task_id, value)
            else:
                text = "must be a mapping with a type, or with a command or a plugin"
                self.faults.append(Fault(("tasks", task_id), text, shown(value)))
                self.broken.add(f"tasks.{task_id}")

    def _take_task(self, task_id: str, value: dict[str, Any]) -> None:
        """Part the fields of a task from those of its type."""
        own = {key: item for key, item in value.items() if key in _TASK_KEYS}
        of_type = {key: item for key, item in value.items() if key in _TYPE_KEYS}
        path: Path = ("tasks", task_id)
        for key in value:
            if key not in _TASK_KEYS and key not in _TYPE_KEYS:
                known = sorted(_TYPE_KEYS)
                self.faults.append(unknown_key((*path, key), Task, also=known))
        if "type" in own:
            self._copy_type(task_id, own, of_type)
        elif of_type:
            if not self._inline_type(task_id, own, of_type):
                self.broken.add(f"tasks.{task_id}")
                return
        else:
            self.faults.append(Fault((*path, "type"), "is missing", None, self._type_remedy()))
            self.broken.add(f"tasks.{task_id}")
            return
        self.tasks[task_id] = own

    def _type_remedy(self) -> str:
        if self.types:
            return f"known are {listed(self.types)}; or give a command or a plugin"
        return "or give a command or a plugin"

    def _inline_type(self, task_id: str, own: dict[str, Any], of_type: dict[str, Any]) -> bool:
        """Make a type of a task's own fields, with the inputs that the task connects; False when its name is taken."""
        if task_id in self.types:
            text = (
                "gives fields of a type of its own, which would be called as the type in `types` is"
            )
            remedy = f"add `type: {task_id}`, or call one of them otherwise"
            self.faults.append(Fault(("tasks", task_id), text, None, remedy, at_key=True))
            return False
        inputs = own.get("inputs")
        ports: dict[str, Any] = {port: {} for port in inputs} if isinstance(inputs, dict) else {}
        self.types[task_id] = {**of_type, "name": task_id, "inputs": ports}
        self.origins[task_id] = ("tasks", task_id)
        own["type"] = task_id
        return True

    def _copy_type(self, task_id: str, own: dict[str, Any], of_type: dict[str, Any]) -> None:
        """Make a copy of a task's type with the resources and workers that the task asks for."""
        path: Path = ("tasks", task_id)
        for key in of_type:
            if key not in _OVERRIDES:
                text, remedy = "can't stand beside `type`", "change the type, or leave `type` out"
                self.faults.append(Fault((*path, key), text, None, remedy, at_key=True))
        changed = {key: of_type[key] for key in _OVERRIDES if key in of_type}
        base = self.types.get(own["type"]) if isinstance(own["type"], str) else None
        if not changed or base is None:
            return
        copy = dict(base)
        for key, value in changed.items():
            if not isinstance(value, dict):
                self.faults.append(Fault((*path, key), "must be a mapping", shown(value)))
                return
            if key == "split" and not self._only_workers(path, value, base):
                return
            before = base.get(key)
            copy[key] = {**before, **value} if isinstance(before, dict) else value
        name = f"{own['type']}@{task_id}"
        self.types[name] = {**copy, "name": name}
        self.origins[name] = path
        self.copies.add(name)
        own["type"] = name

    def _only_workers(self, path: Path, split: dict[str, Any], base: dict[str, Any]) -> bool:
        others = [key for key in split if key != "workers"]
        for key in others:
            text, remedy = "can't be changed beside `type`", "only workers can"
            self.faults.append(Fault((*path, "split", key), text, None, remedy, at_key=True))
        if not isinstance(base.get("split"), dict):
            text = f"the type {base['name']!r} is not split"
            self.faults.append(Fault((*path, "split"), text, at_key=True))
            return False
        return not others
