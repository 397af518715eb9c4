"""Merges that need no program: the table of results, and sums.

`table` writes `table.jsonl`, an object a unit, and the same as `table.csv`: unit, key, the unit's own parameters, state, reason,
and the fields of its result. Failed units are rows too. A name that is taken is written as `params.NAME` or `result.NAME`.
`sum` writes `sum.json`: the number of units and the sum of every numeric field of their results.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from simrun.worker import files
from simrun.worker.records import ComputedUnit, GivenUpUnit, MergedUnits

TABLE_CSV: Final = "table.csv"
TABLE_JSONL: Final = "table.jsonl"
SUM_JSON: Final = "sum.json"

_FIRST: Final = ("unit", "key")
_STATE: Final = ("state", "reason")


class _Names:
    """The columns of a table, found while rows are made: parameters and results keep their names where those are free."""

    def __init__(self) -> None:
        self.params: dict[str, str] = {}
        self.results: dict[str, str] = {}

    def columns(self) -> list[str]:
        return [*_FIRST, *self.params.values(), *_STATE, *self.results.values()]

    def see(self, params: Iterable[str], results: Iterable[str]) -> None:
        for name in params:
            self.params.setdefault(name, f"params.{name}" if name in (*_FIRST, *_STATE) else name)
        for name in results:
            self.results.setdefault(name, name)

    def settle(self) -> None:
        """Rename results whose name a parameter has, once all are known."""
        taken = {*_FIRST, *_STATE, *self.params.values()}
        for name in self.results:
            self.results[name] = f"result.{name}" if name in taken else name

    def apply(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Give a row under the names of its columns, in their order."""
        return {
            **{name: row[name] for name in _FIRST},
            **{self.params[name]: value for name, value in row["params"].items()},
            **{name: row[name] for name in _STATE},
            **{self.results[name]: value for name, value in row["result"].items()},
        }


def table(units: MergedUnits, out: Path, scratch: Path, check: Callable[[], object]) -> None:
    """Write the table of results to `out`.

    The columns are known only when all records were read, so what they say is kept in `scratch` meanwhile: reading every record
    twice would take twice the calls to the store, and keeping all in memory would let it grow with the units.
    """
    names = _Names()
    kept = scratch / "rows.jsonl"
    with open(kept, "w", encoding="utf-8") as rows:
        for unit in units:
            check()
            row = _row(unit)
            names.see(row["params"], row["result"])
            rows.write(_line(row))
    names.settle()
    columns = names.columns()
    with (
        open(kept, encoding="utf-8") as rows,
        open(out / TABLE_JSONL, "w", encoding="utf-8") as lines,
        open(out / TABLE_CSV, "w", encoding="utf-8", newline="") as sheet,
    ):
        writer = csv.writer(sheet, lineterminator="\n")
        writer.writerow(columns)
        for line in rows:
            named = names.apply(json.loads(line))
            lines.write(_line(named))
            writer.writerow([_cell(named.get(column)) for column in columns])
    kept.unlink()


def _row(unit: ComputedUnit | GivenUpUnit) -> dict[str, Any]:
    return {
        "unit": unit.unit.i,
        "key": unit.unit.key,
        "params": unit.unit.params,
        "state": "done" if isinstance(unit, ComputedUnit) else "failed",
        "reason": None if isinstance(unit, ComputedUnit) else unit.reason,
        "result": (unit.result or {}) if isinstance(unit, ComputedUnit) else {},
    }


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def _cell(value: Any) -> str | int | float:
    """Give a value as a csv cell: nothing for null, JSON for what is no text and no number."""
    if value is None:
        return ""
    if isinstance(value, (bool, list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return str(value) if not isinstance(value, (int, float)) else value


def total(units: MergedUnits, out: Path, check: Callable[[], object]) -> None:
    """Write the sums to `out`: {n, failed, sum: {field: sum}, counted: {field: units that had a number there}}.

    true counts as 1. Whole numbers are summed exactly, others without loss between the terms, so that the order of
    the units doesn't matter.
    """
    whole: dict[str, int] = {}
    broken: dict[str, list[float]] = {}
    counted: dict[str, int] = {}
    for unit in units.computed():
        check()
        for name, value in (unit.result or {}).items():
            if not isinstance(value, (int, float)):
                continue
            counted[name] = counted.get(name, 0) + 1
            if isinstance(value, int):
                whole[name] = whole.get(name, 0) + int(value)
            else:
                broken.setdefault(name, []).append(value)
    sums = {
        name: math.fsum([*broken[name], whole.get(name, 0)]) if name in broken else whole[name]
        for name in counted
    }
    body = {"n": len(units.done), "failed": len(units.failed), "sum": sums, "counted": counted}
    files.replace(out / SUM_JSON, files.encode(body), durable=False)
