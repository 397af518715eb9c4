"""What the service tells the workers of a task: settings.json, whose model is `simrun.model.settings`.

Fields that the harness does not know are ignored. Everything wrong is a BadSettingsError that names the field, its value,
and what it must be.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from simrun.worker import files, protocol
from simrun.worker.endings import BadSettingsError, StoreError
from simrun.worker.environment import Environment

_MAX_SHOWN = 80


class PluginRef(NamedTuple):
    """A function of a file below the run directory, or of a module that the image has."""

    function: str
    file: str | None = None
    module: str | None = None

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.function}"


class InputRef(NamedTuple):
    """A path below the run directory, or below the snapshots."""

    path: str
    snapshot: bool
    optional: bool


class UnitSource(NamedTuple):
    """Where the unit table comes from: it stands in the store (plugin None), or the plugin gives its rows."""

    plugin: PluginRef | None
    replicates: int
    seed_base: int
    seed_across: Literal["units", "replicates"]


class MergeSettings(NamedTuple):
    """How units become one output: exactly one is set."""

    plugin: PluginRef | None = None
    command: tuple[str, ...] | None = None
    kind: Literal["table", "sum"] | None = None


class TaskSettings(NamedTuple):
    """settings.json, as `simrun.model.settings` describes it."""

    run: str
    task: str
    type: str
    command: tuple[str, ...] | None
    plugin: PluginRef | None
    params: dict[str, Any]
    inputs: dict[str, InputRef]
    open_inputs: tuple[str, ...]
    outputs: dict[str, str]
    stage: tuple[str, ...]
    units: UnitSource | None
    merge: MergeSettings
    failures_allowed: int | float
    retries: int
    unit_timeout_s: float | None
    unit_tries: int
    max_evictions: int
    seed_base: int


def load(env: Environment) -> TaskSettings:
    """Read settings.json of the task. Not there is a StoreError: it was written before the pod was made."""
    path = env.task_dir.settings
    try:
        data = files.read_json(path)
        if data is None and files.listed(env.task_dir.run_dir, "tasks", env.task, path.name):
            data = files.read_json(path, listed=True)
    except ValueError as error:
        raise BadSettingsError(f"{path} is no JSON: {error}") from error
    if data is None:
        raise StoreError(f"{path} is not there; is the run store mounted?")
    settings = parse(data)
    for name, told in (("run", env.run), ("task", env.task)):
        if getattr(settings, name) != told:
            raise BadSettingsError(
                f"{path}: {name} is {getattr(settings, name)!r}, but the pod is of {told!r}"
            )
    return settings


def parse(data: Any) -> TaskSettings:
    """Check what settings.json says."""
    fields = _Fields(data, "")
    if fields.whole("schema", protocol.SCHEMA) > protocol.SCHEMA:
        raise fields.wrong("schema", f"at most {protocol.SCHEMA}; use an image with a newer simrun")
    command, plugin = fields.command("command"), _plugin(fields.object("plugin"))
    if (command is None) == (plugin is None):
        raise BadSettingsError("settings.json: exactly one of command and plugin must be there")
    inputs = {
        port: _input(_Fields(value, f"inputs.{port}."))
        for port, value in fields.mapping("inputs").items()
    }
    # An optional input that was not connected has nothing to stage
    stage = tuple(port for port in fields.strings("stage") or () if port in inputs)
    return TaskSettings(
        run=fields.text("run"),
        task=fields.text("task"),
        type=fields.text("type"),
        command=command,
        plugin=plugin,
        params=fields.mapping("params"),
        inputs=inputs,
        open_inputs=tuple(fields.strings("open_inputs") or ()),
        outputs={port: str(path) for port, path in fields.mapping("outputs").items()},
        stage=stage,
        units=_units(fields.object("units")),
        merge=_merge(fields.object("merge")),
        failures_allowed=fields.failures("failures_allowed"),
        retries=fields.whole("retries", 0),
        unit_timeout_s=fields.seconds("unit_timeout_s"),
        unit_tries=fields.whole("unit_tries", protocol.UNIT_TRIES, at_least=1),
        max_evictions=fields.whole("max_evictions", 5),
        seed_base=fields.whole("seed_base", 0),
    )


def _plugin(fields: _Fields | None) -> PluginRef | None:
    if fields is None:
        return None
    file, module = fields.optional_text("file"), fields.optional_text("module")
    if (file is None) == (module is None):
        raise fields.wrong("file", "given when module is not, and only then")
    return PluginRef(fields.text("function"), file, module)


def _input(fields: _Fields) -> InputRef:
    run, snapshot = fields.optional_text("run"), fields.optional_text("snapshot")
    if (run is None) == (snapshot is None):
        raise fields.wrong("run", "given when snapshot is not, and only then")
    return InputRef(run or snapshot or "", snapshot is not None, fields.flag("optional"))


def _units(fields: _Fields | None) -> UnitSource | None:
    if fields is None:
        return None
    kind = fields.choice("kind", ("table", "plugin"), None)
    plugin = _plugin(fields.object("plugin"))
    if kind == "plugin" and plugin is None:
        raise fields.wrong("plugin", "a file or module and a function")
    return UnitSource(
        plugin=plugin if kind == "plugin" else None,
        replicates=fields.whole("replicates", 1, at_least=1),
        seed_base=fields.whole("seed_base", 0),
        seed_across="replicates"
        if fields.choice("seed_across", ("units", "replicates"), "units") == "replicates"
        else "units",
    )


def _merge(fields: _Fields | None) -> MergeSettings:
    if fields is None:
        return MergeSettings(kind="table")
    plugin, command = _plugin(fields.object("plugin")), fields.command("command")
    kind = fields.choice("kind", ("table", "sum"), "")
    if [plugin, command, kind or None].count(None) != 2:
        raise fields.wrong("kind", "given when neither plugin nor command is, and only then")
    return MergeSettings(plugin, command, "sum" if kind == "sum" else "table" if kind else None)


class _Fields:
    """A JSON object of settings.json, read field by field; null counts as not there."""

    def __init__(self, data: Any, path: str) -> None:
        if not isinstance(data, dict):
            name = f"settings.json: {path.rstrip('.')}" if path else "settings.json"
            raise BadSettingsError(f"{name} is {_shown(data)}; it must be an object")
        self._data, self._path = data, path

    def wrong(self, name: str, must: str) -> BadSettingsError:
        value = self._data.get(name)
        seen = "is not there" if value is None else f"is {_shown(value)}"
        return BadSettingsError(f"settings.json: {self._path}{name} {seen}; it must be {must}")

    def object(self, name: str) -> _Fields | None:
        value = self._data.get(name)
        return None if value is None else _Fields(value, f"{self._path}{name}.")

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._data.get(name)
        return {} if value is None else _Fields(value, f"{self._path}{name}.").content()

    def content(self) -> dict[str, Any]:
        return dict(self._data)

    def optional_text(self, name: str) -> str | None:
        value = self._data.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.wrong(name, "text")
        return value

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise self.wrong(name, "text")
        return value

    def choice(self, name: str, words: tuple[str, ...], default: str | None) -> str:
        value = self._data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in words:
            raise self.wrong(name, " or ".join(words))
        return value

    def strings(self, name: str) -> list[str] | None:
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return list(value)

    def command(self, name: str) -> tuple[str, ...] | None:
        value = self.strings(name)
        if value is not None and not value:
            raise self.wrong(name, "a list with at least the program")
        return None if value is None else tuple(value)

    def whole(self, name: str, default: int, at_least: int = 0) -> int:
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise self.wrong(name, f"a whole number from {at_least}")
        return value

    def seconds(self, name: str) -> float | None:
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            raise self.wrong(name, "a number of seconds above 0")
        return float(value)

    def failures(self, name: str) -> int | float:
        value = self._data.get(name)
        if value is None:
            return 0
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise self.wrong(name, "a number of units, or a share from 0.0 to 1.0")
        if isinstance(value, float) and value > 1:
            raise self.wrong(name, "a share from 0.0 to 1.0")
        return value

    def flag(self, name: str) -> bool:
        value = self._data.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
