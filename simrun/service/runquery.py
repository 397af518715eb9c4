"""Which runs are meant, and the SQL that finds them newest first without looking at the others.

Each combination of a group and a state is a walk along an index of its own that stops after a page; a page is merged from these. One
walk over `state IN (…)` would have to sort all that match before it gives the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

WALKS = 64
"""Of one page at the most; where there would be more, groups are looked at row by row."""

_ORDER = "ORDER BY created DESC, id DESC LIMIT ?"

_Walk = tuple[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the list, newest first: behind the run of this creation time and id."""

    created: float
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """What runs must be; a filter of nothing means all.

    groups: those that the caller may see, None for all. labels: they have all of these. created_after: at or after it,
    created_before: before it, in wall seconds. prefix: how their ids begin.
    """

    states: tuple[str, ...] = ()
    group: str | None = None
    groups: Collection[str] | None = None
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_after: float | None = None
    created_before: float | None = None
    prefix: str | None = None


def page_query(wanted: RunFilter, after: Position | None, limit: int) -> tuple[str, list[Any]]:
    """Give the query whose one value is the page, one JSON object a line, and its parameters.

    One value, since each row that SQLite hands over is a turn for the interpreter's lock, which a busy event loop holds for milliseconds.
    """
    walks = [_labelled(wanted, after)] if wanted.labels else _walks(wanted, after)
    keys = " UNION ALL ".join(f"SELECT * FROM ({sql} {_ORDER})" for sql, _ in walks)
    values = [value for _, given in walks for value in [*given, limit]]
    found = f"SELECT * FROM ({keys}) {_ORDER}"
    rows = (
        f"SELECT r.body FROM ({found}) k CROSS JOIN runs r ON r.id = k.id"
        " ORDER BY k.created DESC, k.id DESC LIMIT ?"
    )
    return f"SELECT group_concat(body, char(10)) FROM ({rows})", [*values, limit, limit]


def _walks(wanted: RunFilter, after: Position | None) -> list[_Walk]:
    """Give one walk for each group and state."""
    named = _groups(wanted)
    states: list[str | None] = [*dict.fromkeys(wanted.states)] or [None]
    apart = named is not None and 0 < len(named) * len(states) <= WALKS
    found = []
    for group, state in product(named if named is not None and apart else [None], states):
        where, values = _shared(wanted, after, "")
        if group is not None:
            _add(where, values, "grp = ?", group)
        elif named is not None:
            _add(where, values, f"grp IN ({_marks(named)})", *named)
        if state is not None:
            _add(where, values, "state = ?", state)
        if wanted.name is not None:
            _add(where, values, "name = ?", wanted.name)
        found.append((f"SELECT created, id FROM runs WHERE {' AND '.join(where)}", values))
    return found


def _labelled(wanted: RunFilter, after: Position | None) -> _Walk:
    """Give the walk along the runs of one label, which looks the other conditions up."""
    (key, value), *others = sorted(wanted.labels.items())
    where, values = _shared(wanted, after, "l.")
    _add(where, values, "l.key = ? AND l.value = ?", key, value)
    for other in others:
        of_it = "m.key = ? AND m.value = ? AND m.created = l.created AND m.id = l.id"
        _add(where, values, f"EXISTS (SELECT 1 FROM labels m WHERE {of_it})", *other)
    if (named := _groups(wanted)) is not None:
        _add(where, values, f"l.grp IN ({_marks(named)})", *named)
    if wanted.states:
        of_it = f"o.id = l.id AND o.state IN ({_marks(wanted.states)})"
        _add(where, values, f"EXISTS (SELECT 1 FROM runs o WHERE {of_it})", *wanted.states)
    if wanted.name is not None:
        of_it = "o.id = l.id AND o.name = ?"
        _add(where, values, f"EXISTS (SELECT 1 FROM runs o WHERE {of_it})", wanted.name)
    return f"SELECT l.created, l.id FROM labels l WHERE {' AND '.join(where)}", values


def _groups(wanted: RunFilter) -> list[str] | None:
    """Give the groups that are looked at; None for all."""
    if wanted.group is None:
        return None if wanted.groups is None else sorted(wanted.groups)
    return [wanted.group] if wanted.groups is None or wanted.group in wanted.groups else []


def _shared(wanted: RunFilter, after: Position | None, table: str) -> tuple[list[str], list[Any]]:
    """Give the conditions on time, id and place in the list."""
    where: list[str] = ["1"]
    values: list[Any] = []
    if wanted.created_after is not None:
        _add(where, values, f"{table}created >= ?", wanted.created_after)
    if wanted.created_before is not None:
        _add(where, values, f"{table}created < ?", wanted.created_before)
    if (begin := wanted.prefix) is not None:
        # `~` is above all that may stand in an id
        _add(where, values, f"{table}id >= ? AND {table}id < ?", begin, begin + "~")
    if after is not None:
        _add(where, values, f"({table}created, {table}id) < (?, ?)", after.created, after.id)
    return where, values


def _add(where: list[str], values: list[Any], condition: str, *given: Any) -> None:
    where.append(condition)
    values += given


def _marks(values: Collection[str]) -> str:
    return ",".join("?" * len(values))
