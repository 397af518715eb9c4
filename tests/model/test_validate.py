"""Whether tasks and types fit together. C52 and the edges of C54 of the trial cases are here."""

from __future__ import annotations

import time
from typing import Any

import pytest

from simrun.base.errors import InvalidInput
from simrun.model import validate
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Task, Workflow


def types(**fields: dict[str, Any]) -> dict[str, TaskType]:
    return {
        name: TaskType.model_validate({"name": name, "command": ["x"], **given})
        if "plugin" not in given
        else TaskType.model_validate({"name": name, **given})
        for name, given in fields.items()
    }


def tasks(**given: dict[str, Any]) -> dict[str, Task]:
    return {name: Task.model_validate({"type": "t", **fields}) for name, fields in given.items()}


def told(of_tasks: dict[str, Task], of_types: dict[str, TaskType]) -> list[str]:
    """Give `path: message; remedy` of each fault, in order."""
    with pytest.raises(InvalidInput) as caught:
        validate.check(Workflow(tasks=of_tasks), of_types)
    return [str(problem) for problem in caught.value.problems]


# --- edges ---------------------------------------------------------------------------------------------------------------


def test_tasks_that_fit_their_types_are_fine() -> None:
    of_types = types(
        t={"outputs": {"o": "o"}},
        s={"inputs": {"i": {}, "j": {"optional": True}}, "command": ["x", "{inputs.i}"]},
    )
    of_tasks = tasks(a={}, b={"type": "s", "inputs": {"i": "a.o"}, "after": ["a"]})

    validate.check(Workflow(tasks=of_tasks), of_types)


def test_c54_a_dependency_that_differs_by_case_is_no_dependency_and_is_told() -> None:
    of_tasks = {
        **tasks(a={}),
        "b": Task(type="t", after=["A"]),
        "c": Task(type="t", inputs={"i": "A.o"}),
    }

    found = told(of_tasks, types(t={"outputs": {"o": "o"}, "inputs": {"i": {"optional": True}}}))

    assert found == [
        "tasks.b.after[0]: no such task: 'A'; did you mean 'a' (names differ by case)?",
        "tasks.c.inputs.i: no such task: 'A'; did you mean 'a' (names differ by case)?",
    ]


def test_c54_a_dependency_named_twice_is_one_edge() -> None:
    task = Task(type="t", after=["a", "a"])

    assert task.needs == ["a"]
    validate.check(Workflow(tasks={**tasks(a={}), "b": task}), types(t={}))


def test_a_file_without_a_leading_dot_is_told_how_to_be_one() -> None:
    found = told(tasks(a={"inputs": {"i": "system.json"}}), types(t={"inputs": {"i": {}}}))

    assert found == ["tasks.a.inputs.i: no such task: 'system'; write ./system.json for a file"]


def test_outputs_that_the_upstream_type_has_not_are_told() -> None:
    of_types = types(t={"outputs": {"values": "v"}, "inputs": {"i": {"optional": True}}}, n={})
    of_tasks = tasks(
        a={}, b={"inputs": {"i": "a.value"}}, c={"inputs": {"i": "n.x"}}, n={"type": "n"}
    )

    assert told(of_tasks, of_types) == [
        "tasks.b.inputs.i: task 'a' has no output 'value' (got 'a.value'); did you mean 'values'?",
        (
            "tasks.c.inputs.i: task 'n' has no output 'x' (got 'n.x'); its type declares no outputs: "
            "{port: path below the output directory}"
        ),
    ]


def test_inputs_that_the_type_has_not_and_inputs_that_are_missing_are_told() -> None:
    of_types = types(t={"inputs": {"mesh": {}, "start": {"optional": True}}}, n={})
    of_tasks = tasks(a={"inputs": {"mash": "./m"}}, b={"type": "n", "inputs": {"q": "./m"}})

    assert told(of_tasks, of_types) == [
        "tasks.a.inputs.mash: is no input of the type 't'; did you mean 'mesh'?",
        "tasks.a.inputs.mesh: is missing; the type 't' needs it",
        "tasks.b.inputs.q: is no input of the type 'n'; the type declares no inputs",
    ]


