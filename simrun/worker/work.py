"""A worker's share of a split task: claims units, computes and commits them, until nothing is left for it.

Everything that a unit does wrong stays with the unit: it is tried again, by anybody, and given up at last. What
ends the attempt is raised, and then the units that this holder has are given back at once, so that nobody waits for its
heartbeat to grow old. After a kill for memory they are not: the next attempt of this worker takes them over with the retry
memory, where another worker would only be killed as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simrun.worker import files, protocol, trees
from simrun.worker.claims import Claim, Holder
from simrun.worker.compute import Computed, compute
from simrun.worker.endings import MemoryKillError
from simrun.worker.heartbeat import Ticker, Watcher
from simrun.worker.job import Job
from simrun.worker.ledger import Ledger, failure_record
from simrun.worker.protocol import HEARTBEAT_S, UNIT_RECORD
from simrun.worker.units import Unit, UnitTable

_LOOK_S = 1.0
"""How often a coordinator that has nothing to do looks for units that became free."""

_LOOK_PAUSES = 10


class UnitWorker:
    """Works on the units of one task for one holder. `counts` is what the report says of units."""

    def __init__(self, job: Job, table: UnitTable) -> None:
        env = job.env
        self.job = job
        self.table = table
        self.holder = Holder(env.worker, env.attempt, env.pod_uid, env.node)
        self.ledger = Ledger(
            env.task_dir,
            self.holder,
            table.count,
            tries=job.settings.unit_tries,
            max_evictions=job.settings.max_evictions,
            attempt_base=env.attempt_base,
        )
        files.make_directory(env.task_dir.work)
        self.counts = {"done": 0, "failed": 0, "faults": 0, "lost": 0}

    def work(self, *, coordinate: bool) -> None:
        """Compute units until none is free; a coordinator stays until all are done or given up."""
        ticker = Ticker("takeover", Takeover(self.job, self.ledger, self.holder), HEARTBEAT_S)
        if coordinate:
            ticker.start()
        try:
            if taken := self.ledger.take_over_own():
                self.job.runner.log.say(f"goes on with {len(taken)} units of its earlier attempts")
            self._loop(coordinate=coordinate)
        except MemoryKillError:
            raise
        except BaseException:
            self._give_back()
            raise
        finally:
            ticker.stop()

    def _loop(self, *, coordinate: bool) -> None:
        stopper = self.job.runner.stopper
        while True:
            stopper.check()
            claim = self.ledger.claim_next()
            if claim is not None:
                self._unit(claim)
                continue
            began = stopper.now()
            if not coordinate or self.ledger.state().complete:
                return
            # Listings of a huge task take long; they are not to keep the store busy
            stopper.wait(max(_LOOK_S, _LOOK_PAUSES * (stopper.now() - began)))

    def _give_back(self) -> None:
        try:
            self.ledger.release_all_of(self.holder.name)
        except OSError as error:
            self.job.runner.log.say(f"units could not be given back: {error}")

    # --- one unit ------------------------------------------------------------------------------------------------------

    def _unit(self, claim: Claim) -> None:
        row = self.table.unit(claim.unit)
        unit = Unit(
            i=row.i,
            key=row.key,
            params={**self.job.settings.params, **row.params},
            seed=row.seed,
            seed31=row.seed31,
        )
        out = self.job.env.task_dir.work / claim.name
        self.job.runner.log.say(f"unit {unit.i} ({unit.key}), generation {claim.generation}")
        computed = compute(self.job, unit, out, self.job.scratch / "unit")
        problem, kind = computed.problem, computed.kind
        if not problem:
            try:
                self._commit(claim, unit, computed, out)
                return
            except PermissionError as error:  # a file that the program made unreadable
                problem, kind = f"its output cannot be kept: {error}", "output"
        self._fault(claim, unit, computed._replace(problem=problem, kind=kind), out)

    def _commit(self, claim: Claim, unit: Unit, computed: Computed, out: Path) -> None:
        record = {
            "schema": protocol.SCHEMA,
            "unit": claim.unit,
            "generation": claim.generation,
            "key": unit.key,
            "state": "done",
            "reason": "done",
            "message": "",
            "result": computed.result,
            **self._who(),
            **computed.facts,
        }
        path = out / UNIT_RECORD
        trees.remove(path)  # the program may have left anything under that name
        files.write_synced(path, files.encode(record), durable=False)
        trees.sync(out)
        files.sync_directory(out.parent)
        if self.ledger.commit(claim, path):
            self.counts["done"] += 1
        else:
            self.counts["lost"] += 1
            self.job.runner.log.say(f"unit {unit.i} was committed by another worker")
            self._discard(out)

    def _fault(self, claim: Claim, unit: Unit, computed: Computed, out: Path) -> None:
        record = failure_record(
            claim,
            unit.key,
            computed.kind,
            computed.problem,
            tail=computed.tail,
            **self._who(),
            **computed.facts,
        )
        path = out / UNIT_RECORD
        if out.is_dir():
            trees.remove(path)
        else:
            self.job.fresh(out)
        files.write_synced(path, files.encode(record))
        files.sync_directory(out)
        outcome = self.ledger.fault(claim, computed.kind, computed.problem, path)
        self.counts["faults"] += 1
        what = {"again": "is tried again", "failed": "is given up", "lost": "is another worker's"}
        self.job.runner.log.say(f"unit {unit.i} failed and {what[outcome]}: {computed.problem}")
        if outcome == "failed":
            self.counts["failed"] += 1  # its output stays, to be looked at
        else:
            self._discard(out)

    def _who(self) -> dict[str, Any]:
        env = self.job.env
        return {
            "worker": env.worker,
            "attempt": env.attempt,
            "pod_uid": env.pod_uid,
            "node": env.node,
        }

    def _discard(self, out: Path) -> None:
        try:
            trees.remove(out)
        except OSError as error:
            self.job.runner.log.say(f"{out} could not be removed: {error}")


class Takeover:
    """Frees what ended or silent holders have: the coordinator's look at the others, from a thread of its own."""

    def __init__(self, job: Job, ledger: Ledger, holder: Holder) -> None:
        self._job = job
        self._ledger = ledger
        self._own_name = holder.name
        self._watcher = Watcher(job.env.task_dir, job.env.stale_s)

    def __call__(self) -> None:
        """Look once."""
        names = {holder.name for holder in self._ledger.holders().values()} - {self._own_name}
        dead = names & files.listing(self._job.env.task_dir.dead)
        self._release(dead, "which has ended")
        self._release(self._watcher.look(names - dead), "which shows no sign of life")

    def _release(self, names: set[str], why: str) -> None:
        for name in sorted(names):
            if count := self._ledger.release_all_of(name):
                self._job.runner.log.say(f"freed {count} units of {name}, {why}")
