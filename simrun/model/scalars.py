"""What a word of a YAML file means when it is not quoted.

YAML 1.2's core schema, which is what people expect: `no` is a word, `1e3` a number, `12:30` text. Older readers disagree on some
words, and JSON can't hold some numbers; `resolve` says so, and who takes any value refuses those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from simrun.model.faults import Fault, FieldFaults, Path

_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_OTHER_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?|0b[01_]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER = 40
DEPTH_MAX = 100
"""Lists and mappings within each other; whoever writes or reads JSON by recursion ends somewhere above."""
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_OLD_BOOLEANS = frozenset(
    form for word in ("yes", "no", "on", "off") for form in (word, word.title(), word.upper())
)


def resolve(text: str) -> tuple[Any, str | None]:
    """Give what a plain scalar means, and why that may be doubted."""
    if not text or text[0] not in "+-.0123456789":
        if text in _WORDS:
            return _WORDS[text], None
        if text in _OLD_BOOLEANS:
            return text, f"{text!r} may mean a word or a truth; write true or false, or quote it"
        return text, None
    if len(text) > _LONGEST_NUMBER:
        return text, None
    if _DECIMAL.fullmatch(text):
        return int(text), None
    if _BASED.fullmatch(text):
        return int(text, 0), None
    if _LEADING_ZERO.fullmatch(text):
        return (
            text,
            f"{text} may mean text, {text.lstrip('+-0') or '0'} or an octal number; quote it",
        )
    if _FLOAT.fullmatch(text):
        number = float(text)
        return (text, f"{text} is out of range") if math.isinf(number) else (number, None)
    if _OTHER_NUMBER.fullmatch(text):
        return text, f"{text} may mean text or a number; write plain digits, or quote it"
    if _NOT_FINITE.fullmatch(text):
        return (
            text,
            f"{text} can't be stored, JSON has only finite numbers; quote it or leave it out",
        )
    return text, None


def finite(value: Any) -> Any:
    """Give a value that JSON can hold. Raises FieldFaults for each number in it that is infinite or none, and for one that is too deep."""
    if faults := list(_not_finite(value, ())):
        raise FieldFaults(faults)
    return value


def _not_finite(value: Any, path: Path) -> Iterator[Fault]:
    if isinstance(value, float) and not math.isfinite(value):
        text = "can't be stored, JSON has only finite numbers"
        yield Fault(path, text, str(value), "write it as text, or leave it out")
    elif len(path) > DEPTH_MAX and isinstance(value, dict | list | tuple):
        text = f"is nested deeper than {DEPTH_MAX} levels"
        yield Fault(path[:1], text, remedy="put it into a file, and name that as an input")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _not_finite(inner, (*path, index))
