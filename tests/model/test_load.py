"""Workflow files: what they become, and every way in which they are wrong. C37, C54, C56 and C61 of the trial cases are here."""

from __future__ import annotations

import json
import textwrap
import time
from typing import Any

import pytest

from simrun.base.errors import InvalidInput, Problem
from simrun.model.cluster import ClusterConfig
from simrun.model.load import WorkflowFile, load, load_settings
from simrun.worker.protocol import worker_name

SIMPLE = """
    types:
      step:
        command: [run, "{params.size}", "{outputs.value}"]
        params: {size: 10}
        outputs: {value: value.txt}
        resources: {memory: 1Gi, retry_memory: 2Gi}
      sweep:
        command: [run, "{unit.seed}", "{params.x}"]
        inputs: [start]
        outputs: {all: table.csv}
        split: {workers: 4, units: {grid: {x: [1, 2]}}}
    tasks:
      first: {type: step}
      all:
        type: sweep
        inputs: {start: first.value}
"""


def read(text: str, **params: dict[str, Any]) -> WorkflowFile:
    return load(textwrap.dedent(text), file="w.yaml", params=params)


def problems(text: str, **params: dict[str, Any]) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        read(text, **params)
    return caught.value.problems


def told(text: str, **params: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in problems(text, **params)]


# --- what a file becomes -----------------------------------------------------------------------------------------------


def test_types_tasks_and_defaults_of_the_request() -> None:
    loaded = read(
        SIMPLE + "    run: {group: lab, priority: high, max_evictions: 2}\n    name: two steps\n"
    )

    assert loaded.workflow.name == "two steps"
    assert loaded.types["step"].name == "step"
    assert loaded.workflow.tasks["all"].needs == ["first"]
    assert (loaded.request.group, loaded.request.max_evictions) == ("lab", 2)
    assert loaded.submission.types == loaded.types


def test_a_workflow_without_a_name_is_called_as_its_file() -> None:
    loaded = load("tasks: {a: {command: [x]}}", file="some/where/orbit-map.yaml")

    assert loaded.workflow.name == "orbit-map"
    for odd in ("n" * 250, "a\udcffb"):  # whatever that is called
        name = load("tasks: {a: {command: [x]}}", file=f"{odd}.yaml").workflow.name
        assert name in ("n" * 200, "a?b")


def test_a_name_that_is_too_long_is_told_with_its_place() -> None:
    (problem,) = problems(f"name: {'n' * 201}\ntasks: {{a: {{command: [x]}}}}")
    assert (problem.field, problem.place) == ("name", "w.yaml:1:7")
    assert "at most 200" in problem.message


def test_json_says_the_same_as_yaml() -> None:
    data = {"types": {"t": {"command": ["x"]}}, "tasks": {"a": {"type": "t"}}, "name": "j"}

    assert load(json.dumps(data, indent="\t"), file="w.json").workflow.name == "j"


def test_a_task_may_give_its_types_fields_and_has_the_inputs_that_it_connects() -> None:
    loaded = read("""
        tasks:
          a: {command: "echo > {outputs.o}", outputs: {o: o.txt}, resources: {memory: 64Mi}}
          b: {command: [cat, "{inputs.i}"], inputs: {i: a.o}, params: {n: 1}}
    """)

    assert loaded.workflow.tasks["b"].type == "b"
    assert list(loaded.types["b"].inputs) == ["i"]
    assert loaded.types["a"].command == ["/bin/sh", "-c", "echo > {outputs.o}"]
    assert loaded.workflow.tasks["b"].params == {"n": 1}


def test_resources_and_workers_beside_a_type_make_a_copy_of_it_for_that_task() -> None:
    loaded = read("""
        types:
          t:
            command: [x]
            split: {workers: 4, units: {list: [1]}}
            resources: {cpu: 2, memory: 1Gi, retry_memory: 2Gi}
        tasks:
          plain: {type: t}
          big: {type: t, split: {workers: 9}, resources: {retry_memory: 8Gi}}
    """)

    copy = loaded.types[loaded.workflow.tasks["big"].type]
    assert copy.name == "t@big"
    assert copy.split is not None
    assert copy.split.workers == 9
    assert (copy.resources.cpu, copy.resources.memory) == (2, 2**30)
    assert copy.resources.retry_memory == 2**33
    assert loaded.types[loaded.workflow.tasks["plain"].type].split.workers == 4  # type: ignore[union-attr]  # it is split


