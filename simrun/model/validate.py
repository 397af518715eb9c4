"""Whether tasks and types fit together: what no single model can know.

Everything that is wrong is found in one pass, and each fault names the path of what is wrong. Tasks whose type is unknown are
left out of the checks that need it, so that one slip does not appear as ten. Nothing recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from simrun.base import ids
from simrun.base.errors import InvalidInput, Problem
from simrun.model.cycles import cycles
from simrun.model.faults import Fault, Nearest, Path, dotted, is_probably, listed
from simrun.model.tasktype import TaskType
from simrun.model.typecheck import (
    commands,
    is_number,
    type_faults,
    type_name_problem,
    unit_params,
)
from simrun.model.wording import shown
from simrun.model.workflow import Source, Task, Workflow
from simrun.worker import placeholders


def check(workflow: Workflow, types: Mapping[str, TaskType]) -> None:
    """Raise InvalidInput with every fault of a submission that comes without a file, from the API or from code."""
    faults = [
        Fault(("types", name), problem, shown(name), at_key=True)
        for name in types
        # What a task changes of a type is a type of its own, NAME@TASK
        if (problem := type_name_problem(name.partition("@")[0]))
        or ("@" in name and (problem := ids.task_id_problem(name.partition("@")[2])))
    ]
    faults += graph_faults(workflow.tasks, types)
    if faults:
        raise InvalidInput(
            [
                Problem(dotted(fault.path), fault.message, fault.value, fault.remedy)
                for fault in faults
            ]
        )


def graph_faults(
    tasks: Mapping[str, Task],
    types: Mapping[str, TaskType],
    *,
    origin: Callable[[str], Path] = lambda name: ("types", name),
    broken: Collection[str] = (),
    copies: Collection[str] = (),
) -> list[Fault]:
    """Give what is wrong between tasks and types.

    `origin` gives the path under which a type was written (a task may hold its type's fields). `broken` are names of tasks and
    types (as `tasks.NAME`, `types.NAME`) that are known to be wrong already: nobody is told that they don't exist. `copies` are
    types made from others, whose faults would be those of the others again.
    """
    return _Checker(tasks, types, origin, broken).faults(copies)


@dataclass(frozen=True, slots=True)
class _Needs:
    """What the commands and settings of a type ask for, found once however many tasks have the type."""

    params: frozenset[str]
    """Parameters that its placeholders name and that neither the type nor its units give."""
    inputs: frozenset[str]
    """Input ports that its placeholders name."""
    required: frozenset[str]
    """Input ports that every task of the type must connect."""
    known_params: frozenset[str]
    """Parameters that the type knows of, from wherever."""
    size_hint: str | None
    """Its size hint, when a task has to give it."""


class _Checker:
    def __init__(
        self,
        tasks: Mapping[str, Task],
        types: Mapping[str, TaskType],
        origin: Callable[[str], Path],
        broken: Collection[str],
    ) -> None:
        self._tasks, self._types, self._origin, self._broken = tasks, types, origin, broken
        self._known_types = [*types, *_names(broken, "types.")]
        self._near_task = Nearest([*tasks, *_names(broken, "tasks.")])
        self._near_type = Nearest(self._known_types)

    def faults(self, copies: Collection[str]) -> list[Fault]:
        found: list[Fault] = []
        needs: dict[str, _Needs] = {}
        for name, task_type in self._types.items():
            if name not in copies:
                found += type_faults(task_type, self._origin(name))
            needs[name] = _needs_of(task_type)
        graph: dict[str, list[str]] = {}
        for task_id, task in self._tasks.items():
            sources = task.sources
            awaited = [source.task for source in sources.values() if source.kind == "task"]
            graph[task_id] = [*awaited, *task.after]
            found += self._upstream(task_id, task, sources)
            if task.type in self._types:
                found += self._own(task_id, task, self._types[task.type], needs[task.type])
            elif f"types.{task.type}" not in self._broken:
                remedy = self._near_type.remedy(task.type) or (
                    f"known are {listed(self._known_types)}"
                    if self._known_types
                    else "the file has no types"
                )
                path: Path = ("tasks", task_id, "type")
                found.append(Fault(path, "no such type", repr(task.type), remedy))
        for cycle in cycles(graph):
            way = " -> ".join([*cycle, cycle[0]])
            found.append(Fault(("tasks", cycle[0]), f"waits for itself: {way}", at_key=True))
        return found

    def _upstream(self, task_id: str, task: Task, sources: Mapping[str, Source]) -> Iterator[Fault]:
        """Check the tasks that a task reads from or waits for, and the ports that it reads."""
        for port, source in sources.items():
            if source.kind != "task":
                continue
            path: Path = ("tasks", task_id, "inputs", port)
            if source.task not in self._tasks:
                file = f"write ./{source.task}.{source.port} for a file"
                yield from self._no_task(path, source.task, file)
                continue
            upstream = self._types.get(self._tasks[source.task].type)
            if upstream is not None and source.port not in upstream.outputs:
                remedy = Nearest(upstream.outputs).remedy(source.port)
                if remedy is None:
                    remedy = (
                        f"its outputs are {listed(upstream.outputs)}"
                        if upstream.outputs
                        else "its type declares no outputs: {port: path below the output directory}"
                    )
                text = f"task {source.task!r} has no output {source.port!r}"
                yield Fault(path, text, repr(f"{source.task}.{source.port}"), remedy)
        for index, name in enumerate(task.after):
            if name not in self._tasks:
                yield from self._no_task(("tasks", task_id, "after", index), name, None)

    def _no_task(self, path: Path, name: str, otherwise: str | None) -> Iterator[Fault]:
        if f"tasks.{name}" not in self._broken:
            remedy = self._near_task.remedy(name) or otherwise
            yield Fault(path, f"no such task: {name!r}", None, remedy)

    def _own(self, task_id: str, task: Task, task_type: TaskType, needs: _Needs) -> Iterator[Fault]:
        """Check the inputs and parameters of a task against its type."""
        base: Path = ("tasks", task_id)
        for port in task.inputs:
            if port not in task_type.inputs:
                remedy = Nearest(task_type.inputs).remedy(port) or (
                    f"its inputs are {listed(task_type.inputs)}"
                    if task_type.inputs
                    else "the type declares no inputs"
                )
                text = f"is no input of the type {task.type!r}"
                yield Fault((*base, "inputs", port), text, None, remedy, at_key=True)
        for port in sorted(needs.required - task.inputs.keys()):
            text, remedy = "is missing", f"the type {task.type!r} needs it"
            yield Fault((*base, "inputs", port), text, None, remedy)
        for port in sorted(
            (needs.inputs - needs.required - task.inputs.keys()) & task_type.inputs.keys()
        ):
            text = f"the command uses {{inputs.{port}}}, and nothing is connected to it here"
            yield Fault((*base, "inputs", port), text)
        for name in sorted(needs.params - task.params.keys()):
            remedy = f"the command of the type {task.type!r} uses {{params.{name}}}"
            yield Fault((*base, "params", name), "is missing", None, remedy)
        if needs.size_hint and needs.size_hint not in task.params:
            remedy = f"it is the size_hint of the type {task.type!r}"
            yield Fault((*base, "params", needs.size_hint), "is missing", None, remedy)
        yield from _params(base, task, task_type, needs)


def _params(base: Path, task: Task, task_type: TaskType, needs: _Needs) -> Iterator[Fault]:
    """Check that no parameter looks like a slip for another, and that the size hint is a number."""
    for name in task.params:
        if name in needs.known_params:
            continue
        for right in needs.known_params - task.params.keys():
            if is_probably(name, right):
                remedy = f"did you mean {right!r}? Name {name!r} in the params of the type if not"
                text = f"is no parameter of the type {task.type!r}"
                yield Fault((*base, "params", name), text, None, remedy, at_key=True)
                break
    hint = task_type.size_hint
    if hint and hint in task.params and not is_number(task.params[hint]):
        text = "must be a number: it is the size_hint of the type"
        yield Fault((*base, "params", hint), text, shown(task.params[hint]))


def _names(marked: Collection[str], mark: str) -> list[str]:
    return [name.removeprefix(mark) for name in marked if name.startswith(mark)]


def _needs_of(task_type: TaskType) -> _Needs:
    of_units = unit_params(task_type)
    given = frozenset(task_type.params) | (of_units or frozenset())
    hint = task_type.size_hint
    missing: set[str] = set()
    inputs: set[str] = set()
    for path, command in commands(task_type):
        # A merge sees the parameters of the task, not those of a unit; those of some units only the run will tell
        there = task_type.params.keys() if path[0] == "merge" else given
        names = [name.partition(".") for name in placeholders.names(command)]
        inputs |= {member for space, _, member in names if space == "inputs"}
        if path[0] == "merge" or of_units is not None:
            missing |= {member for space, _, member in names if space == "params"} - there
    return _Needs(
        params=frozenset(missing),
        inputs=frozenset(inputs),
        required=frozenset(
            port for port, properties in task_type.inputs.items() if not properties.optional
        ),
        known_params=given | missing | ({hint} if hint else set()),
        size_hint=hint if hint and of_units is not None and hint not in given else None,
    )


def unknown_param(task: Task, task_type: TaskType, name: str) -> str | None:
    """Say why `name` is no parameter of a task; None when it is one, or when a plugin that declares none may take it."""
    known = _needs_of(task_type).known_params | task.params.keys()
    if name in known or (task_type.plugin is not None and not task_type.params):
        return None
    return Nearest(known).remedy(name) or (
        f"its parameters are {listed(known)}" if known else "it has no parameters"
    )


def task_id_faults(names: Iterable[str]) -> Iterator[Fault]:
    """Check names of tasks; the remedy is a name that would do, where one is easily made."""
    for name in names:
        problem = ids.task_id_problem(name)
        if problem is None:
            continue
        folded = name.lower().replace("_", "-").replace(" ", "-").replace(".", "-")
        remedy = f"write {folded!r}" if ids.task_id_problem(folded) is None else None
        yield Fault(
            ("tasks", name), f"can't be the name of a task: {problem}", None, remedy, at_key=True
        )
