"""Plugin functions as a user writes them, called in their own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simrun.worker import call


class Caller:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "out"
        self.out.mkdir()
        (root / "code").mkdir()

    def write(self, source: str, name: str = "plugin.py") -> Path:
        path = self.root / "code" / name
        path.write_text(source)
        return path

    def call(self, source: str, *, name: str = "plugin.py", **request: Any) -> tuple[int, str, Any]:
        """Call `f` of a plugin; gives exit code, output and answer (None without one)."""
        answer = self.root / "answer.json"
        body = {
            "kind": "unit",
            "plugin": {"file": str(self.write(source, name)), "function": "f"},
            "params": {"x": 2},
            "index": 3,
            "key": "x=2",
            "seed": 11,
            "seed31": 12,
            "inputs": {"mesh": "/data/mesh"},
            "out": str(self.out),
            "scratch": str(self.root),
            "cpus": 0.5,
            "memory_gb": None,
            "answer": str(answer),
            **request,
        }
        path = self.root / "request.json"
        path.write_text(json.dumps(body))
        ended = subprocess.run(
            [sys.executable, "-P", call.__file__, str(path)],
            cwd=self.out,
            capture_output=True,
            text=True,
            check=False,
        )
        result = json.loads(answer.read_text())["result"] if answer.exists() else None
        return ended.returncode, ended.stdout + ended.stderr, result


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


def test_a_unit_has_everything_the_reference_promises(caller: Caller) -> None:
    source = """
import os, pathlib
def f(unit):
    assert unit.inputs == {"mesh": pathlib.Path("/data/mesh")}
    assert unit.out == pathlib.Path(os.getcwd()) and unit.scratch.is_dir()
    return {"all": repr((unit, unit.params, unit.index, unit.key, unit.seed, unit.seed31, unit.cpus, unit.memory_gb))}
"""
    code, output, result = caller.call(source)
    assert code == 0, output
    assert result == {"all": "(<unit 3 'x=2'>, {'x': 2}, 3, 'x=2', 11, 12, 0.5, None)"}


def test_a_function_may_return_nothing(caller: Caller) -> None:
    assert caller.call("def f(unit): pass\n") == (0, "", None)
    assert json.loads((caller.root / "answer.json").read_text()) == {"result": None}


def test_numbers_of_numpy_are_taken_as_numbers(caller: Caller) -> None:
    source = """
class Number:
    ndim = 0
    def item(self): return 4
def f(unit): return {"n": Number()}
"""
    assert caller.call(source)[2] == {"n": 4}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return [1]", "must return a dict or None, not list"),
        ("return {'a': object()}", "a result must hold text, numbers"),
        ("raise ValueError('bad mesh')", "ValueError: bad mesh"),
        ("import sys; sys.exit('giving up')", "giving up"),
    ],
)
def test_what_goes_wrong_is_said_and_gives_no_answer(
    caller: Caller, body: str, problem: str
) -> None:
    code, output, _ = caller.call(f"def f(unit):\n    {body}\n")
    assert code == 1
    assert problem in output
    assert not (caller.root / "answer.json").exists()


def test_the_traceback_begins_in_the_user_s_code(caller: Caller) -> None:
    _, output, _ = caller.call("def f(unit):\n    return 1 / 0\n")
    assert "call.py" not in output
    assert "plugin.py" in output


def test_a_missing_function_is_answered_with_those_there_are(caller: Caller) -> None:
    code, output, _ = caller.call("import json\ndef g(unit): pass\ndef _h(): pass\n")
    assert code == 1
    assert "has no function 'f'; it has: g" in output


def test_files_beside_the_plugin_can_be_imported_but_not_those_in_the_output(
    caller: Caller,
) -> None:
    caller.write("VALUE = 5\n", "beside.py")
    (caller.out / "stray.py").write_text("VALUE = 6\n")
    source = """
import beside
def f(unit):
    try:
        import stray
    except ImportError:
        return {"value": beside.VALUE}
"""
    assert caller.call(source)[2] == {"value": 5}
    assert not list((caller.root / "code").glob("__pycache__"))


def test_nothing_of_the_harness_is_on_the_import_path(caller: Caller) -> None:
    source = """
def f(unit):
    for name in ("files", "units", "report", "settings", "protocol"):
        try:
            __import__(name)
        except ImportError:
            continue
        return {"found": name}
"""
    assert caller.call(source)[:2] == (0, "")


def test_a_plugin_file_may_be_called_like_a_module_of_python(caller: Caller) -> None:
    ended = caller.call("def f(unit): return {'name': __name__}\n", name="json.py")
    assert ended[2] == {"name": "plugin_json"}


def test_functions_of_a_plugin_can_be_pickled_for_worker_processes(caller: Caller) -> None:
    source = """
import multiprocessing
def double(x): return 2 * x
def f(unit):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return {"sum": sum(pool.map(double, [1, 2]))}
"""
    code, output, result = caller.call(source)
    assert code == 0, output
    assert result == {"sum": 6}


def test_a_function_of_an_installed_module_can_be_named(caller: Caller) -> None:
    plugin = {"file": None, "module": "os.path", "function": "isdir"}
    code, output, _ = caller.call("", plugin=plugin)
    assert code == 1
    assert "TypeError" in output  # it was called with a unit


def test_the_units_plugin_is_called_with_params_and_inputs(caller: Caller) -> None:
    source = "def f(params, inputs): return [{**params, 'mesh': inputs['mesh'].name}]\n"
    assert caller.call(source, kind="units")[2] == [{"x": 2, "mesh": "mesh"}]
