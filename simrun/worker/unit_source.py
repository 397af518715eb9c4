"""Opens the unit table of a split task, and publishes it first where a plugin gives its rows."""

from __future__ import annotations

from typing import Any

from simrun.worker import units
from simrun.worker.endings import BadSettingsError, SimulationError, StoreError
from simrun.worker.job import Job
from simrun.worker.settings import PluginRef, UnitSource
from simrun.worker.units import UnitTable


def open_table(job: Job) -> UnitTable:
    """Give the unit table. Whichever worker comes first publishes it; a published table is never drawn again."""
    table = _load(job)
    if table is not None:
        return table
    source = job.settings.units
    if source is None:
        raise BadSettingsError(
            "settings.json: units is not there; the task is not split, and has no workers"
        )
    if source.plugin is None:
        raise StoreError(
            f"the unit table is not there: {job.env.task_dir.units}/index.json; the service writes it before submission"
        )
    _publish(job, source, source.plugin, _rows(job, source.plugin))
    table = _load(job)
    if table is None:
        raise StoreError(
            f"the unit table was published, but is not there: {job.env.task_dir.units}"
        )
    return table


def _load(job: Job) -> UnitTable | None:
    try:
        return UnitTable.load(job.env.task_dir)
    except ValueError as error:
        raise StoreError(f"the unit table is damaged: {error}") from error


def _rows(job: Job, plugin: PluginRef) -> list[Any]:
    scratch = job.scratch / "units"
    problem, tail = "", []
    for _ in range(job.settings.retries + 1):
        job.fresh(scratch)
        ran = job.function(
            plugin, "units", {"params": job.settings.params}, out=scratch, scratch=scratch
        )
        if not ran.problem:
            if ran.result is None:
                raise SimulationError(
                    f"units plugin {plugin}: must return a list of dicts, not None"
                )
            return list(ran.result)
        problem, tail = ran.problem, list(ran.outcome.tail)
    raise SimulationError(f"units plugin {plugin}: {problem}", tail)


def _publish(job: Job, source: UnitSource, plugin: PluginRef, rows: list[Any]) -> None:
    try:
        made = units.make_units(
            rows,
            seed_base=source.seed_base,
            task=job.env.task,
            seed_across=source.seed_across,
            replicates=source.replicates,
        )
        count = units.write_table(job.env.task_dir, made)
    except ValueError as error:
        raise SimulationError(f"units plugin {plugin}: {error}") from error
    except units.TableConflictError as error:
        raise SimulationError(
            f"units plugin {plugin}: gave other rows to another worker; it must depend on nothing but params and inputs"
        ) from error
    job.runner.log.say(f"unit table published: {count} units")