def test_an_unknown_type_is_told_once_and_with_the_nearest() -> None:
    found = told(tasks(a={"type": "sweeep", "inputs": {"x": "./y"}}), types(sweep={}))

    assert found == ["tasks.a.type: no such type (got 'sweeep'); did you mean 'sweep'?"]


def test_what_is_known_to_be_wrong_already_is_not_told_again() -> None:
    faults = validate.graph_faults(
        tasks(a={"type": "gone", "after": ["lost"]}), {}, broken={"types.gone", "tasks.lost"}
    )

    assert faults == []


# --- cycles --------------------------------------------------------------------------------------------------------------


def test_c52_a_chain_of_ten_thousand_is_checked_in_seconds_without_recursion() -> None:
    names = [f"t{n}" for n in range(10_000)]
    chain = {
        name: Task(type="t", after=[names[n - 1]] if n else []) for n, name in enumerate(names)
    }
    start = time.process_time()

    validate.check(Workflow(tasks=chain), types(t={}))

    assert time.process_time() - start < 4


def test_c52_an_edge_from_the_last_to_the_first_is_told_as_one_whole_cycle() -> None:
    names = [f"t{n}" for n in range(10_000)]
    ring = {name: Task(type="t", after=[names[n - 1]]) for n, name in enumerate(names)}

    (found,) = told(ring, types(t={}))

    cycle = found.removeprefix("tasks.t0: waits for itself: ").split(" -> ")
    assert cycle == ["t0", *reversed(names)]


def test_c52_a_self_edge_and_two_separate_cycles_are_all_told() -> None:
    of_types = types(t={"inputs": {"i": {"optional": True}}, "outputs": {"o": "o"}})
    of_tasks = tasks(
        a={"after": ["a"]},
        b={"inputs": {"i": "c.o"}},
        c={"after": ["b"]},
        d={"after": ["e"]},
        e={"inputs": {"i": "f.o"}},
        f={"after": ["d", "b"]},
    )

    assert told(of_tasks, of_types) == [
        "tasks.a: waits for itself: a -> a",
        "tasks.b: waits for itself: b -> c -> b",
        "tasks.d: waits for itself: d -> e -> f -> d",
    ]


# --- placeholders --------------------------------------------------------------------------------------------------------


def test_placeholders_that_name_no_port_are_told_at_the_item_of_the_command() -> None:
    of_types = types(
        t={
            "command": ["x", "-i={inputs.mash}", "{outputs.o}", "{print $1}", "{unit.seed}"],
            "inputs": {"mesh": {"optional": True}},
        }
    )

    assert told(tasks(a={}), of_types) == [
        "types.t.command[1]: {inputs.mash} names none of the inputs; did you mean 'mesh'?",
        "types.t.command[2]: {outputs.o} names none of the outputs; the type has no outputs",
    ]


def test_parameters_that_the_command_uses_must_come_from_somewhere() -> None:
    of_types = types(
        t={
            "command": ["x", "{params.of_type}", "{params.of_unit}", "{params.of_task}"],
            "params": {"of_type": 1},
            "split": {"workers": 1, "units": {"grid": {"of_unit": [1]}}},
        }
    )

    found = told(tasks(a={"params": {"of_task": 1}}, b={}), of_types)

    assert found == [
        "tasks.b.params.of_task: is missing; the command of the type 't' uses {params.of_task}"
    ]


@pytest.mark.parametrize("units", [{"plugin": "m:f"}, {"table": "points.csv"}, {"list": []}])
def test_parameters_of_units_that_only_the_run_will_tell_are_not_missed(
    units: dict[str, Any],
) -> None:
    split = {"workers": 1, "units": units}

    validate.check(
        Workflow(tasks=tasks(a={})), types(t={"command": ["{params.q}"], "split": split})
    )


def test_a_merge_sees_the_parameters_of_the_task_and_no_unit() -> None:
    of_types = types(
        t={
            "split": {"workers": 1, "units": {"grid": {"x": [1]}}},
            "merge": {"command": ["m", "{params.x}", "{unit.index}"]},
        }
    )

    assert told(tasks(a={}), of_types) == [
        "types.t.merge.command[2]: {unit.index} has no value in a merge, which is about all units",
        "tasks.a.params.x: is missing; the command of the type 't' uses {params.x}",
    ]


