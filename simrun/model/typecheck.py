"""Whether a task type agrees with itself: its placeholders with its ports, its design with its size, its outputs with its merge."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from simrun.model.faults import Fault, Nearest, Path, listed
from simrun.model.tasktype import TaskType, Units, parse_plugin
from simrun.model.wording import shown
from simrun.worker import designs, placeholders
from simrun.worker.merge_kinds import SUM_JSON, TABLE_CSV, TABLE_JSONL

TYPE_NAME_MAX = 128


def type_name_problem(name: str) -> str | None:
    """Say why `name` can't be the name of a type, or None when it can."""
    if len(name) > TYPE_NAME_MAX:
        return f"has {len(name)} characters, at most {TYPE_NAME_MAX} are allowed"
    if not name or not all(char.isascii() and (char.isalnum() or char in "._-") for char in name):
        return "is no name of a type: letters, digits, '.', '_' and '-'"
    return None


def type_faults(task_type: TaskType, base: Path) -> Iterator[Fault]:
    """Check what a type says of itself in several places; `base` is its path."""
    yield from _command_faults(task_type, base)
    yield from _plugin_faults(task_type, base)
    yield from _unit_faults(task_type, base)
    yield from _merged_output_faults(task_type, base)
    hint = task_type.size_hint
    if hint and hint in task_type.params and not is_number(task_type.params[hint]):
        text = "must be a number: it is the size_hint"
        yield Fault((*base, "params", hint), text, shown(task_type.params[hint]))
    if task_type.harness is False and task_type.plugin is None:
        for field, given in (
            ("split", task_type.split is not None),
            ("stage", bool(task_type.stage)),
            ("retries", task_type.retries > 0),
        ):
            if given:
                text = f"can't be had without the harness, which {field!r} needs"
                yield Fault((*base, "harness"), text, "false", "leave harness out")
    if task_type.split is None:
        for field, given in (
            ("unit_timeout", task_type.unit_timeout is not None),
            ("failures", task_type.failures.allowed > 0),
        ):
            if given:
                remedy = "use timeout" if field == "unit_timeout" else "leave it out"
                yield Fault((*base, field), "has no meaning without a split", None, remedy)


def commands(task_type: TaskType) -> Iterator[tuple[Path, list[str]]]:
    """Yield the commands of a type with their paths in it."""
    if task_type.command is not None:
        yield ("command",), task_type.command
    if task_type.merge is not None and task_type.merge.command is not None:
        yield ("merge", "command"), task_type.merge.command


def _command_faults(task_type: TaskType, base: Path) -> Iterator[Fault]:
    """Check the text of commands, and the placeholders of ports and of units in it; parameters are for the tasks to give."""
    ports: dict[str, Collection[str]] = {"inputs": task_type.inputs, "outputs": task_type.outputs}
    for path, command in commands(task_type):
        for index, item in enumerate(command):
            if "\0" in item:
                text = "holds a null character, which no argument of a program may"
                yield Fault((*base, *path, index), text, shown(item))
            for name in placeholders.names([item]):
                space, _, member = name.partition(".")
                spot = (*base, *path, index)
                if space in ports and member not in ports[space]:
                    known = ports[space]
                    remedy = Nearest(known).remedy(member) or (
                        f"the {space} are {listed(known)}" if known else f"the type has no {space}"
                    )
                    yield Fault(spot, f"{{{name}}} names none of the {space}", None, remedy)
                elif space == "unit" and path[0] == "merge":
                    text = f"{{{name}}} has no value in a merge, which is about all units"
                    yield Fault(spot, text)


def _plugin_faults(task_type: TaskType, base: Path) -> Iterator[Fault]:
    """Check that plugin files and tables are beside the workflow file, where they are copied from."""
    for path, text in local_code(task_type):
        if text.startswith("/") or ".." in text.split("/"):
            remedy = "put it beside the workflow file, or into a directory below"
            yield Fault(
                (*base, *path), "must be a path below the workflow file's own", repr(text), remedy
            )


def local_code(task_type: TaskType) -> Iterator[tuple[Path, str]]:
    """Yield the files beside the workflow that a type names, plugins and its table: path in the type, path of the file."""
    split, merge = task_type.split, task_type.merge
    plugins: list[tuple[Path, str | None]] = [
        (("plugin",), task_type.plugin),
        (("split", "units", "plugin"), split.units.plugin if split else None),
        (("merge", "plugin"), merge.plugin if merge else None),
    ]
    for path, plugin in plugins:
        if plugin is not None:
            source, _, is_file = parse_plugin(plugin)
            if is_file:
                yield path, source
    if split and split.units.table is not None:
        yield ("split", "units", "table"), split.units.table


def _unit_faults(task_type: TaskType, base: Path) -> Iterator[Fault]:
    """Check a design: its size, and that each unit gets a row."""
    if task_type.split is None:
        return
    split, units = task_type.split, task_type.split.units
    kind = units.kind
    path: Path = (*base, "split", "units", kind)
    if kind in ("table", "plugin"):
        return  # known when the file is read, or when a worker has run it
    design = units.model_dump(mode="json", exclude_none=True)
    if kind in ("grid", "zip") and not design[kind]:
        yield Fault(path, "names no parameter", None, "for no units at all write `list: []`")
        return
    try:
        designs.size(design, replicates=split.replicates)
        # A drawn design is tried with one point: its size says nothing about its ranges
        tried = {kind: {**design[kind], "n": 1}} if kind in ("lhs", "random") else design
        next(designs.expand(tried), None)
    except ValueError as error:
        yield Fault(path, str(error).removeprefix(f"{kind}: "))
        return
    if split.replicates > 1 and "replicate" in (_row_params(units) or ()):
        text = "replicate is the name that replicates give to their number"
        yield Fault(path, text, None, "call the parameter something else")


def _merged_output_faults(task_type: TaskType, base: Path) -> Iterator[Fault]:
    """Check that outputs are files of the named merge, which makes these and no others."""
    merge = task_type.merge
    if task_type.split is None or (merge is not None and merge.kind is None):
        return
    kind = merge.kind if merge and merge.kind else "table"
    made = {"table": (TABLE_CSV, TABLE_JSONL), "sum": (SUM_JSON,)}[kind]
    for port, path in task_type.outputs.items():
        if path.removeprefix("./") not in (*made, "."):
            remedy = f"the merge {kind!r} makes {' and '.join(made)}; give a plugin or a command for more"
            yield Fault((*base, "outputs", port), "is made by no merge", repr(path), remedy)


def unit_params(task_type: TaskType) -> frozenset[str] | None:
    """Give the parameters that each unit gets of its own; None where only the run will tell."""
    if task_type.split is None:
        return frozenset()
    names = _row_params(task_type.split.units)
    if names is None or task_type.split.replicates == 1:
        return names
    return names | {"replicate"}


def _row_params(units: Units) -> frozenset[str] | None:
    """Give the names that every row of a design has; None where only the run will tell."""
    if units.list_:
        rows = [set(row) if isinstance(row, dict) else {"item"} for row in units.list_]
        return frozenset(set.intersection(*rows))
    drawn = units.lhs or units.random
    named = drawn.ranges if drawn else units.grid or units.zip_
    return frozenset(named) if named else None


def is_number(value: object) -> bool:
    """Whether a parameter is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