def test_a_copy_may_be_made_by_a_task_of_the_types_name() -> None:
    loaded = read("""
        types: {t: {command: [x]}}
        tasks:
          t: {type: t, resources: {cpu: 2}}
          u: {type: t}
    """)

    assert loaded.types["t@t"].resources.cpu == 2
    assert loaded.types[loaded.workflow.tasks["u"].type].resources.cpu == 1


def test_parameters_from_outside_go_over_those_of_the_file() -> None:
    loaded = read(SIMPLE, first={"size": 99})

    assert loaded.workflow.tasks["first"].params == {"size": 99}


def test_local_files_are_listed_with_their_places() -> None:
    loaded = read("""
        types:
          p:
            plugin: p.py:go
            split: {workers: 1, units: {table: points.csv}}
            merge: {plugin: "numpy:concatenate"}
        tasks:
          a: {type: p, resources: {cpu: 2}}
          b: {command: [x], inputs: {s: ./system.json, t: snapshot:era5/a}}
    """)

    found = {(item.kind, item.path, item.function) for item in loaded.local_files()}
    assert found == {
        ("plugin", "p.py", "go"),
        ("table", "points.csv", ""),
        ("input", "./system.json", ""),
    }


def test_strings_of_on_and_off_are_words_where_words_are_expected() -> None:
    loaded = read("tasks: {a: {command: [set, no, on], env: {CI: yes}, params: {word: 'no'}}}")

    assert loaded.types["a"].command == ["set", "no", "on"]
    assert loaded.types["a"].env == {"CI": "yes"}
    assert loaded.workflow.tasks["a"].params == {"word": "no"}


# --- what is wrong, and how it is told -----------------------------------------------------------------------------------


def test_all_errors_are_told_at_once_in_the_order_of_the_file() -> None:
    found = problems("""
        name: [x]
        types:
          t:
            comand: [x]
            image: 1.10
            split: {workers: 2.5, units: {}}
            resources: {cpu: -1, memory: lots}
        tasks:
          a: {type: t, parms: {}}
          b: {type: q, after: [zz]}
    """)

    assert [problem.field for problem in found] == [
        "name",
        "types.t.comand",
        "types.t.image",
        "types.t.split.workers",
        "types.t.split.units",
        "types.t.resources.cpu",
        "types.t.resources.memory",
        "tasks.a.parms",
        "tasks.b.type",
        "tasks.b.after[0]",
    ]
    lines = [int((problem.place or "").split(":")[1]) for problem in found]
    assert lines == sorted(lines)


def test_c61_a_mistyped_key_is_told_with_file_line_key_and_nearest_known_key() -> None:
    (text,) = told("tasks:\n  a:\n    command: [x]\n    resources: {retry_memmory: 1Gi}\n")

    assert text == (
        "w.yaml:4:17: tasks.a.resources.retry_memmory: is not known here; did you mean 'retry_memory'?"
    )


def test_c61_a_mistyped_key_of_a_cluster_file_is_told_the_same_way() -> None:
    with pytest.raises(InvalidInput) as caught:
        load_settings(
            ClusterConfig, "namespace: x\nlocal_queu: y\nrun_as_user: me\n", file="c.yaml"
        )

    assert str(caught.value).splitlines() == [
        "c.yaml:2:1: local_queu: is not known here; did you mean 'local_queue'?",
        'c.yaml:3:14: run_as_user: must be a whole number (got "me")',
    ]


