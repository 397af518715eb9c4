"""The DAG a user writes: tasks, their types and settings, and which port of which task each input reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from simrun.base import ids
from simrun.model.base import Model
from simrun.model.snapshot import name_problem
from simrun.model.tasktype import Params, TaskType


@dataclass(frozen=True, slots=True)
class Source:
    """Where an input comes from.

    kind `task`: `task` and `port` of an upstream task. `snapshot`: `name` of a snapshot and a `path` in it.
    `file`: a local `path`, which is copied into the run at submission. `data`: a local `path`, of which whoever submits
    makes a snapshot; a stored submission names that.
    """

    kind: Literal["task", "snapshot", "file", "data"]
    task: str = ""
    port: str = ""
    name: str = ""
    path: str = ""


SNAPSHOT = "snapshot:"
_LOCAL = ("/", "./", "../")


def parse_source(text: str) -> Source:
    """Read `task.port`, `snapshot:name/path`, `snapshot:` before a local path, or a path; paths start with `/`, `./` or `../`."""
    if text.startswith(SNAPSHOT):
        place = text.removeprefix(SNAPSHOT)
        if place.startswith(_LOCAL) or place in (".", ".."):
            return Source("data", path=place)
        name, _, path = place.partition("/")
        if name_problem(name) or ".." in path.split("/") or "\0" in path:
            raise ValueError(
                "must be snapshot:NAME or snapshot:NAME/PATH, or snapshot:./PATH for a local directory; "
                "names are letters, digits, '.', '_' and '-'"
            )
        return Source("snapshot", name=name, path=path)
    if text.startswith(_LOCAL):
        return Source("file", path=text)
    task, dot, port = text.partition(".")
    if not dot or not task or not port:
        raise ValueError("must be TASK.PORT, snapshot:NAME/PATH, or a path that starts with ./")
    return Source("task", task=task, port=port)


def _source(value: Any) -> Any:
    if isinstance(value, str):
        parse_source(value)
    return value


LABELS_MAX = 64
OWN_LABEL = "simrun/"
LABEL_VALUE_MAX = 500
"""Characters. What a run is called stands in every list of runs, so a page of them must have an end."""

Short = Annotated[str, Field(max_length=ids.TITLE_MAX)]


def labels_problem(labels: Mapping[str, str]) -> str | None:
    """Say why a run can't have these labels, or None when it can; those that simrun adds itself do not count."""
    count = sum(not key.startswith(OWN_LABEL) for key in labels)
    return f"must have at most {LABELS_MAX} entries, not {count}" if count > LABELS_MAX else None


def _few(labels: dict[str, str]) -> dict[str, str]:
    if problem := labels_problem(labels):
        raise ValueError(problem)
    return labels


Labels = Annotated[
    dict[Short, Annotated[str, Field(max_length=LABEL_VALUE_MAX)]], AfterValidator(_few)
]

SourceText = Annotated[str, BeforeValidator(_source)]


class Task(Model):
    """One task of a workflow: a type, and what is particular here."""

    type: str
    params: Params = {}
    inputs: dict[str, SourceText] = {}
    after: list[str] = []
    """Tasks to wait for although nothing of them is read."""

    @field_validator("after")
    @classmethod
    def _each_once(cls, value: list[str]) -> list[str]:
        return list(dict.fromkeys(value))

    @property
    def sources(self) -> dict[str, Source]:
        """Where each input comes from, by port."""
        return {port: parse_source(text) for port, text in self.inputs.items()}

    @property
    def needs(self) -> list[str]:
        """The tasks this one waits for, each once, in the order of mention."""
        named = [source.task for source in self.sources.values() if source.kind == "task"]
        return list(dict.fromkeys([*named, *self.after]))


class Workflow(Model):
    """A DAG of tasks."""

    name: Short = "workflow"
    tasks: dict[str, Task] = Field(min_length=1)

    @field_validator("tasks")
    @classmethod
    def _task_ids(cls, value: dict[str, Task]) -> dict[str, Task]:
        problems = [
            f"{task!r} {problem}" for task in value if (problem := ids.task_id_problem(task))
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return value


class Notify(Model):
    """Whom to tell when a run has ended."""

    webhook: str


class RunRequest(Model):
    """Everything of a submission besides the workflow itself."""

    group: str = "default"
    owner: Short = ""
    name: Short = ""
    labels: Labels = {}
    priority: str | None = None
    """low, normal or high; a cluster's configuration may know more words."""
    reserve_node: bool = False
    max_evictions: int = Field(default=5, ge=0, le=1000)
    notify: Notify | None = None

    @field_validator("group")
    @classmethod
    def _group(cls, value: str) -> str:
        if problem := ids.group_problem(value):
            raise ValueError(problem)
        return value


class Submission(Model):
    """submission.json: workflow and types as submitted, resolved, so that nothing outside is needed to plan again."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    workflow: Workflow
    types: dict[str, TaskType]
    request: RunRequest = RunRequest()
    code: dict[str, str] = {}
    """Plugin files by their path beside the workflow file -> sha256 of the copy under the run's code/."""
    snapshots: dict[str, str] = {}
    """Digests of the snapshots that inputs name: a retry must find the same content under the name. Those that are made by hand have none."""

    @model_validator(mode="after")
    def _types_exist(self) -> Self:
        missing = {task.type for task in self.workflow.tasks.values()} - set(self.types)
        if missing:
            raise ValueError(f"no type {min(missing)!r}")
        return self
