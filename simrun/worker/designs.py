"""Designs: how a few lines in a workflow file become the rows of parameters of a task's units.

Drawn designs use the base seed alone, so that two tasks with the same design and seed meet at the same points; every parameter
has a stream of its own, so adding one leaves the others as they were, and `random` with a greater n begins with the same points.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Params = dict[str, Any]
"""Parameters of a unit: anything JSON can say, by name."""

MAX_UNITS = 1_000_000
KINDS = ("grid", "zip", "list", "table", "lhs", "random")


def size(design: Mapping[str, Any], *, replicates: int = 1) -> int:
    """Give the number of units of a design without expanding it; ValueError beyond MAX_UNITS."""
    kind, body = _only(design)
    if kind == "grid":
        rows = math.prod(len(values) for values in body.values()) if body else 0
    elif kind == "zip":
        rows = min((len(values) for values in body.values()), default=0)
    elif kind in ("lhs", "random"):
        rows = int(body["n"])
    else:
        rows = len(body)
    if rows * replicates > MAX_UNITS:
        raise ValueError(
            f"{kind}: makes {rows * replicates:,} units; at most {MAX_UNITS:,} are possible: "
            "let each unit do more of the work"
        )
    return rows * replicates


def expand(design: Mapping[str, Any], *, seed_base: int = 0) -> Iterator[Params]:
    """Give the rows of a design that has exactly one of grid, zip, list, table, lhs, random.

    grid {name: values}: all combinations, the last name changes fastest. zip {name: values}: side by side. list: rows, or
    values that stand under `item`. table: rows (of `tables.read_table`). lhs, random: {n, ranges {name: {low, high, integer,
    log}}}; an integer range has both its ends, another is low ≤ x < high. Replicates are made by `units.make_units`.
    Raises ValueError that names the kind and the parameter.
    """
    kind, body = _only(design)
    size(design)
    return _EXPANDERS[kind](body, seed_base)


def _only(design: Mapping[str, Any]) -> tuple[str, Any]:
    given = [kind for kind in design if design[kind] is not None]
    if len(given) != 1 or given[0] not in KINDS:
        raise ValueError(
            f"units must have exactly one of {', '.join(KINDS)}, not {given or 'none'}"
        )
    return given[0], design[given[0]]


def _grid(body: Mapping[str, Sequence[Any]], _seed: int) -> Iterator[Params]:
    if not body:
        return
    for values in itertools.product(*body.values()):
        yield dict(zip(body, values, strict=True))


def _zip(body: Mapping[str, Sequence[Any]], _seed: int) -> Iterator[Params]:
    lengths = {name: len(values) for name, values in body.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"zip: the lists must be of equal length, not {lengths}")
    for values in zip(*body.values(), strict=True):
        yield dict(zip(body, values, strict=True))


def _list(body: Sequence[Any], _seed: int) -> Iterator[Params]:
    rows = sum(isinstance(value, Mapping) for value in body)
    if rows not in (0, len(body)):
        raise ValueError("list: must have rows only or values only, not both")
    for value in body:
        yield dict(value) if rows else {"item": value}


def _table(body: Sequence[Mapping[str, Any]], _seed: int) -> Iterator[Params]:
    for row in body:
        yield dict(row)


def _random(body: Mapping[str, Any], seed: int) -> Iterator[Params]:
    streams = {name: _stream("random", seed, name) for name in body["ranges"]}
    scales = {name: _scale(name, given) for name, given in body["ranges"].items()}
    for _ in range(body["n"]):
        yield {name: scales[name](streams[name].random()) for name in scales}


def _lhs(body: Mapping[str, Any], seed: int) -> Iterator[Params]:
    """Cut each range into n strata; each is met once, in an order of its own for each parameter."""
    n = int(body["n"])
    scales = {name: _scale(name, given) for name, given in body["ranges"].items()}
    streams = {name: _stream("lhs", seed, name) for name in scales}
    strata = {name: _shuffled(n, stream) for name, stream in streams.items()}
    below_one = math.nextafter(1.0, 0.0)
    for i in range(n):
        yield {
            name: scale(min((strata[name][i] + streams[name].random()) / n, below_one))
            for name, scale in scales.items()
        }


_EXPANDERS: dict[str, Callable[[Any, int], Iterator[Params]]] = {
    "grid": _grid,
    "zip": _zip,
    "list": _list,
    "table": _table,
    "lhs": _lhs,
    "random": _random,
}


def _stream(kind: str, seed: int, name: str) -> random.Random:
    """Give a stream of its own; only `random()` of it is used, the one method whose values Python promises to keep."""
    return random.Random(f"simrun {kind} {seed} {name}")


def _shuffled(n: int, stream: random.Random) -> list[int]:
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = int(stream.random() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


def _scale(name: str, given: Mapping[str, Any]) -> Callable[[float], float]:
    """Give the function from 0 ≤ u < 1 to a value of the range."""
    low, high = given["low"], given["high"]
    integer, log = given.get("integer", False), given.get("log", False)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"ranges.{name}: low must be less than high, not {low} and {high}")
    if log and low <= 0:
        raise ValueError(
            f"ranges.{name}: low must be above zero for a logarithmic range, not {low}"
        )
    if integer:
        first, last = math.ceil(low), math.floor(high)
        if first > last:
            raise ValueError(f"ranges.{name}: there is no whole number from {low} to {high}")
        continuous = _interval(first, last + 1, log=log)
        return lambda u: min(max(math.floor(continuous(u)), first), last)
    continuous = _interval(low, high, log=log)
    # Rounding may reach the upper end, or pass the lower by a bit
    return lambda u: max(min(continuous(u), math.nextafter(high, low)), float(low))


def _interval(low: float, high: float, *, log: bool) -> Callable[[float], float]:
    if log:
        return lambda u: low * (high / low) ** u
    return lambda u: low + u * (high - low)
