"""Who holds a unit: the words of the ledger, and the tokens whose links are the claims.

A claim `claims/<unit>.<generation>` is a hard link of a token, a small file that names its holder. A token is written and
fsynced once and linked many times, so a claim costs one link. What a name holds never changes, since nobody
deletes or replaces a claim: whoever wants the unit next links at the next generation, and a link has one winner.
"""

from __future__ import annotations

import errno
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simrun.worker import files, protocol


@dataclass(frozen=True, slots=True)
class Holder:
    """One pod (or local process) that may hold units."""

    worker: str
    attempt: int
    pod_uid: str = ""
    node: str = ""

    @property
    def name(self) -> str:
        """Name of its tokens, its heartbeat and its file in dead/."""
        return protocol.holder_name(self.worker, self.attempt, self.pod_uid)


class Claim(NamedTuple):
    """A unit under the generation that was won for it; generations count from 1."""

    unit: int
    generation: int

    @property
    def name(self) -> str:
        """`<unit>.<generation>`: name of the claim, of the work directory, of a fault and of a failure."""
        return protocol.claim_name(self.unit, self.generation)


@dataclass(frozen=True, slots=True)
class Token:
    """What a claim says."""

    holder: Holder
    """Who made it."""
    open: bool = False
    """Nobody holds the unit: its maker gave it back, for itself or for a holder that is gone."""
    reopened: bool = False
    """Open because the unit had been given up and a new round tries it again: faults up to here don't count."""

    def encode(self) -> bytes:
        """Give the content of the token's file."""
        fields = {
            "schema": protocol.SCHEMA,
            "worker": self.holder.worker,
            "attempt": self.holder.attempt,
            "pod_uid": self.holder.pod_uid,
            "node": self.holder.node,
        }
        if self.open:
            fields["open"] = True
        if self.reopened:
            fields["reopened"] = True
        return files.encode(fields)


UNREADABLE = Token(Holder("?", 0))
"""Stands for a claim whose content is damaged: held by somebody without a heartbeat, so it ends as a stale one."""


def decode_token(data: bytes) -> Token:
    """Read a token's content; UNREADABLE when it isn't one."""
    try:
        fields = json.loads(data)
        holder = Holder(fields["worker"], fields["attempt"], fields["pod_uid"], fields["node"])
        return Token(holder, bool(fields.get("open")), bool(fields.get("reopened")))
    except (ValueError, KeyError, TypeError):
        return UNREADABLE


class TokenFile:
    """A token on disk, made when it is first linked. No two objects share a file, so the inode tells even them apart.

    A file system limits the links of a file (65,000 on ext4); at the limit the token goes on under the next number.
    """

    def __init__(self, claims: Path, token: Token) -> None:
        kind = "reopen." if token.reopened else "open." if token.open else ""
        self._claims = claims
        self._stem = f".{kind}{token.holder.name}"
        self._content = token.encode()
        self._numbers = itertools.count()
        self._path: Path | None = None

    def link(self, claim: Claim) -> bool:
        """Link the token as that claim; whether this did it. OSError when the store failed and nobody has the claim."""
        while True:
            path = self._path or self._make()
            try:
                return files.link(path, self._claims / claim.name)
            except OSError as error:
                if error.errno != errno.EMLINK:
                    raise
                self._path = None

    def _make(self) -> Path:
        for number in self._numbers:
            path = self._claims / f"{self._stem}.{number}"
            if files.create(path, self._content):
                self._path = path
                return path
        raise AssertionError("unreachable")