def test_an_optional_input_that_the_command_uses_must_be_connected() -> None:
    of_types = types(t={"command": ["{inputs.i}"], "inputs": {"i": {"optional": True}}})

    assert told(tasks(a={}), of_types) == [
        "tasks.a.inputs.i: the command uses {inputs.i}, and nothing is connected to it here"
    ]


def test_the_number_of_a_replicate_is_a_parameter() -> None:
    split = {"workers": 1, "units": {"grid": {"x": [1]}}, "replicates": 3}
    of_types = types(t={"command": ["{params.replicate}"], "split": split})

    validate.check(Workflow(tasks=tasks(a={})), of_types)


# --- types ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"size_hint": "n", "params": {"n": "many"}}, 'params.n: must be a number: it is the size_hint (got "many")'),
        ({"harness": False, "retries": 2}, "harness: can't be had without the harness, which 'retries' needs (got false); leave harness out"),
        ({"unit_timeout": 5}, "unit_timeout: has no meaning without a split; use timeout"),
        ({"failures": {"allowed": 3}}, "failures: has no meaning without a split; leave it out"),
        ({"plugin": "../p.py:f"}, "plugin: must be a path below the workflow file's own (got '../p.py'); put it beside the workflow file, or into a directory below"),
        ({"split": {"workers": 1, "units": {"list": [1]}}, "outputs": {"o": "map.npy", "t": "table.csv", "all": "."}}, "outputs.o: is made by no merge (got 'map.npy'); the merge 'table' makes table.csv and table.jsonl; give a plugin or a command for more"),
        ({"split": {"workers": 1, "units": {"list": [1]}}, "merge": {"kind": "sum"}, "outputs": {"o": "table.csv", "s": "sum.json"}}, "outputs.o: is made by no merge (got 'table.csv'); the merge 'sum' makes sum.json; give a plugin or a command for more"),
        ({"split": {"workers": 1, "units": {"grid": {}}}}, "split.units.grid: names no parameter; for no units at all write `list: []`"),
        ({"split": {"workers": 1, "units": {"list": [1, {"a": 2}]}}}, "split.units.list: must have rows only or values only, not both"),
        ({"split": {"workers": 1, "units": {"grid": {k: [0] * 200 for k in "abc"}}}}, "split.units.grid: makes 8,000,000 units; at most 1,000,000 are possible: let each unit do more of the work"),
        ({"split": {"workers": 1, "replicates": 2, "units": {"grid": {"replicate": [1]}}}}, "split.units.grid: replicate is the name that replicates give to their number; call the parameter something else"),
        ({"split": {"workers": 1, "units": {"lhs": {"n": 9, "ranges": {"x": {"low": 0.1, "high": 0.2, "integer": True}}}}}}, "split.units.lhs: ranges.x: there is no whole number from 0.1 to 0.2"),
    ],
)  # fmt: skip
def test_a_type_that_contradicts_itself_is_told(fields: dict[str, Any], text: str) -> None:
    assert told(tasks(a={}), types(t=fields)) == [f"types.t.{text}"]


def test_a_null_character_in_a_command_and_a_name_that_is_none_are_told() -> None:
    of_types = types(**{"t": {"command": ["a\0"]}, "t\n": {}, "t@one": {}, "t@": {}})
    places = [text.split(": ")[0] for text in told(tasks(a={}), of_types)]
    assert places == ["types.t\n", "types.t@", "types.t.command[0]"]


def test_a_size_hint_must_be_a_number_that_somebody_gives() -> None:
    of_types = types(t={"size_hint": "n"})

    found = told(tasks(a={}, b={"params": {"n": True}}, c={"params": {"n": 3}}), of_types)

    assert found == [
        "tasks.a.params.n: is missing; it is the size_hint of the type 't'",
        "tasks.b.params.n: must be a number: it is the size_hint of the type (got true)",
    ]


def test_a_parameter_that_looks_like_a_slip_is_told_and_other_ones_are_taken() -> None:
    of_types = types(t={"params": {"tolerance": 1, "x1": 0}})

    found = told(tasks(a={"params": {"tolerence": 2, "x2": 1, "comment": "hi"}}), of_types)

    assert found == [
        (
            "tasks.a.params.tolerence: is no parameter of the type 't'; "
            "did you mean 'tolerance'? Name 'tolerence' in the params of the type if not"
        )
    ]
