"""The unit table of a task: which pieces it has, with which parameters and seeds.

The table is written once and is the truth from then on: it is never drawn again, so a new version of a design's code
cannot change a run that stands. Chunks are named by their content; index.json, linked last, alone says that the
table exists, so a writer that is killed leaves nothing that anybody would read.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from simrun.worker import files
from simrun.worker.designs import Params, expand, size
from simrun.worker.protocol import SCHEMA, TaskDir
from simrun.worker.seeds import Seeds
from simrun.worker.tables import read_table

__all__ = [
    "Params",
    "TableConflictError",
    "Unit",
    "UnitTable",
    "expand",
    "make_units",
    "read_table",
    "size",
    "write_table",
]

CHUNK_UNITS = 10_000
CHUNK_BYTES = 4 * 2**20
KEY_LENGTH = 120
"""Longest key in characters: keys stand in tables and lines of logs."""

_INDEX = "index.json"


class TableConflictError(Exception):
    """Raised when a task has a unit table already, with other content: the published one holds."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of a split task."""

    i: int
    key: str
    params: Params
    seed: int
    seed31: int


def make_units(
    rows: Iterable[Params],
    *,
    seed_base: int,
    task: str,
    seed_across: Literal["units", "replicates"] = "units",
    replicates: int = 1,
) -> Iterator[Unit]:
    """Number rows of parameters, repeat each `replicates` times in a row, and give keys and seeds.

    With more than one replicate each unit has the parameter `replicate`, from 0. `seed_across="replicates"` gives replicate
    r of every row the same seeds (common random numbers); else all seeds differ. Units of equal rows have equal keys.
    Raises ValueError that names the row when it can't be a row of parameters: no mapping, a name that is no text, a
    value JSON can't say, NaN.
    """
    seeds = Seeds(seed_base, task)
    i = 0
    for number, row in enumerate(rows):
        _check_row(number, row, replicates)
        for replicate in range(replicates):
            params = dict(row)
            if replicates > 1:
                params["replicate"] = replicate
            seed, seed31 = seeds.at(replicate if seed_across == "replicates" else i)
            yield Unit(i, unit_key(params), params, seed, seed31)
            i += 1


def unit_key(params: Mapping[str, Any]) -> str:
    """Give the name of a unit for people: `a=1,b=2` on one line, cut with a piece of its hash where it is long."""
    key = ",".join(f"{name}={_shown(value)}" for name, value in params.items())
    if len(key) <= KEY_LENGTH and key.isprintable():
        return key
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in key)
    return f"{printable[: KEY_LENGTH - 9]}~{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _check_row(number: int, row: Any, replicates: int) -> None:
    if not isinstance(row, Mapping):
        raise ValueError(f"units: row {number} must be a mapping of parameters, not {row!r:.80}")
    for name in row:
        if not isinstance(name, str):
            raise ValueError(f"units: row {number}: the name {name!r:.80} must be text")
    if replicates > 1 and "replicate" in row:
        raise ValueError(
            f"units: row {number} has a parameter 'replicate', which replicates: {replicates} makes: "
            "rename it, or leave out replicates"
        )
    for name, value in row.items():
        try:
            # Half a character of UTF-16 passes for text until it is written
            json.dumps({name: value}, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"units: row {number}: {name} is {value!r:.80}, which JSON can't say ({error}): "
                "use text, finite numbers, true, false, null, lists and mappings of them"
            ) from None


def write_table(task_dir: TaskDir, units: Iterable[Unit]) -> int:
    """Publish the unit table of a task, durably; gives the number of units.

    A second writer of the same table is fine; one of another table gets TableConflictError and should load the published one.
    """
    files.make_directory(task_dir.units)
    chunks: list[dict[str, Any]] = []
    count = 0
    for lines in _chunked(units):
        data = b"".join(lines)
        name = hashlib.sha256(data).hexdigest()
        files.create(task_dir.units / f"{name}.jsonl", data)
        chunks.append({"sha": name, "first": count, "count": len(lines)})
        count += len(lines)
    index = files.encode({"schema": SCHEMA, "count": count, "chunks": chunks})
    path = task_dir.units / _INDEX
    if not files.create(path, index) and files.read(path) != index:
        raise TableConflictError(f"{path}: this task has another unit table already")
    return count


def _chunked(units: Iterable[Unit]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    length = 0
    for expected, unit in enumerate(units):
        if unit.i != expected:
            raise ValueError(f"units must be numbered in order: {unit.i} stands at {expected}")
        line = files.encode(asdict(unit))
        if lines and (len(lines) == CHUNK_UNITS or length + len(line) > CHUNK_BYTES):
            yield lines
            lines, length = [], 0
        lines.append(line)
        length += len(line)
    if lines:
        yield lines


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What index.json says of a chunk."""

    path: Path
    sha: str
    first: int
    count: int


class UnitTable:
    """A published unit table; reads one line per unit, so memory stays small however long the table is."""

    def __init__(self, count: int, chunks: list[_Chunk]) -> None:
        self._count = count
        self._chunks = chunks
        self._firsts = [chunk.first for chunk in chunks]
        self._offsets: dict[int, array[int]] = {}

    @classmethod
    def load(cls, task_dir: TaskDir) -> Self | None:
        """Open the table of a task; None when none is published yet. ValueError that names the file when it is damaged."""
        if not files.listed(task_dir.root, task_dir.units.name, _INDEX):
            return None
        path = task_dir.units / _INDEX
        try:
            if (index := files.read_json(path)) is None:
                return None
            if index["schema"] > SCHEMA:
                raise ValueError(f"schema {index['schema']} is newer than this harness")
            chunks = [
                _Chunk(task_dir.units / f"{c['sha']}.jsonl", c["sha"], c["first"], c["count"])
                for c in index["chunks"]
            ]
            return cls(index["count"], chunks)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no index of a unit table: {error}") from None

    @property
    def count(self) -> int:
        """Number of units; may be 0."""
        return self._count

    def unit(self, i: int) -> Unit:
        """Give unit `i` (0 ≤ i < count, else IndexError); ValueError that names the file when its chunk is damaged."""
        if not 0 <= i < self._count:
            raise IndexError(f"there is no unit {i}: the table has {self._count}")
        number = bisect.bisect_right(self._firsts, i) - 1
        chunk = self._chunks[number]
        offsets = self._offsets.get(number)
        if offsets is None:
            offsets = self._offsets[number] = _line_offsets(_checked(chunk))
        start, end = offsets[i - chunk.first], offsets[i - chunk.first + 1]
        fd = os.open(chunk.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _parsed(os.pread(fd, end - start, start))
        finally:
            os.close(fd)

    def __iter__(self) -> Iterator[Unit]:
        """Give all units in order, chunk by chunk."""
        for chunk in self._chunks:
            yield from map(_parsed, _checked(chunk).splitlines())


def _checked(chunk: _Chunk) -> bytes:
    data = files.read(chunk.path)
    if data is None:
        raise ValueError(f"{chunk.path} is missing, though the index of the unit table names it")
    if hashlib.sha256(data).hexdigest() != chunk.sha:
        raise ValueError(f"{chunk.path} is damaged: its content is not what its name says")
    return data


def _line_offsets(data: bytes) -> array[int]:
    """Give where each line begins, and the end: 8 bytes a unit are kept instead of the chunk."""
    offsets = array("q", [0])
    position = 0
    while (position := data.find(b"\n", position) + 1) > 0:
        offsets.append(position)
    return offsets


def _parsed(line: bytes) -> Unit:
    fields = json.loads(line)
    return Unit(fields["i"], fields["key"], fields["params"], fields["seed"], fields["seed31"])
