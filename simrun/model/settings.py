"""settings.json of a task: what the harness needs to know, written before the workflow is submitted.

The manifest never carries it: settings hold user text, and user text in a manifest would meet the template language of
the workflow engine. Paths are relative to the directory of the run, so that they are right under every mount.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simrun.model.base import StoredModel


class PluginRef(StoredModel):
    """A function: of a file under the run directory (`file`), or of a module that the image has (`module`)."""

    file: str | None = None
    module: str | None = None
    function: str


class InputRef(StoredModel):
    """Where an input is: `run`, a path below the run directory, or `snapshot`, a path below the snapshots."""

    run: str | None = None
    snapshot: str | None = None
    optional: bool = False


class UnitSource(StoredModel):
    """Where the unit table comes from: `table`, it stands in units/ already; `plugin`, whoever comes first makes it."""

    kind: Literal["table", "plugin"]
    plugin: PluginRef | None = None
    replicates: int = 1
    seed_base: int = 0
    seed_across: Literal["units", "replicates"] = "units"


class MergeSettings(StoredModel):
    """How the units become one output: exactly one of the three."""

    plugin: PluginRef | None = None
    command: list[str] | None = None
    kind: Literal["table", "sum"] | None = None


class TaskSettings(StoredModel):
    """settings.json."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    run: str
    task: str
    type: str
    command: list[str] | None = None
    plugin: PluginRef | None = None
    params: dict[str, Any] = {}
    """Type defaults overlaid with the task's own; a unit's row goes over both."""
    inputs: dict[str, InputRef] = {}
    open_inputs: list[str] = []
    """Optional ports that nothing is connected to: empty text in a command."""
    outputs: dict[str, str] = {}
    stage: list[str] = []
    units: UnitSource | None = None
    """None: the task is not split."""
    merge: MergeSettings | None = None
    failures_allowed: int | float = 0
    """A count, or as a float below or equal to 1 a share of the units."""
    retries: int = 0
    unit_timeout_s: float | None = None
    unit_tries: int = 2
    max_evictions: int = 5
    seed_base: int = 0
    """Of an unsplit task."""