def test_settings_without_a_fault_are_a_model() -> None:
    assert load_settings(ClusterConfig, "namespace: x", file="c.yaml").namespace == "x"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ("memory: 1Gi", "types.t.memory: is not known here; it belongs under `resources`"),
        ("workers: 3", "types.t.workers: is not known here; it belongs under `split`"),
        ("retry-memory: 1Gi", "types.t.retry-memory: is not known here; it belongs under `resources` as `retry_memory`"),
        ("unitTimeout: 3s", "types.t.unitTimeout: is not known here; did you mean 'unit_timeout'?"),
        ("image: 1.10", 'types.t.image: must be text (got 1.10); write it in quotes: "1.10"'),
        ("env: {N: 4}", 'types.t.env.N: must be text (got 4); write it in quotes: "4"'),
        ("retries: 1000", "types.t.retries: must be at most 100 (got 1000)"),
        ("timeout: soon", 'types.t.timeout: must be a duration such as 90s, 10m or 1h30m (got "soon")'),
        ("inputs: [a, a]", "types.t.inputs: names 'a' twice (got a list)"),
        ("inputs: {a b: {}}", "types.t.inputs.a b: is no port name: letters, digits, '_' and '-', a letter or '_' first"),
        ("outputs: {o: ../x}", "types.t.outputs.o: must be a path below the output directory (got '../x')"),
        ("stage: [mesh]", "types.t.stage[0]: is no input port (got 'mesh'); name one of the inputs"),
        ("merge: {kind: sum}", "types.t.merge: has nothing to merge: the type has no split"),
        ("plugin: a.py:f", "types.t.plugin: stands beside a command; a type has one of them"),
        ("env: {SIMRUN_TASK: x}", "types.t.env.SIMRUN_TASK: names that start with SIMRUN_ belong to simrun"),
        ("resources: {memory: 2Gi, retry_memory: 1Gi}", "types.t.resources.retry_memory: must not be less than memory"),
        ("split: {workers: 1, units: {grid: {x: [[1]]}}}", "types.t.split.units.grid.x[0]: must be text, a whole number, a number or true or false (got a list)"),
        ("split: {workers: 1, units: {grid: {x: [1]}, list: [2]}}", "types.t.split.units: must have exactly one of grid, zip, table, lhs, random, list, plugin, not grid and list"),
        ("split: {units: {list: [1]}}", "types.t.split.workers: is missing"),
        ("name: t", "types.t.name: is not known here; the name is the key above it"),
        ("merge: {kind: table}\n    split: {workers: 1, units: {list: [1]}, seed: {across: tasks}}", "types.t.split.seed.across: must be 'units' or 'replicates' (got \"tasks\")"),
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_type_is_told_in_plain_words(fields: str, text: str) -> None:
    found = told(f"types:\n  t:\n    command: [x]\n    {fields}\ntasks: {{a: {{type: t}}}}\n")

    assert [line.split(": ", 1)[1] for line in found] == [text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "w.yaml:1:1: a workflow is a mapping (got a list); write name:, types: and tasks:"),
        ("name: x", "w.yaml:1:1: tasks: is missing; a workflow has tasks"),
        ("tasks: {}", "w.yaml:1:8: tasks: must not be empty; a workflow has tasks"),
        ("tasks: [a]", "w.yaml:1:8: tasks: must be a mapping of names (got a list)"),
        ("tasks: {a: }", "w.yaml:1:12: tasks.a: must be a mapping with a type, or with a command or a plugin (got null)"),
        ("tasks: {a: {}}", "w.yaml:1:9: tasks.a.type: is missing; or give a command or a plugin"),
        ("tasks: {a: {outputs: {x: y}}}", "w.yaml:1:12: tasks.a: needs exactly one of command and plugin; it has neither"),
        ("group: x\ntasks: {a: {command: [x]}}", "w.yaml:1:1: group: is not known here; it belongs under `run`"),
        ("task: {}\ntasks: {a: {command: [x]}}", "w.yaml:1:1: task: is not known here; did you mean 'tasks'?"),
        ("run: {group: 'a:b'}\ntasks: {a: {command: [x]}}", "w.yaml:1:14: run.group: must not contain ':' (got \"a:b\")"),
        ("run: [x]\ntasks: {a: {command: [x]}}", "w.yaml:1:6: run: must be a mapping (key: value) (got a list)"),
        ("types: {t: x}\ntasks: {a: {command: [x]}}", "w.yaml:1:12: types.t: must be a mapping with a command or a plugin (got \"x\")"),
        ("types: {'a/b': {command: [x]}}\ntasks: {a: {command: [x]}}", "w.yaml:1:9: types.a/b: is no name of a type: letters, digits, '.', '_' and '-'"),
    ],
)  # fmt: skip
def test_a_file_of_another_shape_is_told_what_is_expected(text: str, message: str) -> None:
    assert told(text) == [message]


