"""The ledger of a task: which units are done, given up, held or free, decided by links alone.

No worker asks another: a claim, a commit and a failure are links, which have one winner on every file system, and a few
listings show the rest. A unit may be computed twice, after a takeover from a worker that was only slow, but it
is committed once. Nothing is ever deleted, so any view, however old, can only lose a race, never win it wrongly.

Names of lookups are never trusted for absence; listings are (see simrun.worker.files).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from simrun.worker.claims import Claim, Holder
from simrun.worker.protocol import UNIT_TRIES, TaskDir

FaultOutcome = Literal["again", "failed", "lost"]


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

    Each of its methods takes a fresh listing of the directories. It is safe to use from several threads.
    """

    def __init__(self, task_dir: TaskDir, count: int) -> None:
        raise NotImplementedError

    def state(self) -> Counts:
        """Count the units by where they stand."""
        raise NotImplementedError

    def done(self) -> list[int]:
        """Give the committed units in order; their records are `done/<unit>`."""
        raise NotImplementedError

    def failed(self) -> list[Claim]:
        """Give the units given up, in order, each with its highest generation: the record is `failed/<claim.name>`."""
        raise NotImplementedError

    def holders(self) -> dict[int, Holder]:
        """Give who holds each claimed unit that is neither done nor failed. Open claims have no holder."""
        raise NotImplementedError


class Ledger(LedgerView):
    """The ledger as one holder uses it. Safe to use from several threads of that holder's process.

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
        """Make the directories of the ledger where they are missing, and this holder's token."""
        raise NotImplementedError

    def take_over_own(self) -> list[Claim]:
        """Claim at once what earlier attempts of this worker hold; to be called before the first `claim_next`.

        The claims are this holder's now, and `claim_next` hands them out before any other. Units that have used up their tries
        are given up here instead. Claims of attempts later than this holder's are left alone.
        """
        raise NotImplementedError

    def claim_next(self) -> Claim | None:
        """Claim a free unit; None when nothing is free as of a listing that is at most a second old.

        None doesn't mean that the task is complete: others may hold units that become free again (see `state`).
        """
        raise NotImplementedError

    def commit(self, claim: Claim, record_path: Path) -> bool:
        """Link the record of a computed unit to `done/<unit>`; whether this made the unit's result.

        The caller has fsynced the record and all output. False: another holder had committed the unit; delete the own work.
        Raises OSError when the store fails; then the unit may or may not be committed, and calling again tells.
        """
        raise NotImplementedError

    def fault(self, claim: Claim, reason: str, message: str, record_path: Path) -> FaultOutcome:
        """Note that a unit ended badly through its own fault, and decide what becomes of it.

        "again": the unit is free for another try (of anybody). "failed": it has used up its tries and its record is in
        failed/. "lost": the unit is not this holder's any more, or is done; the fault counts all the same.
        The caller has written and fsynced the record, by `failure_record`.
        """
        raise NotImplementedError

    def release(self, claim: Claim) -> None:
        """Give a claimed unit back, for anybody to claim; without effect when another generation stands already."""
        raise NotImplementedError

    def release_all_of(self, holder_name: str) -> int:
        """Free every unfinished unit that the holder of that name holds; gives how many.

        A worker that ends calls it with its own name; the coordinator with names from dead/ and from heartbeat.Watcher.
        """
        raise NotImplementedError

    def reopen_failed(self) -> list[int]:
        """Free every unit that was given up, for a new round; gives the units. Their faults so far count no more."""
        raise NotImplementedError


def failure_record(
    claim: Claim, key: str, reason: str, message: str, **more: Any
) -> dict[str, Any]:
    """Give the record of a unit that ended badly: what `failed/<unit>.<generation>` holds.

    Keys: schema, unit, generation, key, state ("failed"), reason, message, and what `more` adds. A record of a done unit has
    the same keys with state "done". The ledger itself writes such records, with an empty key, for units lost too often.
    """
    raise NotImplementedError
