"""Cursors: where a page ended, in a form that is nobody's business, and only good for the list it came from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import Any

from simrun.service.api.routing import BadQuery

_FIELD = "cursor"
_MAX = 1000
"""Characters; what is longer was never given."""
_COUNT_MAX = 2**53


def cursor_of(wanted: object, position: list[Any]) -> str:
    """Give the cursor that stands for a position in the list of what is wanted (both JSON can say)."""
    text = json.dumps([_digest(wanted), *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position_of(cursor: str, wanted: object, *kinds: type) -> list[Any]:
    """Give the position that a cursor stands for, of values of these kinds. Raises BadQuery for one of another list, or none at all."""
    try:
        if len(cursor) > _MAX:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        value: list[Any] = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        digest, *position = value
        if len(position) != len(kinds) or not all(map(_is_one, position, kinds)):
            raise ValueError("another form")
        json.dumps(position, allow_nan=False, ensure_ascii=False).encode()  # all of it can be told
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise BadQuery.one(
            _FIELD,
            "is none that this API gave",
            value=cursor[:100],
            remedy="send `cursor` of the answer before as it is, or leave it out for the first page",
        ) from None
    if digest != _digest(wanted):
        raise BadQuery.one(
            _FIELD,
            "belongs to a list with other filters",
            value=cursor[:100],
            remedy="send the same filters as for the page before (limit may differ), or leave the cursor out for the first page",
        )
    return position


def _is_one(value: object, kind: type) -> bool:
    """Whether a value is of a kind; a number that counts is never negative, nor larger than what is counted here."""
    if kind is int:
        return type(value) is int and 0 <= value < _COUNT_MAX
    return isinstance(value, kind)


def _digest(wanted: object) -> str:
    text = json.dumps(wanted, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
