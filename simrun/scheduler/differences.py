"""How two versions of a launch plan differ: every place at which they do, with both values. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from simrun.model.faults import dotted
from simrun.model.launchplan import LaunchPlan

_OWN: Final = frozenset({"version", "created_at", "created_by", "fingerprint", "schema"})
"""What differs between any two versions."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place at which two versions differ. What one of them does not have is None there, and `only` names the other."""

    path: str
    before: Any
    after: Any
    only: str | None = None
    """`before` or `after`, where only that version has something there."""


def differences(before: LaunchPlan, after: LaunchPlan) -> list[Difference]:
    """Give how two versions differ, in the order of the places."""
    return sorted(_between(_plain(before), _plain(after), ()), key=lambda item: item.path)


def _plain(plan: LaunchPlan) -> dict[str, Any]:
    data = plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    submission = data.pop("submission", {})
    return {**submission, **{key: value for key, value in data.items() if key not in _OWN}}


def _between(before: Any, after: Any, path: Path) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() | after.keys():
            place = (*path, key)
            if key not in after:
                yield Difference(dotted(place), before[key], None, "before")
            elif key not in before:
                yield Difference(dotted(place), None, after[key], "after")
            else:
                yield from _between(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from _between(*pair, (*path, index))
    elif before != after or type(before) is not type(after):
        yield Difference(dotted(path), before, after)
