"""What an attempt says of itself when it ends: reports/<worker>-<attempt>.json, whose model is simrun.model.report."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import simrun
from simrun.worker import files, protocol
from simrun.worker.endings import AttemptError
from simrun.worker.environment import Environment

_MAX_MESSAGE = 4000


def build(
    env: Environment,
    error: AttemptError | None,
    *,
    started: float,
    measured: Mapping[str, Any],
    units: Mapping[str, int],
    merged: bool,
    remark: str = "",
) -> dict[str, Any]:
    """Give the report of an attempt that ends now: with `error`, or well.

    `started` is wall time; `measured` has cpu_s and memory; `remark` is the message of an attempt that ended well.
    """
    message = error.message if error else remark
    return {
        "schema": protocol.SCHEMA,
        "protocol": protocol.HARNESS_PROTOCOL,
        "harness": simrun.__version__,
        "run": env.run,
        "task": env.task,
        "worker": env.worker,
        "attempt": env.attempt,
        "role": env.role,
        "pod_uid": env.pod_uid,
        "node": env.node,
        "exit_code": int(error.code) if error else 0,
        "reason": error.reason if error else "completed",
        "message": message[:_MAX_MESSAGE],
        "started": started,
        "ended": time.time(),
        "cpus": env.cpus,
        **measured,
        "units": dict(units),
        "merged": merged,
        "tail": error.tail if error else [],
    }


def write(env: Environment, report: Mapping[str, Any]) -> bool:
    """Keep the report durably; whether it stands under the name of the attempt.

    An attempt number may have been used before, by a pod that vanished. The report of another pod is never replaced: this
    one is kept beside it, under a name with its pod uid.
    """
    reports = env.task_dir.reports
    files.make_directory(reports)
    path = reports / f"{env.attempt_name}.json"
    data = files.encode(report)
    if files.create(path, data):
        return True
    try:
        there = files.read_json(path)
    except ValueError:
        there = None  # damaged: not ours to judge
    if isinstance(there, dict) and there.get("pod_uid") == env.pod_uid:
        files.replace(path, data)
        return True
    files.replace(reports / f"{env.holder}.json", data)
    return False