def test_c54_an_empty_list_of_tasks_is_refused() -> None:
    assert "must not be empty" in told("tasks: []")[0]


def test_c54_two_tasks_of_one_name_are_an_error_not_the_last_one() -> None:
    assert told("tasks:\n  a: {command: [x]}\n  a: {command: [y]}\n") == [
        "w.yaml:3:3: tasks.a: is given twice, first on line 2"
    ]


def test_c54_all_wrong_names_are_told_at_once() -> None:
    found = told("""
        types: {t: {command: [x]}}
        tasks:
          a: {type: t}
          a: {type: t}
          A: {type: t}
          b: {type: t, after: [B]}
          cafe\u0301: {type: t}
          caf\u00e9: {type: t}
    """)

    assert len(found) == 6
    assert "is given twice" in found[0]
    assert "write 'a'" in found[1]
    assert "did you mean 'b' (names differ by case)?" in found[2]
    assert "another Unicode form" in "".join(found)


def test_c37_names_of_tasks_that_are_too_long_are_refused_with_the_limit() -> None:
    for length in (49, 63, 64, 200):
        name = "a" * length
        (found,) = told(f"tasks:\n  {name}: {{command: [x]}}\n")
        assert f"has {length} characters, at most 48 are allowed" in found


def test_c37_the_longest_names_of_tasks_fit_every_label_with_the_most_workers() -> None:
    longest = "a" * 48
    assert read(f"tasks:\n  {longest}: {{command: [x]}}\n").workflow.tasks
    assert len(worker_name(longest, 9_999)) <= 63


@pytest.mark.parametrize("name", ["a-w0", "a-extra", "a-merge", "-a", "a_b", "Å"])
def test_names_of_tasks_that_would_be_taken_for_others_are_refused(name: str) -> None:
    assert "can't be the name of a task" in told(f'tasks:\n  "{name}": {{command: [x]}}\n')[0]


@pytest.mark.parametrize("workers", [0, -1])
def test_c56_no_workers_are_refused(workers: int) -> None:
    (found,) = told(f"""
        types: {{t: {{command: [x], split: {{workers: {workers}, units: {{list: [1]}}}}}}}}
        tasks: {{a: {{type: t}}}}
    """)

    assert f"types.t.split.workers: must be at least 1 (got {workers})" in found


def test_c56_one_worker_and_no_units_are_fine_as_a_leaf_and_in_the_middle() -> None:
    loaded = read("""
        types:
          t: {command: [x], inputs: {i: {optional: true}}, outputs: {o: table.csv}, split: {workers: 1, units: {list: []}}}
        tasks:
          a: {type: t}
          b: {type: t, inputs: {i: a.o}}
    """)  # fmt: skip

    assert loaded.types["t"].split.workers == 1  # type: ignore[union-attr]  # it is split


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ("params: {flag: no}", "types.t.params.flag"),
        ("params: {deep: {list: [1, on]}}", "types.t.params.deep.list[1]"),
        ("params: {code: 007}", "types.t.params.code"),
        ("params: {top: .inf}", "types.t.params.top"),
        ("split: {workers: 1, units: {grid: {flag: [true, off]}}}", "types.t.split.units.grid.flag[1]"),
        ("split: {workers: 1, units: {list: [{a: yes}]}}", "types.t.split.units.list[0].a"),
    ],
)  # fmt: skip
def test_a_doubtful_value_is_refused_where_any_value_goes(where: str, field: str) -> None:
    (found,) = problems(f"types:\n  t:\n    command: [x]\n    {where}\ntasks: {{a: {{type: t}}}}\n")

    assert found.field == field
    assert "quote it" in found.message


def test_doubtful_parameters_of_a_task_are_refused() -> None:
    (found,) = problems("tasks:\n  a: {command: [x], params: {sw: off}}\n")

    assert found.field == "tasks.a.params.sw"


