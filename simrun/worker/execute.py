"""The whole of an unsplit task, under simrun-exec: computed beside `out/`, which gets it only when it is whole.

A killed attempt leaves nothing half in `out/`, and a later one starts from an empty directory.
"""

from __future__ import annotations

from simrun.worker import files
from simrun.worker.compute import compute
from simrun.worker.endings import BadSettingsError, SimulationError
from simrun.worker.job import Job
from simrun.worker.output import check_outputs, make_durable, put_in_place, sweep
from simrun.worker.seeds import Seeds
from simrun.worker.units import Unit


def execute(job: Job) -> None:
    """Compute the task and put its output in place; SimulationError when it failed after all `retries`."""
    env, settings = job.env, job.settings
    if settings.units is not None:
        raise BadSettingsError(
            "settings.json: units is there; a split task runs under simrun-worker"
        )
    seed, seed31 = Seeds(settings.seed_base, settings.task).at(0)
    unit = Unit(i=0, key=env.task, params=settings.params, seed=seed, seed31=seed31)
    out = env.task_dir.work / env.holder
    files.make_directory(out)
    computed = compute(job, unit, out, job.scratch / "unit")
    if computed.problem:
        raise SimulationError(computed.problem, computed.tail)
    check_outputs(job, out)
    make_durable(out)
    put_in_place(job, out, env.task_dir.out)
    sweep(job, keep_work=set())
