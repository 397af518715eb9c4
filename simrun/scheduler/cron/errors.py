"""Why an expression is refused, and where in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simrun.base.errors import InvalidInput, Problem

FIELD_NAMES: Final = ("minute", "hour", "day of month", "month", "day of week")
_SHOWN = 80
"""Characters of an expression or a part of it that an error repeats."""


@dataclass(frozen=True, slots=True)
class CronFault:
    """One reason to refuse an expression.

    `field` is the index of the field, 0 (minute) to 4 (day of week), or None where the fault lies in no single field.
    `column` is the character of the expression where the fault begins, counted from 1. `text` is what stands there.
    """

    reason: str
    field: int | None = None
    column: int = 1
    text: str = ""
    remedy: str | None = None


class CronError(InvalidInput):
    """Raised when an expression is refused; `faults` holds the first fault of every field that has one, left to right."""

    def __init__(self, expression: str, *faults: CronFault) -> None:
        self.expression = expression
        self.faults = faults
        super().__init__([_problem(expression, fault) for fault in faults])

    def __reduce__(self) -> tuple[object, ...]:
        # an exception is pickled by its text otherwise, which this class is not made from
        return CronError, (self.expression, *self.faults)

    @property
    def fault(self) -> CronFault:
        """Give the leftmost fault."""
        return self.faults[0]


def shortened(text: str) -> str:
    """Give `text` quoted, and cut where it would drown the message around it."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _problem(expression: str, fault: CronFault) -> Problem:
    return Problem(
        field="schedule" if fault.field is None else FIELD_NAMES[fault.field],
        message=fault.reason,
        value=shortened(fault.text) if fault.text and fault.text != expression else None,
        remedy=fault.remedy,
        place=f"{shortened(expression)} column {fault.column}",
    )
