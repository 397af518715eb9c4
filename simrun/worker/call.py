"""Calls a plugin function; runs in a child process of the harness, started with the path of a request as its argument.

It imports nothing of simrun and is started by its path, so that neither simrun nor what lies in the current directory has
to be, or is by accident, on the import path of a user's code. The answer is written beside the request, by
rename: without it the function did not return, whatever the exit code says.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class Unit:
    """What a unit plugin is given."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.params: dict[str, Any] = request["params"]
        """Parameters of the type, overlaid with the task's, overlaid with the unit's own."""
        self.index: int = request["index"]
        self.key: str = request["key"]
        self.seed: int = request["seed"]
        """Up to 63 bits, different for every unit of the task."""
        self.seed31: int = request["seed31"]
        """The same for simulators that take 31 bits."""
        self.inputs = _paths(request["inputs"])
        self.out = Path(request["out"])
        """The unit's own output directory, and the current one. All that is written there is kept."""
        self.scratch = Path(request["scratch"])
        """A directory on a local disk that is removed after the unit."""
        self.cpus: float | None = request["cpus"]
        self.memory_gb: float | None = request["memory_gb"]

    def __repr__(self) -> str:
        return f"<unit {self.index} {self.key!r}>"


class DoneUnit:
    """A computed unit, as a merge plugin is given it. `out` is to be read only."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.index: int = request["index"]
        self.key: str = request["key"]
        self.params: dict[str, Any] = request["params"]
        self.seed: int = request["seed"]
        self.out = Path(request["out"])
        self.result: dict[str, Any] | None = request["result"]
        """What the unit returned, or wrote to result.json."""

    def __repr__(self) -> str:
        return f"<unit {self.index} {self.key!r}>"


class FailedUnit:
    """A unit that was given up, as a merge plugin is given it."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.index: int = request["index"]
        self.key: str = request["key"]
        self.params: dict[str, Any] = request["params"]
        self.reason: str = request["reason"]

    def __repr__(self) -> str:
        return f"<failed unit {self.index} {self.key!r}: {self.reason}>"


class Merge:
    """What a merge plugin is given."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.units = [DoneUnit(unit) for unit in request["units"]]
        """The computed units in order of their index."""
        self.failed = [FailedUnit(unit) for unit in request["failed"]]
        self.params: dict[str, Any] = request["params"]
        self.inputs = _paths(request["inputs"])
        self.out = Path(request["out"])
        """The output directory of the task, and the current one."""
        self.scratch = Path(request["scratch"])


def _paths(inputs: dict[str, str]) -> dict[str, Path]:
    return {port: Path(path) for port, path in inputs.items()}


def load(plugin: dict[str, Any]) -> Callable[..., Any]:
    """Import the function of a plugin: `file` (a path) or `module`, and `function`. Errors name what is there instead."""
    if plugin.get("file"):
        module = _load_file(Path(plugin["file"]))
    else:
        module = importlib.import_module(plugin["module"])
    function = getattr(module, plugin["function"], None)
    if not callable(function):
        there = sorted(
            name
            for name, value in vars(module).items()
            if callable(value)
            and getattr(value, "__module__", None) == module.__name__
            and not name.startswith("_")
        )
        source = plugin.get("file") or plugin["module"]
        sys.exit(
            f"{source} has no function {plugin['function']!r}; it has: {', '.join(there) or 'none'}"
        )
    return function  # type: ignore[no-any-return]  # callable() does not narrow getattr's Any


def _load_file(path: Path) -> ModuleType:
    """Import a file under its own name, as `import` would from its directory, so that its functions can be pickled."""
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"plugin_{name}"
    sys.dont_write_bytecode = True  # it would lie in the run store, half-written after a crash
    sys.path.insert(0, str(path.parent))  # files beside it can be imported
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _call(request: dict[str, Any]) -> Any:
    function = load(request["plugin"])
    kind = request["kind"]
    if kind == "units":
        rows = function(request["params"], _paths(request["inputs"]))
        return _checked(list(rows) if isinstance(rows, tuple) else rows, list, "a list of dicts")
    given = Unit(request) if kind == "unit" else Merge(request)
    return _checked(function(given), dict, "a dict or None")


def _checked(value: Any, kind: type, must: str) -> Any:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"the plugin function must return {must}, not {type(value).__name__}")
    return value


def _plain(value: Any) -> Any:
    """Take numbers of numpy and its like for the plain numbers they hold."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return value.item()
    raise TypeError(
        f"a result must hold text, numbers, true, false or None, not {type(value).__name__}"
    )


def main(request_path: str) -> None:
    """Do what the request says and write the answer beside it, `{"result": …}`."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    try:
        answer = json.dumps({"result": _call(request)}, default=_plain)
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        import traceback

        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.stdout.flush()
        traceback.print_exception(type(error), error, trace)
        sys.exit(1)
    temporary = f"{request['answer']}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(answer)
    os.rename(temporary, request["answer"])


if __name__ == "__main__":
    main(sys.argv[1])
