"""Results of units: the few numbers that a unit leaves besides its files, as one flat JSON object."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, Final

from simrun.worker.protocol import RESULT

MAX_BYTES: Final = 256 * 1024
"""A result stands in the record of its unit, and the records of all units are read for the merge."""


def read(out: Path) -> dict[str, Any] | None:
    """Read the result.json that a command left in its output directory; None when there is none.

    ValueError with a text for the user when it is no flat JSON object.
    """
    path = out / RESULT
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{RESULT} must be a regular file")
    if status.st_size > MAX_BYTES:
        raise ValueError(
            f"{RESULT} has {status.st_size} bytes, at most {MAX_BYTES} are allowed; keep arrays in files of their own"
        )
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{RESULT} is no JSON: {error}") from error
    return flat(value)


def flat(value: Any) -> dict[str, Any]:
    """Check that a result is a flat object of text, numbers, true, false and null; ValueError names the field that is not.

    Numbers that JSON cannot say (NaN, infinities) become null: a result that was hours in the making is not
    thrown away for one of them.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a result must be an object of named values, not {type(value).__name__}")
    plain: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, float) and not math.isfinite(item):
            plain[name] = None
        elif item is None or isinstance(item, (str, int, float)):
            plain[name] = item
        else:
            raise ValueError(
                f"result {name!r} must be text, a number, true, false or null, not {type(item).__name__}"
            )
    if len(json.dumps(plain)) > MAX_BYTES:
        raise ValueError(f"a result may have at most {MAX_BYTES} bytes as JSON")
    return plain


def lost_numbers(value: Any) -> list[str]:
    """Name the fields of a result that `flat` makes null."""
    if not isinstance(value, dict):
        return []
    return [
        name for name, item in value.items() if isinstance(item, float) and not math.isfinite(item)
    ]
