"""What a user says of a kind of task: what it runs, on what resources, how it splits and merges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from simrun.model.base import Model
from simrun.model.faults import Fault, FieldFaults, Nearest
from simrun.model.quantities import Cpus, Memory, Seconds
from simrun.model.scalars import finite

Scalar = str | int | float | bool | None
Params = Annotated[dict[str, Any], BeforeValidator(finite)]
"""Free settings of a task, anything JSON can say."""

_PORT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLUGIN = re.compile(r"(?P<source>[^:]+):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")


def _command(value: Any) -> Any:
    """A string is a shell's line; a list is taken as it is."""
    return ["/bin/sh", "-c", value] if isinstance(value, str) else value


def _ports(value: Any) -> Any:
    """`[a, b]` is short for ports without further properties."""
    if isinstance(value, list):
        if doubled := sorted({name for name in value if value.count(name) > 1}):
            raise ValueError(f"names {doubled[0]!r} twice")
        return {name: {} for name in value}
    return value


Points = Annotated[dict[str, list[Scalar]], BeforeValidator(finite)]
Command = Annotated[list[str], BeforeValidator(_command), Field(min_length=1)]


def parse_plugin(text: str) -> tuple[str, str, bool]:
    """Take `source:function` apart: the source, the function, and whether the source is a file beside the workflow."""
    match = _PLUGIN.fullmatch(text)
    if not match:
        raise ValueError("must be FILE.py:FUNCTION or package.module:FUNCTION")
    source = match["source"]
    return source, match["function"], source.endswith(".py")


def _plugin(value: Any) -> Any:
    if isinstance(value, str):
        parse_plugin(value)
    return value


Plugin = Annotated[str, BeforeValidator(_plugin)]
"""`FILE.py:FUNCTION`, a file beside the workflow file, or `package.module:FUNCTION`, importable in the image."""


class Port(Model):
    """An input port of a task type."""

    optional: bool = False
    description: str = ""


class Build(Model):
    """How the image of a type is built, instead of naming one."""

    context: str = "."
    containerfile: str = "Containerfile"


class Range(Model):
    """An interval of a parameter for `lhs` and `random`."""

    low: float
    high: float
    integer: bool = False
    log: bool = False

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be less than high")
        if self.log and self.low <= 0:
            raise ValueError("low must be above zero for a logarithmic range")
        return self


class SampleDesign(Model):
    """A design that draws n points: by Latin hypercube or independently."""

    n: int = Field(ge=1, le=1_000_000)
    ranges: dict[str, Range] = Field(min_length=1)


class Units(Model):
    """Where the units of a split task come from; exactly one kind.

    grid: every combination of the lists. zip: the lists side by side, of equal length. table: a csv or jsonl file
    beside the workflow file. lhs, random: n drawn points. list: rows, or one value per unit under the name `item`.
    plugin: a function of settings and inputs that gives rows, run by whichever worker comes first.
    """

    grid: Points | None = None
    zip_: Points | None = Field(default=None, alias="zip")
    table: str | None = None
    lhs: SampleDesign | None = None
    random: SampleDesign | None = None
    list_: Annotated[list[Any], BeforeValidator(finite)] | None = Field(default=None, alias="list")
    plugin: Plugin | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = self._kinds()
        if len(kinds) != 1:
            known = ", ".join(name.rstrip("_") for name in type(self).model_fields)
            text = f"must have exactly one of {known}"
            raise ValueError(text + (f", not {' and '.join(kinds)}" if kinds else ""))
        if self.zip_ is not None and len({len(values) for values in self.zip_.values()}) > 1:
            raise ValueError("the lists of zip must be of equal length")
        return self

    @property
    def kind(self) -> str:
        """The one word that is used: grid, zip, table, lhs, random, list or plugin."""
        return self._kinds()[0]

    def _kinds(self) -> list[str]:
        return [
            name.rstrip("_") for name in type(self).model_fields if getattr(self, name) is not None
        ]


class Seed(Model):
    """Where the random seeds of units come from. `across: replicates` gives equal seeds to one replicate of all points."""

    base: int = Field(default=0, ge=0, lt=2**63)
    across: Literal["units", "replicates"] = "units"


class Split(Model):
    """How a task is split: into which units, over how many workers."""

    workers: int = Field(ge=1, le=10_000)
    units: Units
    replicates: int = Field(default=1, ge=1, le=1_000_000)
    seed: Seed = Seed()


class Merge(Model):
    """What makes one output of all units; exactly one of plugin, command, kind. Default is the table of results."""

    plugin: Plugin | None = None
    command: Command | None = None
    kind: Literal["table", "sum"] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if [self.plugin, self.command, self.kind].count(None) != 2:
            raise ValueError("must have exactly one of plugin, command, kind")
        return self


def _share(value: Any) -> Any:
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)%", value)
        if not match or not 0 <= float(match[1]) <= 100:
            raise ValueError("must be a number of units or a share such as 5%")
        return float(match[1]) / 100
    return value


