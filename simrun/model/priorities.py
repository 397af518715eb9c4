"""The priority of a run, a word of whoever submits it.

`low`, `normal` and `high` are known everywhere: on this machine they order what waits, on a cluster its configuration says which
priority classes they stand for, and may know more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simrun.base.errors import InvalidInput

NORMAL: Final = "normal"
"""What a run has that says nothing."""
ORDER: Final = ("low", NORMAL, "high")
"""The lowest first."""


def rank(priority: str | None) -> int:
    """Give how high one of these words is, 0 for the lowest; any other is normal."""
    return ORDER.index(priority if priority in ORDER else NORMAL)


def unknown(priority: str, known: Iterable[str], where: str) -> InvalidInput:
    """Give the refusal of a priority that a backend does not know."""
    names = ", ".join(known)
    return InvalidInput.one(
        "priority", f"is none {where}", value=priority, remedy=f"one of {names}, or leave it out"
    )
