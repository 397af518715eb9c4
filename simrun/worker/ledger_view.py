"""Reading a ledger: where each unit of a task stands, from three listings.

What stands: `done/<unit>` is final. Else the highest generation in claims/ says who holds the unit, or that it is open. A unit is
given up when failed/ carries that highest generation. The listings are taken in an order in which an old one can only make a
unit look less finished than it is: failed, then claims, then done.
"""

from __future__ import annotations

import threading
from array import array
from typing import NamedTuple

from simrun.worker import files, protocol
from simrun.worker.claims import UNREADABLE, Claim, Holder, Token, decode_token
from simrun.worker.protocol import TaskDir


class Counts(NamedTuple):
    """How many units of a task stand where; the four add up to the number of units."""

    done: int
    failed: int
    claimed: int
    free: int

    @property
    def complete(self) -> bool:
        """Whether every unit is done or given up."""
        return not self.claimed and not self.free


class LedgerView:
    """What can be read of a ledger: for the merge, for the service, for whoever holds nothing.

    Each public method takes fresh listings. What a claim says never changes, so it is read once, and only of units that are
    neither done nor given up. Safe to use from several threads.
    """

    def __init__(self, task_dir: TaskDir, count: int) -> None:
        self._dir = task_dir
        self._count = count
        self._lock = threading.RLock()
        self._highest = array("I", bytes(array("I").itemsize * count))
        """Highest generation of each unit; 0 is none. Two arrays, not dicts of a million entries: pods are small."""
        self._done = bytearray(count)
        self._given_up: dict[int, int] = {}
        """Unit -> its highest generation, which failed/ carries."""
        self._standing: dict[int, Token] = {}
        """What the highest claim of each unit says that has one and is neither done nor given up."""
        self._known: dict[bytes, Token] = {}

    def state(self) -> Counts:
        """Count the units by where they stand."""
        with self._lock:
            self._look()
            claimed = sum(not token.open for token in self._standing.values())
            done, failed = self._done.count(1), len(self._given_up)
            return Counts(done, failed, claimed, self._count - done - failed - claimed)

    def done(self) -> list[int]:
        """Give the committed units in order; their records are `done/<unit>`."""
        with self._lock:
            self._look()
            return [unit for unit, done in enumerate(self._done) if done]

    def failed(self) -> list[Claim]:
        """Give the units given up, in order, each with its highest generation: the record is `failed/<claim.name>`."""
        with self._lock:
            self._look()
            return [Claim(unit, self._given_up[unit]) for unit in sorted(self._given_up)]

    def holders(self) -> dict[int, Holder]:
        """Give who holds each claimed unit that is neither done nor given up. Open claims have no holder."""
        with self._lock:
            self._look()
            return {unit: token.holder for unit, token in self._standing.items() if not token.open}

    def is_current(self, claim: Claim) -> bool:
        """Whether a claim still stands: its unit is not done, and nobody claimed or freed it after that generation."""
        with self._lock:
            self._look()
            return not self._done[claim.unit] and self._highest[claim.unit] == claim.generation

    def _look(self) -> None:
        """Bring the view up to date."""
        failures = self._parsed(files.listing(self._dir.failed))
        claims = self._parsed(files.listing(self._dir.claims))
        committed = files.listing(self._dir.done)
        for name in committed:
            if name.isdecimal() and (unit := int(name)) < self._count:
                self._done[unit] = 1
        risen = set()
        for unit, generation in claims:
            if generation > self._highest[unit]:
                self._highest[unit] = generation
                risen.add(unit)
        self._given_up = {
            unit: generation
            for unit, generation in failures
            if generation == self._highest[unit] and not self._done[unit]
        }
        for unit in risen:
            if not self._done[unit] and unit not in self._given_up:
                self._standing[unit] = self._token(Claim(unit, self._highest[unit]))
        for unit in [u for u in self._standing if self._done[u] or u in self._given_up]:
            del self._standing[unit]

    def _parsed(self, names: set[str]) -> list[tuple[int, int]]:
        """Give units and generations of names, without tokens and whatever else is there."""
        pairs = (protocol.parse_claim_name(name) for name in names if name[0] != ".")
        return [pair for pair in pairs if pair is not None and pair[0] < self._count]

    def _token(self, claim: Claim) -> Token:
        """Read what a claim says. The few different contents are decoded once."""
        data = files.read(self._dir.claims / claim.name)
        if data is None:
            return UNREADABLE
        if data not in self._known:
            self._known[data] = decode_token(data)
        return self._known[data]