# --- inline types and copies ---------------------------------------------------------------------------------------------


def test_a_task_that_would_make_a_type_of_a_taken_name_is_refused() -> None:
    (found,) = told("types: {a: {command: [x]}}\ntasks: {a: {command: [y]}}\n")

    assert found.endswith("add `type: a`, or call one of them otherwise")


def test_what_may_not_stand_beside_a_type_is_refused() -> None:
    found = told("""
        types: {t: {command: [x], split: {workers: 2, units: {list: [1]}}}, u: {command: [x]}}
        tasks:
          a: {type: t, command: [y], timeout: 3s}
          b: {type: t, split: {workers: 3, replicates: 2}}
          c: {type: u, split: {workers: 3}}
    """)

    assert [text.split(": ", 1)[1] for text in found] == [
        "tasks.a.command: can't stand beside `type`; change the type, or leave `type` out",
        "tasks.a.timeout: can't stand beside `type`; change the type, or leave `type` out",
        "tasks.b.split.replicates: can't be changed beside `type`; only workers can",
        "tasks.c.split: the type 'u' is not split",
    ]


def test_a_fault_of_a_copy_is_told_at_the_task_and_one_of_its_type_only_there() -> None:
    found = told("""
        types:
          good: {command: [x], resources: {memory: 1Gi, retry_memory: 2Gi}}
          bad: {command: [x], retries: -1}
        tasks:
          a: {type: good, resources: {memory: 4Gi}}
          b: {type: bad, resources: {cpu: 0}}
          c: {type: bad}
    """)

    assert [text.split(": ", 1)[1] for text in found] == [
        "types.bad.retries: must be at least 0 (got -1)",
        "tasks.a.resources.retry_memory: must not be less than memory",
        "tasks.b.resources.cpu: must be more than 0 (got 0)",
    ]


# --- parameters from outside ---------------------------------------------------------------------------------------------


def test_a_parameter_for_an_unknown_task_is_refused() -> None:
    (found,) = told(SIMPLE, frist={"size": 1})

    assert "no such task: 'frist'" in found
    assert "did you mean 'first'?" in found


def test_a_parameter_that_nothing_reads_is_refused() -> None:
    (found,) = told(SIMPLE, first={"sise": 1})

    assert found.endswith(
        "tasks.first.params.sise: is no parameter of the task; did you mean 'size'?"
    )


def test_a_slip_in_a_parameter_from_outside_is_told_once() -> None:
    text = "types: {t: {plugin: 'm:f', params: {size: 1}}}\ntasks: {first: {type: t}}"

    (found,) = told(text, first={"sise": 1})

    assert "is no parameter of the task" in found


def test_a_plugin_that_declares_no_parameters_takes_any() -> None:
    text = "tasks: {a: {plugin: 'm:f'}}"

    assert read(text, a={"anything": 1}).workflow.tasks["a"].params == {"anything": 1}


# --- speed ---------------------------------------------------------------------------------------------------------------


def test_ten_thousand_tasks_are_read_and_checked_in_seconds() -> None:
    """2 s without the parse are asked for; measured 0.3 s. The bound leaves room for a busy machine."""
    tasks = "".join(
        f"  t{n}: {{type: step, params: {{size: {n}}}, inputs: {{previous: t{n - 1}.value}}}}\n"
        for n in range(1, 10_000)
    )
    text = (
        "types:\n  step: {command: [x, '{params.size}'], inputs: [previous], outputs: {value: v}}\n"
        "tasks:\n  t0: {type: step, params: {size: 0}, inputs: {previous: ./start}}\n" + tasks
    )
    start = time.process_time()

    loaded = load(text, file="w.yaml")

    assert len(loaded.workflow.tasks) == 10_000
    assert time.process_time() - start < 6


def test_ten_thousand_faults_of_one_kind_are_told_in_seconds() -> None:
    tasks = "".join(f"  t{n}: {{type: stepp, after: [x{n}]}}\n" for n in range(10_000))
    start = time.process_time()

    found = problems("types: {step: {command: [x]}}\ntasks:\n" + tasks)

    assert len(found) == 20_000
    assert time.process_time() - start < 10
