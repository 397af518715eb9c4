"""Placeholders in the items of a command: `{params.steps}`, `{inputs.mesh}`, `{outputs.map}`, `{unit.seed}`, `{scratch}`.

Only these words are replaced. Braces mean something to shells, awk, JSON and Python, so whatever else stands in braces stays
as it is, and there is no escape to learn. An item stays one item: a value with spaces is not split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

NAMESPACES: Final = ("params", "inputs", "outputs")
"""What a user names the members of."""

WORDS: Final = ("unit.index", "unit.key", "unit.seed", "unit.seed31", "scratch", "out")
"""What simrun names itself."""

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PLACEHOLDER = re.compile(
    rf"\{{((?:{'|'.join(NAMESPACES)})\.{_NAME}|{'|'.join(map(re.escape, WORDS))})\}}"
)


def names(items: Iterable[str]) -> list[str]:
    """Give the placeholders of a command, without braces, each once, in the order of mention."""
    return list(dict.fromkeys(name for item in items for name in _PLACEHOLDER.findall(item)))


def substitute(items: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Replace the placeholders in every item by `values`, whose keys are dotted names such as `params.steps`.

    Text is put in as it is, everything else as JSON writes it (`true`, `1e-05`, `[1, 2]`). A placeholder without a value is
    a ValueError that names it and what there is instead.
    """
    return [_PLACEHOLDER.sub(lambda match: _text(match[1], values), item) for item in items]


def _text(name: str, values: Mapping[str, Any]) -> str:
    if name not in values:
        raise ValueError(_unknown(name, values))
    value = values[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unknown(name: str, values: Mapping[str, Any]) -> str:
    namespace = name.partition(".")[0]
    kind = {"params": "parameter", "inputs": "input", "outputs": "output"}.get(namespace)
    if kind is None:
        return (
            f"{{{name}}} in the command has no value here; only the units of a split task have one"
        )
    there = sorted(key.partition(".")[2] for key in values if key.startswith(f"{namespace}."))
    return f"{{{name}}} in the command names no {kind}; there is: {', '.join(there) or 'none'}"
