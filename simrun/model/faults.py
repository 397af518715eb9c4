"""A fault in what a user wrote, before it is known where in a file it stands; and the nearest known name.

Faults carry a path (`("tasks", "sweep", "split", "workers")`), not a text with dots: names may hold dots, and only a path can be
looked up in the file again.
"""

from __future__ import annotations

import difflib
import functools
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

Path = tuple[str | int, ...]

_CLOSE = 0.6
"""Share of letters in common above which a name counts as mistyped."""
_COMPARISONS = 200_000
"""Names compared by letters for one Nearest; a file with thousands of mistyped names must not take minutes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what is wrong at `path`, what stands there, and what to do about it.

    `at_key` says that the key is wrong, not its value.
    """

    path: Path
    message: str
    value: str | None = None
    remedy: str | None = None
    at_key: bool = False


class FieldFaults(ValueError):  # noqa: N818 - carries several
    """Raised by a validator of a model that found something wrong with single fields; paths are relative to the model."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(
            "; ".join(
                f"{dotted(fault.path)} {fault.message}" if fault.path else fault.message
                for fault in faults
            )
        )


def dotted(path: Iterable[str | int]) -> str:
    """Give a path as people read it: `tasks.sweep.command[2]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


class Nearest:
    """Finds, among known names, the one that was probably meant."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._folded: dict[str, str] = {}
        for name in known:
            self._folded.setdefault(_fold(name), name)
        self._left = _COMPARISONS

    def name(self, wrong: str) -> str | None:
        """Give the known name nearest to `wrong`, None when none is near."""
        if same := self.same(wrong):
            return same
        if self._left < len(self._known):
            return None
        self._left -= len(self._known)
        found = difflib.get_close_matches(wrong, self._known, n=1, cutoff=_CLOSE)
        return found[0] if found else None

    def same(self, wrong: str) -> str | None:
        """Give the known name that differs from `wrong` only by case, Unicode form or the way it joins words."""
        return self._folded.get(_fold(wrong))

    def remedy(self, wrong: str) -> str | None:
        """Give the question to ask: `did you mean 'a' (names differ by case)?`."""
        found = self.name(wrong)
        if found is None:
            return None
        why = ""
        if _nfc(found) == _nfc(wrong):
            why = " (the same letters in another Unicode form)"
        elif found.casefold() == wrong.casefold():
            why = " (names differ by case)"
        return f"did you mean {found!r}{why}?"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Give names as an enumeration that stays readable."""
    all_names = sorted(names)
    text = ", ".join(all_names[:most])
    return text if len(all_names) <= most else f"{text} and {len(all_names) - most} more"


@functools.lru_cache(maxsize=10_000)
def is_probably(wrong: str, right: str) -> bool:
    """Whether `wrong` looks like a slip for `right`. Names that differ in digits only are two names on purpose."""
    if re.sub(r"[0-9]+", "0", wrong) == re.sub(r"[0-9]+", "0", right):
        return False
    if _fold(wrong) == _fold(right):
        return True
    ratio = difflib.SequenceMatcher(None, wrong, right).ratio()
    return min(len(wrong), len(right)) > 3 and ratio >= 0.85


def _nfc(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _fold(text: str) -> str:
    """Give what names have in common that differ only by case, by Unicode form, or by the way they join words."""
    return re.sub(r"[-_ ]", "", _nfc(text)).casefold()
