"""Finds the inputs of a task, and copies those that are to be staged to the scratch directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from simrun.worker import files, trees
from simrun.worker.endings import BadSettingsError, StoreError
from simrun.worker.environment import Environment
from simrun.worker.log import Log
from simrun.worker.settings import InputRef, TaskSettings
from simrun.worker.stopping import Stopper

STAGE = "stage"


def find_inputs(settings: TaskSettings, env: Environment) -> dict[str, Path]:
    """Give where each input is, by port; an optional one that is not there is left out, any other is a StoreError."""
    found = {}
    for port, ref in settings.inputs.items():
        top = env.snapshots if ref.snapshot else env.task_dir.run_dir
        if top is None:
            raise BadSettingsError(
                f"SIMRUN_SNAPSHOTS is not set, but input {port!r} is in a snapshot"
            )
        path = top / ref.path
        if _is_there(path, top, ref):
            found[port] = path
        elif not ref.optional:
            raise StoreError(f"input {port!r} is not there: {path}")
    return found


def _is_there(path: Path, top: Path, ref: InputRef) -> bool:
    if os.path.exists(path):
        return True
    # "No" may come from a cached lookup made before another pod wrote it. Listings ask the server
    return files.listed(top, *Path(ref.path).parts) and os.path.exists(path)


def stage(
    settings: TaskSettings, inputs: Mapping[str, Path], scratch: Path, stopper: Stopper, log: Log
) -> dict[str, Path]:
    """Copy the inputs to stage to `scratch/stage/<port>/<name>`; gives where each input is then.

    StoreError that names port and reason when one cannot be copied.
    """
    staged = dict(inputs)
    for port in settings.stage:
        if port not in inputs:
            continue
        source = inputs[port]
        target = scratch / STAGE / port / source.name
        log.say(f"staging input {port!r}")
        try:
            target.parent.mkdir(parents=True)
            trees.copy(source, target, stopper.check)
        except OSError as error:
            raise StoreError(f"staging input {port!r} failed: {error}") from error
        except StoreError as error:
            raise StoreError(f"staging input {port!r} failed: {error.message}") from error
        staged[port] = target
    return staged
