"""Errors at the edge of the command line: what is printed, and the exit code.

0 succeeded, 1 failed, 2 wrong usage or input, 3 cancelled, 4 waited long enough, 5 no server, 6 not found, 130 left. What simrun raises on purpose is a text for a person (or a JSON object
for a program); everything else is a bug and shows its traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import IO

from simrun.base.errors import InvalidInput, NotFound, Problem, SimrunError, Unreachable
from simrun.cli.formatting import clean

SHOWN_PROBLEMS = 50
"""Problems printed as text; JSON has them all."""


class ExitCode(IntEnum):
    """What the command says to the shell."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    CANCELLED = 3
    TIMED_OUT = 4
    UNREACHABLE = 5
    NOT_FOUND = 6
    DETACHED = 130


def exit_code(error: SimrunError) -> ExitCode:
    """Give the exit code of an error."""
    if isinstance(error, InvalidInput):
        return ExitCode.USAGE
    if isinstance(error, Unreachable):
        return ExitCode.UNREACHABLE
    return ExitCode.NOT_FOUND if isinstance(error, NotFound) else ExitCode.FAILED


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the arguments ask for JSON, also when they can't be parsed otherwise."""
    return any(
        argument in ("-ojson", "-o=json", "--output=json")
        or (argument == "json" and before in ("-o", "--output"))
        for before, argument in zip(("", *arguments), arguments, strict=False)
    )


def show(error: SimrunError, *, as_json: bool, stream: IO[str] | None = None) -> None:
    """Print an error on stderr."""
    stream = stream or sys.stderr
    print(_json(error) if as_json else _text(error), file=stream)


def show_usage(message: str, *, stream: IO[str] | None = None) -> None:
    """Print a usage error as JSON."""
    value = {"error": "usage", "message": message, "exit_code": int(ExitCode.USAGE)}
    print(json.dumps(value, ensure_ascii=False), file=stream or sys.stderr)


def _json(error: SimrunError) -> str:
    value: dict[str, object] = {
        "error": "".join(
            "_" + char.lower() if char.isupper() else char for char in type(error).__name__
        ).lstrip("_"),
        "message": str(error),
        "exit_code": int(exit_code(error)),
    }
    if isinstance(error, InvalidInput):
        value["problems"] = [
            {
                "field": problem.field,
                "message": problem.message,
                "value": problem.value,
                "remedy": problem.remedy,
                "place": problem.place,
            }
            for problem in error.problems
        ]
    return json.dumps(value, ensure_ascii=False)


def _text(error: SimrunError) -> str:
    if not isinstance(error, InvalidInput):
        return f"error: {clean(str(error))}"
    lines = [_problem(problem) for problem in error.problems[:SHOWN_PROBLEMS]]
    if (more := len(error.problems) - SHOWN_PROBLEMS) > 0:
        lines.append(f"error: and {more} more; -o json lists them all")
    return "\n".join(lines)


def _problem(problem: Problem) -> str:
    """One line that an editor can follow to its place, and a second one with what to do."""
    parts = [part for part in (problem.place, problem.field) if part]
    text = ": ".join([*parts, problem.message])
    if problem.value is not None:
        text += f" (got {problem.value})"
    remedy = f"\n  {clean(problem.remedy)}" if problem.remedy else ""
    return f"error: {clean(text)}{remedy}"
