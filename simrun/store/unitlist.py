"""The units of a split task with what became of each: the unit table and three listings, put together. All of it blocks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simrun.base.errors import DamagedRecord
from simrun.store.runs import RunStore
from simrun.worker import files
from simrun.worker.claims import Token, decode_token
from simrun.worker.protocol import TaskDir, claim_name, parse_claim_name
from simrun.worker.units import Unit, UnitTable


class UnitState(StrEnum):
    """What became of a unit."""

    WAITING = "waiting"
    HELD = "held"
    """A worker holds it: it is being computed, or will be taken over."""
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A unit. generation: how often it was claimed. reason, message: of the failure of one that was given up."""

    i: int
    key: str
    params: dict[str, Any]
    seed: int
    state: UnitState
    generation: int = 0
    worker: str | None = None
    """Who holds it, or did."""
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class UnitList:
    """Some units, and how many there are in all; `total` is None while the table is not published."""

    units: list[UnitRow]
    total: int | None


def list_units(
    store: RunStore,
    run_id: str,
    task: str,
    *,
    state: UnitState | None = None,
    after: int = -1,
    limit: int = 100,
) -> UnitList:
    """Give up to `limit` units with a number above `after`, in order. Raises DamagedRecord for a table that can't be read."""
    directory = store.layout.run(run_id).task(task)
    try:
        table = UnitTable.load(directory)
        if table is None:
            return UnitList([], None)
        seen = _Listings(directory)
        rows: list[UnitRow] = []
        for i in range(after + 1, table.count):
            if state is not None and seen.state(i) is not state:
                continue
            if len(rows) == limit:
                break
            rows.append(seen.row(table.unit(i)))
    except ValueError as error:
        raise DamagedRecord(str(error)) from error
    return UnitList(rows, table.count)


class _Listings:
    """What the names in the directories of a task say of its units."""

    def __init__(self, directory: TaskDir) -> None:
        self._directory = directory
        self._claimed = _highest(files.listing(directory.claims))
        self._failed = _highest(files.listing(directory.failed))
        self._done = {int(name) for name in files.listing(directory.done) if name.isdigit()}

    def state(self, unit: int) -> UnitState:
        if unit in self._done:
            return UnitState.DONE
        generation = self._claimed.get(unit, 0)
        if unit in self._failed and self._failed[unit] >= generation:
            return UnitState.FAILED
        if not generation:
            return UnitState.WAITING
        token = self._token(unit, generation)
        return UnitState.WAITING if token is None or token.open else UnitState.HELD

    def row(self, unit: Unit) -> UnitRow:
        state, generation = self.state(unit.i), self._claimed.get(unit.i, 0)
        token = self._token(unit.i, generation) if generation else None
        record: dict[str, Any] = {}
        if state is UnitState.FAILED:
            record = self._record(claim_name(unit.i, self._failed[unit.i]))
        return UnitRow(
            i=unit.i,
            key=unit.key,
            params=unit.params,
            seed=unit.seed,
            state=state,
            generation=generation,
            worker=None if token is None or token.open else token.holder.worker,
            reason=record.get("reason"),
            message=record.get("message"),
        )

    def _token(self, unit: int, generation: int) -> Token | None:
        try:
            data = files.read(self._directory.claims / claim_name(unit, generation))
        except OSError:
            return None  # no file of ours
        return None if data is None else decode_token(data)

    def _record(self, name: str) -> dict[str, Any]:
        try:
            found = files.read_json(self._directory.failed / name)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _highest(names: set[str]) -> dict[int, int]:
    """Give the highest generation of each unit."""
    found: dict[int, int] = {}
    for name in names:
        if parsed := parse_claim_name(name):
            unit, generation = parsed
            found[unit] = max(generation, found.get(unit, 0))
    return found
