"""The id of a scheduled run: a function of whose schedule it is and of the instant, and of nothing else.

Two schedulers, a repeated catch-up and a restart that lost its last snapshot all arrive at the same id, and the second run of an
id is refused. The instant counts as UTC: the hour that wall clocks show twice has two ids. The function is that of Flyte's
scheduler, so a schedule that moves from there finds the ids it would have had.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

DOMAIN: Final = "simrun"
"""What stands for Flyte's domain; simrun has none."""
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_64_BITS: Final = (1 << 64) - 1
_DIGITS: Final = 19
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def execution_id(project: str, domain: str, name: str, version: str, instant: datetime) -> str:
    """Give the id of the run of a launch plan's version at an instant: `f` and 19 hex digits, a valid run id.

    Parts must be free of `:`, which separates them; a fraction of a second is dropped.
    """
    since = instant - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    digest = _fnv_1(f"{project}:{domain}:{name}:{version}:{seconds}".encode())
    return "f" + digest.to_bytes(8, "little").ljust(16, b"\0").hex()[:_DIGITS]


def scheduled_run_id(group: str, name: str, version: str, instant: datetime) -> str:
    """Give the id of the run that version `version` of a group's launch plan `name` has at `instant`."""
    return execution_id(group, DOMAIN, name, version, instant)


def _fnv_1(data: bytes) -> int:
    """Hash by FNV-1 of 64 bits: multiply, then xor (FNV-1a does it the other way round)."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value * _FNV_PRIME & _64_BITS) ^ byte
    return value
