"""The units of a task as a merge sees them: rows of the unit table with the records that were committed or given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simrun.worker import files
from simrun.worker.claims import Claim
from simrun.worker.endings import StoreError
from simrun.worker.protocol import TaskDir, claim_name
from simrun.worker.units import Unit, UnitTable


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a unit. One that is missing or damaged is a StoreError: it was committed whole."""
    try:
        record = files.read_json(path)
    except ValueError as error:
        raise StoreError(f"the record {path} is damaged: {error}") from error
    if not isinstance(record, dict):
        raise StoreError(f"the record {path} is not there")
    return record


class ComputedUnit(NamedTuple):
    """A unit that was committed. `params` has all layers, `unit.params` its own row."""

    unit: Unit
    params: Mapping[str, Any]
    out: Path
    result: dict[str, Any] | None

    def given(self) -> dict[str, Any]:
        """What a merge plugin or command is told of it."""
        return {
            "index": self.unit.i,
            "key": self.unit.key,
            "params": self.params,
            "seed": self.unit.seed,
            "out": str(self.out),
            "result": self.result,
        }


class GivenUpUnit(NamedTuple):
    """A unit that was given up, and why."""

    unit: Unit
    params: Mapping[str, Any]
    reason: str

    def given(self) -> dict[str, Any]:
        """What a merge plugin or command is told of it."""
        return {
            "index": self.unit.i,
            "key": self.unit.key,
            "params": self.params,
            "reason": self.reason,
        }


class MergedUnits:
    """What one listing of done/ and one of failed/ named; records are read when they are asked for, one at a time."""

    def __init__(
        self,
        task_dir: TaskDir,
        table: UnitTable,
        params: Mapping[str, Any],
        *,
        done: list[int],
        failed: list[Claim],
    ) -> None:
        self.done = done
        self.failed = failed
        self.count = table.count
        self.kept: set[str] = set()
        """Directories below work/ of the units seen so far: output of computed units, and of failed ones, to be looked at."""
        self._dir = task_dir
        self._table = table
        self._params = params
        self._failures = {claim.unit: claim for claim in failed}

    def __iter__(self) -> Iterator[ComputedUnit | GivenUpUnit]:
        """Give all units in the order of their index; adds to `kept`."""
        for unit in self._table:
            params = {**self._params, **unit.params}
            if (claim := self._failures.get(unit.i)) is None:
                record = read_record(self._dir.done / str(unit.i))
                out = self._dir.work / claim_name(unit.i, int(record["generation"]))
                self.kept.add(out.name)
                yield ComputedUnit(unit, params, out, record.get("result"))
            else:
                record = read_record(self._dir.failed / claim.name)
                self.kept.add(claim.name)
                reason = record.get("message") or record.get("reason") or "failed"
                yield GivenUpUnit(unit, params, str(reason))

    def computed(self) -> Iterator[ComputedUnit]:
        """Give the committed units in the order of their index."""
        return (unit for unit in self if isinstance(unit, ComputedUnit))
