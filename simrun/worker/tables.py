"""Tables of parameters that a user has in a file: csv with a header, or a JSON object a line."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from simrun.worker.designs import Params

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_IDENTIFIER = re.compile(r"[+-]?(0[0-9]+|[0-9]{19,})")


def read_table(path: Path) -> list[Params]:
    """Read rows from a `.csv` file with a header, or from `.jsonl` with an object a line.

    A csv column is int when all its cells are, else float, else text; an empty cell of a number column is None; `007`
    and numbers of more than 18 digits are text, since a number would lose digits. Raises ValueError that names file and line.
    """
    readers = {".csv": _read_csv, ".jsonl": _read_jsonl}
    if (reader := readers.get(path.suffix.lower())) is None:
        raise ValueError(f"{path}: a table must be a .csv or a .jsonl file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8 text ({error.reason})") from None
    return reader(path, text)


def _read_jsonl(path: Path, text: str) -> list[Params]:
    rows: list[Params] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise ValueError(f'{path}:{number}: must be an object such as {{"x": 1}}')
        rows.append(row)
    return rows


def _read_csv(path: Path, text: str) -> list[Params]:
    lines = list(_csv_lines(path, text))
    if not lines:
        raise ValueError(f"{path}: has no header line")
    names = [name.strip() for name in lines[0][1]]
    for name in names:
        if not name or names.count(name) > 1:
            what = f"names {name!r} twice" if name else "has a column without a name"
            raise ValueError(f"{path}:{lines[0][0]}: the header {what}")
    body = lines[1:]
    for number, cells in body:
        if len(cells) != len(names):
            raise ValueError(f"{path}:{number}: has {len(cells)} cells, the header {len(names)}")
    columns = [_column([cells[at] for _, cells in body]) for at in range(len(names))]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _csv_lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: {error}") from None


def _column(cells: list[str]) -> list[Any]:
    stripped = [cell.strip() for cell in cells]
    filled = [cell for cell in stripped if cell]
    kind: Callable[[str], Any]
    if filled and all(_INTEGER.fullmatch(cell) for cell in filled):
        kind = int
    elif filled and all(map(_is_number, filled)):
        kind = float
    else:
        return cells
    return [kind(cell) if cell else None for cell in stripped]


def _is_number(cell: str) -> bool:
    return (
        _NUMBER.fullmatch(cell) is not None
        and _IDENTIFIER.fullmatch(cell) is None
        and math.isfinite(float(cell))
    )
