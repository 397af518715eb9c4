"""Where the inputs of a task lie and which parameters it sees: one answer for settings.json, pods and validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simrun.model.settings import InputRef
from simrun.model.tasktype import TaskType
from simrun.model.workflow import Source, Task, Workflow
from simrun.worker.protocol import TaskDir


def input_refs(workflow: Workflow, types: Mapping[str, TaskType], task: str) -> dict[str, InputRef]:
    """Say where each connected input of a task lies, by port, relative to the run directory or to the snapshots.

    An output of an upstream task lies in that task's out/, a local file was copied to the task's own in/<port>.
    """
    ports = types[workflow.tasks[task].type].inputs
    refs = {}
    for port, source in workflow.tasks[task].sources.items():
        optional = port in ports and ports[port].optional
        if source.kind == "snapshot":
            path = "/".join(part for part in (source.name, source.path.strip("/")) if part)
            refs[port] = InputRef(snapshot=path, optional=optional)
        elif source.kind == "file":
            refs[port] = InputRef(run=str(task_dir(task).inputs / port), optional=optional)
        elif source.kind == "data":
            raise ValueError(f"task {task!r} reads {source.path!r}, of which no snapshot was made")
        else:
            refs[port] = InputRef(
                run=_output_path(workflow, types, task, source), optional=optional
            )
    return refs


def open_inputs(workflow: Workflow, types: Mapping[str, TaskType], task: str) -> list[str]:
    """Give the optional input ports of a task that nothing is connected to."""
    connected = workflow.tasks[task].sources
    ports = types[workflow.tasks[task].type].inputs
    return [port for port, declared in ports.items() if declared.optional and port not in connected]


def task_dir(task: str) -> TaskDir:
    """Give the directory of a task, relative to that of its run."""
    return TaskDir(Path("tasks") / task)


def task_params(task_type: TaskType, task: Task) -> dict[str, Any]:
    """Give the parameters of a task: those of its type, overlaid with its own."""
    return {**task_type.params, **task.params}


def _output_path(
    workflow: Workflow, types: Mapping[str, TaskType], task: str, source: Source
) -> str:
    outputs = types[workflow.tasks[source.task].type].outputs
    if source.port not in outputs:
        known = ", ".join(outputs) or "none"
        raise ValueError(
            f"task {task!r} reads {source.task}.{source.port}, but the outputs of {source.task!r} are: {known}"
        )
    return str(task_dir(source.task).out / outputs[source.port])
