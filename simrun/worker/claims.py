"""Who holds a unit: the words of the ledger, and the tokens whose links are the claims.

A claim `claims/<unit>.<generation>` is a hard link of a token, a small file that names its holder. A token is written and
fsynced once and linked many times, so a claim costs one link. What a name holds never changes, since nobody
deletes or replaces a claim: whoever wants the unit next links at the next generation, and a link has one winner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from simrun.worker import protocol


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
