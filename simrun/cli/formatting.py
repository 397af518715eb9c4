"""Text for people: tables, durations, sizes. No colours, so what is printed may go into a pipe as it is."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Give text on one line without control characters: what a simulator wrote must not steer the terminal."""
    return _CONTROL.sub(
        lambda match: " " if match.group() in "\t\n\r" else "\N{REPLACEMENT CHARACTER}", text
    )


def width_of(text: str) -> int:
    """Give the columns that text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, width: int) -> str:
    """Give text that takes at most `width` columns; what was cut off leaves an ellipsis."""
    if width_of(text) <= width:
        return text
    kept = ""
    for char in text:
        if width_of(kept + char) > width - 1:
            break
        kept += char
    return kept + "…" if width > 0 else ""


def cut_middle(text: str, width: int) -> str:
    """Give text that takes at most `width` columns, cut in the middle: names often differ at their ends."""
    if width_of(text) <= width or not text.isascii():
        return cut(text, width)
    if width < 5:
        return cut(text, width)
    head = (width - 1) // 2
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def pad(text: str, width: int) -> str:
    """Give text filled with blanks to `width` columns."""
    return text + " " * max(0, width - width_of(text))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """Give a table with aligned columns and two blanks between them; `right` are the numbers of columns set flush right."""
    lines = [[clean(cell) for cell in row] for row in ([head.upper() for head in heads], *rows)]
    widths = [max(width_of(line[column]) for line in lines) for column in range(len(heads))]
    flush = set(right)
    text = []
    for line in lines:
        cells = [
            " " * (widths[i] - width_of(cell)) + cell if i in flush else pad(cell, widths[i])
            for i, cell in enumerate(line)
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def duration(seconds: float | None) -> str:
    """Give seconds as `0.4s`, `41s`, `3m20s`, `2h05m`, `3d04h`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def plural(count: int, noun: str) -> str:
    """Give `1 task`, `3 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_json(value: Any) -> str:
    """Give data for `-o json`: indented, as it is in any language."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
