"""Computes one piece of a task, a unit or the whole of an unsplit task, with its in-pod retries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from simrun.worker import files, results
from simrun.worker.job import Job, Ran
from simrun.worker.protocol import RESULT
from simrun.worker.units import Unit


class Computed(NamedTuple):
    """A piece that was computed, or not: then `problem` says why. Times are wall seconds since 1970."""

    problem: str
    kind: str
    """Of a problem, in one word: exit, signal, timeout, start or result; `done` when there is none."""
    exit_code: int | None
    result: dict[str, Any] | None
    tail: list[str]
    started: float
    ended: float
    tries: int

    @property
    def facts(self) -> dict[str, Any]:
        """What the record of a unit says of this."""
        return {
            "exit_code": self.exit_code,
            "started": self.started,
            "ended": self.ended,
            "tries": self.tries,
        }


def compute(job: Job, unit: Unit, out: Path, scratch: Path) -> Computed:
    """Run the task's program for one unit, whose params have all layers; output goes to `out`.

    An ordinary failure is tried again as often as `retries` says, each time from an empty directory. What ends the attempt
    (a kill for memory, SIGTERM, the time limit) is raised.
    """
    started = time.time()
    tries = 0
    while True:
        tries += 1
        job.fresh(out)
        job.fresh(scratch)
        result, ran = _result(job, _run(job, unit, out, scratch), out)
        if not ran.problem or tries > job.settings.retries:
            break
        job.runner.log.say(f"try {tries} of {unit.key!r} failed: {ran.problem}")
    return Computed(
        problem=ran.problem,
        kind=_kind(ran),
        exit_code=ran.outcome.exit_code,
        result=result,
        tail=list(ran.outcome.tail),
        started=started,
        ended=time.time(),
        tries=tries,
    )


def _run(job: Job, unit: Unit, out: Path, scratch: Path) -> Ran:
    settings = job.settings
    limit = settings.unit_timeout_s
    if settings.plugin is not None:
        request = {
            "params": unit.params,
            "index": unit.i,
            "key": unit.key,
            "seed": unit.seed,
            "seed31": unit.seed31,
        }
        return job.function(
            settings.plugin, "unit", request, out=out, scratch=scratch, timeout_s=limit
        )
    values = {
        **{f"params.{name}": value for name, value in unit.params.items()},
        "unit.index": unit.i,
        "unit.key": unit.key,
        "unit.seed": unit.seed,
        "unit.seed31": unit.seed31,
    }
    assert settings.command is not None
    return job.command(settings.command, values, out=out, scratch=scratch, timeout_s=limit)


def _result(job: Job, ran: Ran, out: Path) -> tuple[dict[str, Any] | None, Ran]:
    """Give the result of a run that succeeded: what a function returned, else what result.json says."""
    if ran.problem:
        return None, ran
    try:
        if ran.result is None:
            return results.read(out), ran
        result = results.flat(ran.result)
    except ValueError as error:
        return None, ran._replace(problem=str(error))
    for name in results.lost_numbers(ran.result):
        job.runner.log.say(f"result {name!r} is no finite number; it is kept as null")
    files.replace(out / RESULT, files.encode(result), durable=False)
    return result, ran


def _kind(ran: Ran) -> str:
    outcome = ran.outcome
    if not ran.problem:
        return "done"
    if outcome.timed_out:
        return "timeout"
    if outcome.signal is not None:
        return "signal"
    return "result" if outcome.exit_code == 0 else "exit"
