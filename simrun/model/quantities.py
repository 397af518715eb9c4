"""Quantities as users write them: memory, durations, shares.

Stored as plain numbers in one unit: bytes, seconds. Rendering is the business of who shows them.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_MEMORY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?B?|[KMGT]i|k|B)?\s*", re.IGNORECASE)
_MEMORY_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _MEMORY_UNITS |= {
        _letter: 1000**_power,
        _letter + "b": 1000**_power,
        _letter + "i": 1024**_power,
        _letter + "ib": 1024**_power,
    }
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MIB = 2**20
GIB = 2**30


def parse_memory(value: Any) -> int:
    """Turn `512Mi`, `2GiB`, `1.5G` or a number of bytes into bytes."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a quantity such as 512Mi or 2Gi")
    if isinstance(value, str):
        match = _MEMORY.fullmatch(value)
        if not match:
            raise ValueError("must be a quantity such as 512Mi or 2Gi")
        size = float(match[1]) * _MEMORY_UNITS[(match[2] or "").lower()]
    else:
        size = float(value)
    if not math.isfinite(size):
        raise ValueError("must be a finite quantity")
    if size < MIB:
        raise ValueError("must be at least 1Mi; a number without a unit counts bytes")
    return int(size)


def parse_duration(value: Any) -> float:
    """Turn `90`, `90s`, `10m` or `1h30m` into seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a duration such as 90s, 10m or 1h30m")
    if isinstance(value, str):
        text = value.replace(" ", "")
        parts = _DURATION_PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ValueError("must be a duration such as 90s, 10m or 1h30m")
        seconds = sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)
    else:
        seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError("must be a finite duration")
    if seconds <= 0:
        raise ValueError("must be longer than zero")
    return seconds


def format_memory(size: float) -> str:
    """Give bytes as people read them: `512 MiB`, `1.5 GiB`."""
    if size >= GIB:
        return f"{size / GIB:.3g} GiB"
    return f"{size / MIB:.3g} MiB" if size < 1000 * MIB else f"{size / MIB:.0f} MiB"


def memory_gb_text(size: int) -> str:
    """Give bytes as the decimal text in GiB that the harness reads, without a loss."""
    return f"{size / GIB:.9f}".rstrip("0").rstrip(".")


Memory = Annotated[int, BeforeValidator(parse_memory)]
"""Bytes; written as 512Mi, 2Gi, 1.5GB."""

Seconds = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; written as 90, 90s, 10m, 1h30m."""

Cpus = Annotated[float, Field(gt=0, le=10_000)]
"""Processors, fractions allowed."""
