"""The ledger of a task as a worker uses it: claim, commit, give back, give up; decided by links alone.

No worker asks another: a claim, a commit and a failure are links, which have one winner on every file system, and a few
listings show the rest. A unit may be computed twice, after a takeover from a worker that was only slow, but it
is committed once. Nothing is ever deleted, and who claims links at the generation after the highest he knows: an old view
can only lose a race, never win it wrongly.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from simrun.worker import files
from simrun.worker.claims import Claim, Holder, Token, TokenFile
from simrun.worker.ledger_view import Counts, LedgerView
from simrun.worker.protocol import SCHEMA, UNIT_TRIES, TaskDir, parse_claim_name

__all__ = ["Claim", "Counts", "FaultOutcome", "Holder", "Ledger", "LedgerView", "failure_record"]

FaultOutcome = Literal["again", "failed", "lost"]

LISTING_INTERVAL_S = 1.0
LISTING_SHARE = 0.1
"""Of a worker's time that listings may take: those of a huge task are taken less often."""


class _History(NamedTuple):
    """What happened to a unit before a generation, since the round began for it."""

    claims: int
    """How often somebody held it."""
    faults: list[int]
    """Generations that ended through the unit's own fault."""


class Ledger(LedgerView):
    """The ledger as one holder uses it. Safe to use from several threads of that holder's process, not in a signal handler.

    `tries` (settings unit_tries): faults of its own after which a unit is given up. `max_evictions`: how many more claims
    than `tries` a unit may use up in a round before it is given up as lost too often. `attempt_base`: claims of
    attempts below it are of earlier rounds and are not counted for that. `clock` gives seconds and paces the listings.
    """

    def __init__(
        self,
        task_dir: TaskDir,
        holder: Holder,
        count: int,
        *,
        tries: int = UNIT_TRIES,
        max_evictions: int = 5,
        attempt_base: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the directories of the ledger where they are missing."""
        super().__init__(task_dir, count)
        for directory in (task_dir.claims, task_dir.done, task_dir.faults, task_dir.failed):
            files.make_directory(directory)
        self._holder = holder
        self._tries = tries
        self._claim_limit = tries + max_evictions
        self._attempt_base = attempt_base
        self._clock = clock
        self._token_file = TokenFile(task_dir.claims, Token(holder))
        self._open_file = TokenFile(task_dir.claims, Token(holder, open=True))
        self._order = _PickOrder(count, holder.name)
        self._picked = 0
        """Units before this place of the order have been claimed by somebody."""
        self._given_back: set[int] = set()
        """Units whose highest claim is an open token."""
        self._taken_over: deque[Claim] = deque()
        self._looked_at = -math.inf
        self._listing_pause = 0.0

    # --- claiming ------------------------------------------------------------------------------------------------------

    def take_over_own(self) -> list[Claim]:
        """Claim at once what earlier attempts of this worker hold; to be called before the first `claim_next`.

        The claims are this holder's now, and `claim_next` hands them out before any other. Units that have used up their tries
        are given up here instead. Claims of attempts later than this holder's are left alone.
        """
        with self._lock:
            self._look()
            held = sorted(
                unit
                for unit, token in self._standing.items()
                if not token.open
                and token.holder.worker == self._holder.worker
                and token.holder.attempt <= self._holder.attempt
            )
            claims = [claim for unit in held if (claim := self._acquire(unit)) is not None]
            self._taken_over.extend(claims)
            return claims

    def claim_next(self) -> Claim | None:
        """Claim a free unit; None when nothing is free as of listings that are at most about a second old.

        None doesn't mean that the task is complete: others may hold units that become free again (see `state`).
        """
        with self._lock:
            if self._taken_over:
                return self._taken_over.popleft()
            self._look_if_due()
            while True:
                while (unit := self._free_unit()) is not None:
                    if (claim := self._acquire(unit)) is not None:
                        return claim
                if not self._look_if_due():
                    return None

    def _free_unit(self) -> int | None:
        """Find a free unit in the view: one that was given back, else the next of this holder's order without a claim."""
        if self._given_back:
            return min(self._given_back, key=self._order.place)
        while self._picked < self._count:
            unit = self._order.unit(self._picked)
            if not self._highest[unit] and not self._done[unit]:
                return unit
            self._picked += 1
        return None

    def _acquire(self, unit: int) -> Claim | None:
        """Link the next generation of a unit; None when another did, or when the unit has no tries left and is given up."""
        claim = Claim(unit, self._highest[unit] + 1)
        if not self._token_file.link(claim):
            self._note(claim, self._token(claim))
            self._look_if_due(after_a_loss=True)
            return None
        self._note(claim, Token(self._holder))
        if claim.generation > 1 and self._give_up_if_spent(claim):
            return None
        return claim

    def _look_if_due(self, *, after_a_loss: bool = False) -> bool:
        """List once a second, and sooner after a lost link, which shows that the view is old; whether it was done."""
        interval = (
            self._listing_pause if after_a_loss else max(LISTING_INTERVAL_S, self._listing_pause)
        )
        if self._clock() < self._looked_at + interval:
            return False
        self._look()
        return True

    def _look(self) -> None:
        began = self._clock()
        super()._look()
        self._given_back = {unit for unit, token in self._standing.items() if token.open}
        self._looked_at = self._clock()
        self._listing_pause = (self._looked_at - began) / LISTING_SHARE

    def _note(self, claim: Claim, token: Token) -> None:
        """Put a claim into the view that was just made or met."""
        if claim.generation > self._highest[claim.unit]:
            self._highest[claim.unit] = claim.generation
            self._standing[claim.unit] = token
            (self._given_back.add if token.open else self._given_back.discard)(claim.unit)

    # --- ending --------------------------------------------------------------------------------------------------------

    def commit(self, claim: Claim, record_path: Path) -> bool:
        """Link the record of a computed unit to `done/<unit>`; whether this made the unit's result.

        The caller has fsynced the record and all output. False: another holder had committed the unit; delete the own work.
        Raises OSError when the store fails; then the unit may or may not be committed, and calling again tells.
        """
        won = files.link(record_path, self._dir.done / str(claim.unit))
        if won:
            files.sync_directory(self._dir.done)
        with self._lock:
            self._done[claim.unit] = 1
            self._standing.pop(claim.unit, None)
            self._given_up.pop(claim.unit, None)
        return won

    def fault(self, claim: Claim, reason: str, message: str, record_path: Path) -> FaultOutcome:
        """Note that a unit ended badly through its own fault, and decide what becomes of it.

        "again": the unit is free for another try (of anybody). "failed": it has used up its tries and its record is in
        failed/. "lost": the unit is not this holder's any more, or is done; the fault counts all the same.
        The caller has written and fsynced the record, by `failure_record`.
        """
        note = failure_record(claim, "", reason, message) | {"worker": self._holder.worker}
        files.create(self._dir.faults / claim.name, files.encode(note))
        with self._lock:
            self._look()
            if self._done[claim.unit] or self._highest[claim.unit] != claim.generation:
                return "lost"
            if len(self._history(claim, through=True).faults) < self._tries:
                return "again" if self._open(claim) else "lost"
            self._give_up(claim, lambda failure: files.link(record_path, failure))
            return "failed"

    def release(self, claim: Claim) -> None:
        """Give a claimed unit back, for anybody to claim; without effect when another generation stands already."""
        with self._lock:
            self._open(claim)

    def release_all_of(self, holder_name: str) -> int:
        """Free every unfinished unit that the holder of that name holds; gives how many.

        A worker that ends calls it with its own name; the coordinator with names from dead/ and from heartbeat.Watcher.
        """
        with self._lock:
            self._look()
            held = [
                Claim(unit, self._highest[unit])
                for unit, token in self._standing.items()
                if not token.open and token.holder.name == holder_name
            ]
            return sum(self._open(claim) for claim in held)

    def reopen_failed(self) -> list[int]:
        """Free every unit that was given up, for a new round; gives the units. Their faults so far count no more."""
        with self._lock:
            self._look()
            token = Token(self._holder, open=True, reopened=True)
            file = TokenFile(self._dir.claims, token)
            given_up = [Claim(unit, self._given_up[unit]) for unit in sorted(self._given_up)]
            reopened = [claim.unit for claim in given_up if self._follow(claim, file, token)]
            files.sync_directory(self._dir.claims)
            self._look()
            return reopened

    def _open(self, claim: Claim) -> bool:
        return self._follow(claim, self._open_file, Token(self._holder, open=True))

    def _follow(self, claim: Claim, file: TokenFile, token: Token) -> bool:
        """Link an open token at the generation after a claim; whether this did it."""
        following = Claim(claim.unit, claim.generation + 1)
        if won := file.link(following):
            self._note(following, token)
        return won

    # --- giving up -----------------------------------------------------------------------------------------------------

    def _give_up_if_spent(self, claim: Claim) -> bool:
        """Give up a unit that this holder has just claimed, if it had no tries left; whether it was given up.

        Only the holder of the highest generation may give a unit up; so the verdict that a dead worker didn't get to, or
        that nobody was there to give, is given by whoever claims next.
        """
        history = self._history(claim)
        if len(history.faults) >= self._tries:
            last = Claim(claim.unit, history.faults[-1])
            note = files.read_json(self._dir.faults / last.name)
            reason, message = note["reason"], note["message"]
        elif history.claims >= self._claim_limit:
            reason = "lost"
            message = (
                f"lost too often: {history.claims} workers in a row claimed this unit and ended without a result "
                f"(unit_tries + max_evictions = {self._claim_limit})"
            )
        else:
            return False
        record = files.encode(failure_record(claim, "", reason, message))
        self._give_up(claim, lambda failure: files.create(failure, record))
        return True

    def _give_up(self, claim: Claim, put: Callable[[Path], bool]) -> None:
        """Make failed/<unit>.<generation>. The claim must be durable first: a failure stands at the highest generation."""
        files.sync_directory(self._dir.claims)
        put(self._dir.failed / claim.name)
        files.sync_directory(self._dir.failed)
        self._standing.pop(claim.unit, None)
        self._given_up[claim.unit] = claim.generation

    def _history(self, claim: Claim, *, through: bool = False) -> _History:
        """Collect what happened to a unit before a claim (`through`: up to and with it), back to where it was reopened."""
        last = claim.generation if through else claim.generation - 1
        claims, first = 0, 1
        for generation in range(last, 0, -1):
            token = self._token(Claim(claim.unit, generation))
            if token.reopened:
                first = generation + 1
                break
            claims += not token.open and token.holder.attempt >= self._attempt_base
        faults = sorted(
            parsed[1]
            for name in files.listing(self._dir.faults)
            if (parsed := parse_claim_name(name)) is not None
            and parsed[0] == claim.unit
            and first <= parsed[1] <= last
        )
        return _History(claims, faults)


class _PickOrder:
    """The order in which a holder tries the units: all of them, each holder another way round.

    place -> (start + place · stride) modulo count, with start and stride from the holder's name: workers that begin
    together seldom want the same unit, and no list of a million numbers is kept.
    """

    def __init__(self, count: int, holder_name: str) -> None:
        digest = hashlib.sha256(holder_name.encode()).digest()
        self._count = count = max(count, 1)
        self._start = int.from_bytes(digest[:8], "big") % count
        self._stride = int.from_bytes(digest[8:16], "big") % count or 1
        while math.gcd(self._stride, count) != 1:
            self._stride += 1
        self._inverse = pow(self._stride, -1, count)

    def unit(self, place: int) -> int:
        """Give the unit at a place of the order."""
        return (self._start + place * self._stride) % self._count

    def place(self, unit: int) -> int:
        """Give the place of a unit in the order."""
        return (unit - self._start) * self._inverse % self._count


def failure_record(
    claim: Claim, key: str, reason: str, message: str, **more: Any
) -> dict[str, Any]:
    """Give the record of a unit that ended badly: what `failed/<unit>.<generation>` holds.

    Keys: schema, unit, generation, key, state ("failed"), reason, message, and what `more` adds. A record of a done unit has
    the same keys with state "done". The ledger itself writes such records, with an empty key, for units without tries left.
    """
    return {
        "schema": SCHEMA,
        "unit": claim.unit,
        "generation": claim.generation,
        "key": key,
        "state": "failed",
        "reason": reason,
        "message": message,
        **more,
    }
