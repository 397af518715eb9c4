"""The part of the project's lock file that goes into the worker image."""

from __future__ import annotations

import re
from collections import defaultdict

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==")


def _entries(lock: str) -> dict[str, str]:
    """Split a lock file into its entries: by normalised name, the pin with its hashes and the
    comments below it.
    """
    entries: dict[str, list[str]] = defaultdict(list)
    name = ""
    for line in lock.splitlines():
        pin = _PIN.match(line)
        if pin:
            name = re.sub(r"[-_.]+", "-", pin["name"]).lower()
        if name:
            entries[name].append(line)
    return {name: "\n".join(lines) for name, lines in entries.items()}


def _required_by(entry: str) -> set[str]:
    """Return the names in the "via" comment of an entry: the packages that need it."""
    comments = (
        line.strip().lstrip("# ") for line in entry.splitlines() if line.strip().startswith("#")
    )
    words = " ".join(comments).removeprefix("via").split()
    return {word.rstrip(",") for word in words}


def subset(lock: str, wanted: set[str]) -> str:
    """Return the lines of `lock` for `wanted` and all they need, in the lock's order.

    Raises ValueError when a wanted package is not locked. A dependency the comments do not tell is
    found by pip, which refuses to install anything without a hash beside hashed packages.
    """
    entries = _entries(lock)
    absent = wanted - entries.keys()
    if absent:
        raise ValueError(
            f"the lock file has no {', '.join(sorted(absent))}: lock the extra `examples` too"
        )
    kept = set(wanted)
    while True:
        more = {
            name
            for name, entry in entries.items()
            if name not in kept and _required_by(entry) & kept
        }
        if not more:
            return "".join(f"{entry}\n" for name, entry in entries.items() if name in kept)
        kept |= more