class FailurePolicy(Model):
    """How many units may fail before the task does: a count, or a share (written `5%`, kept as 0.05)."""

    allowed: Annotated[int | float, BeforeValidator(_share)] = 0

    @field_validator("allowed")
    @classmethod
    def _range(cls, value: int | float) -> int | float:
        if value < 0 or (type(value) is float and value > 1):
            raise ValueError("must be a number of units or a share such as 5%")
        return value


class Resources(Model):
    """What one worker gets. Requests equal limits, so what is asked for is what is there."""

    cpu: Cpus = 1.0
    memory: Memory = 512 * 2**20
    retry_memory: Memory | None = None
    """Memory of the one attempt that follows a kill for memory; planned from observations when not given."""
    scratch: Memory | None = None
    """Size limit of the scratch directory."""
    extended: dict[str, int] = {}
    """Extended resources of the cluster, such as nvidia.com/gpu; written beside cpu and memory."""

    @model_validator(mode="before")
    @classmethod
    def _collect_extended(cls, data: Any) -> Any:
        """Take `vendor.example/gpu: 1` beside the plain names."""
        if not isinstance(data, dict):
            return data
        plain = {key: value for key, value in data.items() if "/" not in str(key)}
        extended = {key: value for key, value in data.items() if "/" in str(key)}
        if extended:
            plain["extended"] = {**plain.get("extended", {}), **extended}
        return plain

    @field_validator("extended")
    @classmethod
    def _whole(cls, value: dict[str, int]) -> dict[str, int]:
        for name, number in value.items():
            if number < 1:
                raise ValueError(f"{name} must be a whole number of at least 1")
        return value

    @model_validator(mode="after")
    def _retry_is_more(self) -> Self:
        if self.retry_memory is not None and self.retry_memory < self.memory:
            raise FieldFaults([Fault(("retry_memory",), "must not be less than memory")])
        return self


class SecretRef(Model):
    """A key of a secret of the cluster; locally a variable of simrun's own environment, named by `key`."""

    secret: str
    key: str


class TaskType(Model):
    """How a kind of task runs."""

    name: str = ""
    image: str | None = None
    build: Build | None = None
    command: Command | None = None
    plugin: Plugin | None = None
    inputs: Annotated[dict[str, Port], BeforeValidator(_ports)] = {}
    outputs: dict[str, str] = {}
    """Port -> path below the output directory of the task."""
    stage: list[str] = []
    """Input ports that are copied to scratch before the work starts."""
    params: Params = {}
    split: Split | None = None
    merge: Merge | None = None
    failures: FailurePolicy = FailurePolicy()
    retries: int = Field(default=0, ge=0, le=100)
    """How often an ordinary failure is tried again, inside the pod."""
    timeout: Seconds | None = None
    """Time limit of a worker, from its start."""
    unit_timeout: Seconds | None = None
    grace: Seconds = 30.0
    """What a worker is given to end after SIGTERM."""
    resources: Resources = Resources()
    env: dict[str, str] = {}
    secret_env: dict[str, SecretRef] = {}
    node_selector: dict[str, str] = {}
    size_hint: str | None = None
    """Name of the numeric parameter that the memory grows with."""
    harness: bool | None = None
    """Run an unsplit command under the harness; None lets simrun decide."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        faults = [*self._contradictions(), *self._bad_names()]
        if faults:
            raise FieldFaults(faults)
        return self

    def _contradictions(self) -> Iterator[Fault]:
        if self.command is None and self.plugin is None:
            yield Fault((), "needs exactly one of command and plugin; it has neither")
        if self.command is not None and self.plugin is not None:
            yield Fault(("plugin",), "stands beside a command; a type has one of them")
        if self.image is not None and self.build is not None:
            yield Fault(("build",), "stands beside an image; one of them names the image")
        if self.merge is not None and self.split is None:
            yield Fault(("merge",), "has nothing to merge: the type has no split")
        for index, port in enumerate(self.stage):
            if port not in self.inputs:
                remedy = Nearest(self.inputs).remedy(port) or "name one of the inputs"
                yield Fault(("stage", index), "is no input port", repr(port), remedy)

    def _bad_names(self) -> Iterator[Fault]:
        for kind, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            for port in ports:
                if not _PORT.fullmatch(port):
                    text = "is no port name: letters, digits, '_' and '-', a letter or '_' first"
                    yield Fault((kind, port), text, at_key=True)
        for port, path in self.outputs.items():
            if not path or path.startswith("/") or ".." in path.split("/"):
                text = "must be a path below the output directory"
                yield Fault(("outputs", port), text, repr(path))
        for kind, names in (("env", self.env), ("secret_env", self.secret_env)):
            for name in names:
                if not _ENV_NAME.fullmatch(name):
                    text = "is no name of an environment variable: letters, digits and '_'"
                    yield Fault((kind, name), text, at_key=True)
                elif name.startswith("SIMRUN_"):
                    text = "names that start with SIMRUN_ belong to simrun"
                    yield Fault((kind, name), text, at_key=True)

    @property
    def under_harness(self) -> bool:
        """Whether an unsplit task of this type needs the harness rather than its bare command."""
        if self.harness is not None and self.plugin is None:
            return self.harness
        return (
            self.plugin is not None
            or bool(self.stage)
            or self.timeout is not None
            or self.retries > 0
        )
