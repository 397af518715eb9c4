"""The merge of a split task: one output of all its units, put in place at once, and the marker last.

The output is built beside `out/` and moved there whole, so that nobody reads half of it; the marker
`out/.simrun-merged` is linked when everything else is durable. A merge that is killed at any point is simply done again: what stands
in out/ without a marker is replaced, what has one is left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simrun.worker import files, merge_kinds, protocol, results, trees
from simrun.worker.endings import SimulationError, StoreError
from simrun.worker.job import Job, Ran
from simrun.worker.ledger import LedgerView
from simrun.worker.output import (
    TEMPORARY,
    check_outputs,
    is_merged,
    make_durable,
    put_in_place,
    sweep,
)
from simrun.worker.protocol import MERGE_MARKER, RESULT
from simrun.worker.records import ComputedUnit, GivenUpUnit, MergedUnits, read_record
from simrun.worker.units import UnitTable

_SHOWN_FAILURES = 5

UNITS_JSON = "SIMRUN_UNITS_JSON"
"""Variable of a merge command: the file that lists the units."""


def merge(job: Job, table: UnitTable, view: LedgerView) -> None:
    """Merge the units of a task whose ledger is complete; nothing happens when that was done before."""
    task_dir = job.env.task_dir
    if is_merged(task_dir):
        return
    units = MergedUnits(
        task_dir, table, job.settings.params, done=view.done(), failed=view.failed()
    )
    if len(units.done) + len(units.failed) != table.count:
        raise StoreError(
            f"{len(units.done)} of {table.count} units are done and {len(units.failed)} failed: the others are missing"
        )
    out = task_dir.root / f"{TEMPORARY}{job.env.holder}"
    job.fresh(out)
    job.runner.log.say(f"merging {len(units.done)} units")
    _build(job, units, out)
    trees.remove(out / MERGE_MARKER)  # a plugin must not say that it is done
    if table.count:
        check_outputs(job, out)
    make_durable(out)
    sweep(job, keep_work=units.kept, keep=out.name)
    job.runner.stopper.check()
    put_in_place(job, out, task_dir.out, unless=MERGE_MARKER)
    marker = {
        "schema": protocol.SCHEMA,
        "units": table.count,
        "done": ranges(units.done),
        "failed": ranges([claim.unit for claim in units.failed]),
        "worker": job.env.worker,
        "attempt": job.env.attempt,
        "pod_uid": job.env.pod_uid,
    }
    files.create(task_dir.out / MERGE_MARKER, files.encode(marker))


def check_failures(job: Job, view: LedgerView, table: UnitTable) -> None:
    """Raise SimulationError when more units were given up than the task allows; it names the first of them and why."""
    count, failed = table.count, view.failed()
    allowed = job.settings.failures_allowed
    limit = allowed * count if isinstance(allowed, float) else allowed
    if len(failed) <= limit:
        return
    texts: list[str] = []
    tail: list[str] = []
    for claim in failed[:_SHOWN_FAILURES]:
        record = read_record(job.env.task_dir.failed / claim.name)
        texts.append(f"unit {claim.unit} ({table.unit(claim.unit).key}): {record.get('message')}")
        tail = tail or list(record.get("tail") or [])
    if len(failed) > len(texts):
        texts.append(f"and {len(failed) - len(texts)} more")
    allows = "none may" if not limit else f"at most {limit:g} may"
    raise SimulationError(
        f"{len(failed)} of {count} units failed, {allows}: {'; '.join(texts)}", tail
    )


def ranges(numbers: list[int]) -> list[list[int]]:
    """Write ascending numbers as closed ranges: 0, 1, 2, 5 as [[0, 2], [5, 5]]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _build(job: Job, units: MergedUnits, out: Path) -> None:
    settings = job.settings.merge
    check = job.runner.stopper.check
    if settings.kind == "table" or (not units.count and settings.kind is None):
        merge_kinds.table(
            units, out, job.scratch, check
        )  # no units: an empty table stands for any merge
    elif settings.kind == "sum":
        merge_kinds.total(units, out, check)
    else:
        _run(job, units, out)


def _run(job: Job, units: MergedUnits, out: Path) -> None:
    """Run a merge plugin or command; ordinary failures are tried again as often as `retries` says."""
    everything = list(units)
    lists = {
        "units": [unit.given() for unit in everything if isinstance(unit, ComputedUnit)],
        "failed": [unit.given() for unit in everything if isinstance(unit, GivenUpUnit)],
    }
    problem, tail = "", []
    for number in range(1, job.settings.retries + 2):
        scratch = job.scratch / "merge"
        job.fresh(out)
        job.fresh(scratch)
        ran = _program(job, lists, out, scratch)
        problem, tail = ran.problem, list(ran.outcome.tail)
        if not problem and ran.result is not None:
            try:
                result = results.flat(ran.result)
                files.replace(out / RESULT, files.encode(result), durable=False)
            except ValueError as error:
                problem = str(error)
        if not problem:
            return
        job.runner.log.say(f"try {number} of the merge failed: {problem}")
    raise SimulationError(f"the merge failed: {problem}", tail)


def _program(job: Job, lists: dict[str, Any], out: Path, scratch: Path) -> Ran:
    settings = job.settings.merge
    if settings.plugin is not None:
        request = {"params": job.settings.params, **lists}
        return job.function(settings.plugin, "merge", request, out=out, scratch=scratch)
    assert settings.command is not None
    path = scratch / "units.json"
    path.write_text(json.dumps(lists), encoding="utf-8")
    return job.command(
        settings.command, {}, out=out, scratch=scratch, variables={UNITS_JSON: str(path)}
    )
